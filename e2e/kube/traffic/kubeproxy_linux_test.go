package traffic

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// predecessor is the real kube-proxy on the node, in one of its modes, with kubeadm's file.
type predecessor struct {
	*proxy
	mode string
}

// newPredecessor gives the node a kube-proxy that is not running yet.
func newPredecessor(t *testing.T, w *world, kubeconfig, mode string) *predecessor {
	t.Helper()
	program := os.Getenv("KUBE_IPVS_KUBE_PROXY")
	if program == "" {
		t.Fatal("KUBE_IPVS_KUBE_PROXY has to be the path of kube-proxy; go run ./e2e/kube/build makes it")
	}
	k := &predecessor{mode: mode}
	k.proxy = newProgram(t, w, program, t.TempDir(), "--config", proxyConfig(t, kubeconfig, mode), "--hostname-override", thisNode, "-v=2")
	t.Cleanup(func() { k.keepLog(t) })
	return k
}

// proxyConfig writes kubeadm's config.conf with a mode. nf_conntrack_max is set by the host: it
// cannot be set in a network namespace, and kube-proxy does not start if that fails.
func proxyConfig(t *testing.T, kubeconfig, mode string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.conf")
	text := kubeadmFile(t, "config.conf", "/var/lib/kube-proxy/kubeconfig.conf", kubeconfig, "\nmode: \"\"", "\nmode: "+mode, "maxPerCore: null", "maxPerCore: 0")
	must(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

// start runs kube-proxy until both families have been written once. It does not write before it knows all Services and slices.
func (k *predecessor) start(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	k.launch(t)
	poll(t, "kube-proxy in mode "+k.mode+" to have written its rules", bulkTimeout, func() error {
		select {
		case err := <-k.ended:
			k.process = nil
			t.Fatalf("kube-proxy ended by itself: %v", err)
		default:
		}
		return k.written()
	})
	return time.Since(began)
}

var lastSync = regexp.MustCompile(`(?m)^kubeproxy_sync_proxy_rules_last_timestamp_seconds\{ip_family="(IPv[46])"\} (\S+)$`)

// written fails until each family was.
func (k *predecessor) written() error {
	metrics, err := k.get(metricsPort, "/metrics")
	if err != nil {
		return err
	}
	families := 0
	for _, found := range lastSync.FindAllStringSubmatch(metrics.body, -1) {
		if at, err := strconv.ParseFloat(found[2], 64); err == nil && at > 0 {
			families++
		}
	}
	if families != 2 {
		return fmt.Errorf("%d families were written, want both", families)
	}
	return nil
}

// stop ends kube-proxy as a kubelet does. It takes no notice of the signal, so it dies of it and leaves all as it is.
func (k *predecessor) stop(t *testing.T) {
	t.Helper()
	must(t, k.process.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-k.ended:
		k.process = nil
		t.Logf("kube-proxy ended: %v", err)
	case <-time.After(settleTimeout):
		t.Fatal("kube-proxy does not end")
	}
}

// keepLog keeps what kube-proxy printed, and fails the test for a sync that failed.
func (k *predecessor) keepLog(t *testing.T) {
	t.Helper()
	k.keepOutput(t, "kube-proxy-"+k.mode+".log")
	for line := range strings.Lines(k.output.String()) {
		if strings.Contains(line, "Sync failed") {
			t.Errorf("kube-proxy: %s", line)
		}
	}
}

// keepOutput writes what a program printed where the test's results go.
func (p *proxy) keepOutput(t *testing.T, name string) {
	t.Helper()
	if dir := os.Getenv("KUBE_IPVS_OUT"); dir != "" {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(p.output.String()), 0o644))
	}
}
