package traffic

import (
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kube-ipvs/kube-ipvs/e2e/kube/binaries"
	"github.com/kube-ipvs/kube-ipvs/e2e/kube/cluster"
)

// api is a control plane in the hands of a test: its processes, a client of the administrator's, and the network between it
// and the agent.
type api struct {
	cluster.Control
	client kubernetes.Interface
	relay  *relay
	near   string // the server as the agent knows it
	// tlsName is what its certificate is for, where that is not its address.
	tlsName string
}

// logWriter sends progress to the test's log.
type logWriter struct{ t *testing.T }

func (w logWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// newAPI starts a control plane that ends with the test, or skips.
func newAPI(t *testing.T, w *world, o cluster.Options) *api {
	t.Helper()
	a := openAPI(t, o)
	a.connect(t, w)
	return a
}

// openAPI starts a control plane that no node can reach yet.
func openAPI(t *testing.T, o cluster.Options) *api {
	t.Helper()
	o.Log = logWriter{t}
	c, err := cluster.Open(t.Context(), o)
	if errors.Is(err, binaries.ErrNotBuilt) && os.Getenv("KUBE_IPVS_E2E_KUBE") != "1" {
		t.Skip("needs kube-apiserver and etcd: go run ./e2e/kube/build makes them once, KUBE_IPVS_E2E_KUBE=1 makes their absence an error")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	a := &api{Control: c}
	config := a.adminConfig(t)
	config.QPS, config.ContentType = -1, "application/vnd.kubernetes.protobuf"
	if a.client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	return a
}

// adminConfig goes straight to the server.
func (a *api) adminConfig(t *testing.T) *rest.Config {
	t.Helper()
	text, err := a.Kubeconfig(t.Context(), cluster.Admin)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// connect makes the relay in the node for the agent.
func (a *api) connect(t *testing.T, w *world) {
	t.Helper()
	server, err := url.Parse(a.adminConfig(t).Host)
	if err != nil {
		t.Fatal(err)
	}
	var l net.Listener
	err = w.node.do(func() (err error) {
		l, err = net.Listen("tcp", "127.0.0.1:6443")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	a.relay, a.near = newRelay(t, l, server.Host), "https://"+l.Addr().String()
}

// kubeconfigFor writes a file with which the agent has the given identity, through the relay.
func (a *api) kubeconfigFor(t *testing.T, who cluster.Identity) string {
	t.Helper()
	text, err := a.Kubeconfig(t.Context(), who)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.Load(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range config.Clusters {
		c.Server, c.TLSServerName = a.near, a.tlsName
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}
