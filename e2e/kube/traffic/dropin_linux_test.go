package traffic

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kube-ipvs/kube-ipvs/e2e/kube/cluster"
)

// These are the paths in kube-proxy's container as kubeadm deploys it.
const (
	kubeProxy  = "/usr/local/bin/kube-proxy"
	kubeadmDir = "/var/lib/kube-proxy"
	accountDir = "/var/run/secrets/kubernetes.io/serviceaccount"
)

//go:embed testdata/kubeadm
var kubeadm embed.FS

// kubeadmFile is one of them, with lines changed: pairs of what is there and what comes instead.
func kubeadmFile(t *testing.T, name string, changes ...string) string {
	t.Helper()
	text, err := kubeadm.ReadFile("testdata/kubeadm/" + name)
	must(t, err)
	for i := 0; i < len(changes); i += 2 {
		if !strings.Contains(string(text), changes[i]) {
			t.Fatalf("%s has no %q to change", name, changes[i])
		}
	}
	return strings.NewReplacer(changes...).Replace(string(text))
}

// dropIn is a node where kubeadm prepared everything for kube-proxy, and our program has its name.
func dropIn(t *testing.T, w *world, a *api) (*proxy, *configMap) {
	t.Helper()
	place(t, "/usr/local/bin", filepath.Dir(kubeProxy))
	must(t, os.Symlink(os.Getenv("KUBE_IPVS_BIN"), kubeProxy))
	place(t, "/var/lib", kubeadmDir)
	must(t, os.MkdirAll(accountDir, 0o755))
	must(t, a.Apply(t.Context(), kubeadmFile(t, "account.yaml")))
	token, err := a.Token(t.Context(), "kube-system", "kube-proxy")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(accountDir, "token"), []byte(token), 0o600))
	must(t, os.WriteFile(filepath.Join(accountDir, "ca.crt"), a.authority(t), 0o644))
	m := &configMap{dir: kubeadmDir}
	m.write(t, a.kubeadmFiles(t))
	return newProgram(t, w, kubeProxy, "/run/kube-ipvs", "--config=/var/lib/kube-proxy/config.conf", "--hostname-override="+thisNode), m
}

// kubeadmFiles are the content of the ConfigMap, with changes to config.conf.
func (a *api) kubeadmFiles(t *testing.T, changes ...string) map[string]string {
	t.Helper()
	return map[string]string{
		"config.conf":     kubeadmFile(t, "config.conf", changes...),
		"kubeconfig.conf": kubeadmFile(t, "kubeconfig.conf", "SERVER", a.near),
	}
}

// authority is the certificate that signs the API server's.
func (a *api) authority(t *testing.T) []byte {
	t.Helper()
	text, err := a.Kubeconfig(t.Context(), cluster.Admin)
	must(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(text)
	must(t, err)
	return config.CAData
}

// TestKubeadmDropIn swaps the program and nothing else, then edits the ConfigMap.
func TestKubeadmDropIn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := newAPI(t, w, cluster.Options{})
	a.createNodes(t)
	web := a.create(t, service("web"), backends...)
	p, files := dropIn(t, w, a)
	p.start(t)
	if got, err := p.get(metricsPort, "/proxyMode"); err != nil || got != (answer{200, "ipvs"}) {
		t.Errorf("/proxyMode is %v, %v, want 200 and ipvs", got, err)
	}
	p.answers(t, "/readyz", 200, settleTimeout)
	a.wantEvent(t, "Node", thisNode, "Starting")
	traffic := w.traffic(t, vip(web))
	traffic.more(t, 10)

	start := time.Now()
	files.write(t, a.kubeadmFiles(t, `scheduler: ""`, `scheduler: wlc`))
	wantScheduler(t, w, "wlc")
	figure(t, "ConfigMap swapped, every server has wlc after", time.Since(start))
	traffic.more(t, 10)

	before := w.kernel(t)
	files.write(t, a.kubeadmFiles(t, `scheduler: ""`, `scheduler: lc`, "nodePortAddresses: null", "nodePortAddresses: [10.0.0.0/99]"))
	invalid := a.wantEvent(t, "Node", thisNode, "InvalidConfiguration")
	if invalid.Type != corev1.EventTypeWarning || !strings.Contains(invalid.Note, "nodePortAddresses") {
		t.Errorf("the Event is %s %q, want a Warning about nodePortAddresses", invalid.Type, invalid.Note)
	}
	traffic.more(t, 10)
	same(t, "kernel after a broken file", before, w.kernel(t))
	p.answers(t, "/readyz", 200, settleTimeout)

	files.write(t, a.kubeadmFiles(t, `scheduler: ""`, `scheduler: sh`))
	wantScheduler(t, w, "sh")
	traffic.more(t, 10)
	traffic.check(t)
}

// wantScheduler waits until every virtual server has a scheduler.
func wantScheduler(t *testing.T, w *world, name string) {
	t.Helper()
	poll(t, "every server to have "+name, settleTimeout, func() error {
		servers := 0
		for line := range strings.Lines(w.node.shell(t, "ipvsadm -Sn")) {
			if !strings.HasPrefix(line, "-A ") {
				continue
			}
			servers++
			if !strings.Contains(line, " -s "+name) {
				return fmt.Errorf("one has not: %s", line)
			}
		}
		if servers < 2 {
			return fmt.Errorf("%d servers in the kernel, want that of the API at least, and one more", servers)
		}
		return nil
	})
}
