package traffic

import (
	"encoding/pem"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kube-ipvs/kube-ipvs/e2e/kube/cluster"
)

// TestBadCredentials: the API server rejects the agent, or the agent rejects the API server. The
// agent reports it in its log and on its socket, and keeps trying: its pod is not restarted.
func TestBadCredentials(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := newAPI(t, w, cluster.Options{})
	a.createNodes(t)
	must(t, a.Apply(t.Context(), manifest(t, "base/rbac.yaml")))
	token, err := a.Token(t.Context(), "kube-system", "kube-ipvs")
	must(t, err)
	withdrawn := a.kubeconfigFor(t, cluster.Identity{Token: token})
	must(t, a.client.CoreV1().ServiceAccounts("kube-system").Delete(t.Context(), "kube-ipvs", metav1.DeleteOptions{}))
	tests := []struct {
		name, kubeconfig string
		want             string
	}{
		{"a token that is not valid any more", withdrawn, "refuses our credentials"},
		{"the CA of another cluster", otherAuthority(t, a.kubeconfigFor(t, cluster.Admin)), "certificate that is not trusted"},
		{"no rights", a.kubeconfigFor(t, cluster.Identity{User: "visitor"}), "ClusterRole"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newAgent(t, w, tt.kubeconfig)
			p.launch(t)
			poll(t, "the agent to say what is wrong", settleTimeout, func() error {
				body := p.answers(t, "/readyz", 503, settleTimeout)
				if strings.Contains(body, tt.want) || strings.Contains(body, "https://") {
					t.Errorf("/readyz tells strangers why: %s", body)
				}
				if reasons := p.failing(t); !strings.Contains(reasons, tt.want) {
					return notSaid(reasons)
				}
				return nil
			})
			p.answers(t, "/livez", 200, settleTimeout)
			if !strings.Contains(p.output.String(), tt.want) {
				t.Errorf("the log does not say %q", tt.want)
			}
		})
	}
}

// notSaid is a text that lacks what it should say.
type notSaid string

func (n notSaid) Error() string { return "it says " + string(n) }

// otherAuthority is a kubeconfig with a certificate that signed nothing here.
func otherAuthority(t *testing.T, path string) string {
	t.Helper()
	stranger := httptest.NewTLSServer(nil)
	t.Cleanup(stranger.Close)
	config, err := clientcmd.LoadFromFile(path)
	must(t, err)
	for _, c := range config.Clusters {
		c.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: stranger.Certificate().Raw})
	}
	other := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, clientcmd.WriteToFile(*config, other))
	return other
}
