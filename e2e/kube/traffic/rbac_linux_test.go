package traffic

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-ipvs/kube-ipvs/e2e/kube/cluster"
)

// manifest reads one of the files of manifests/.
func manifest(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(os.Getenv("KUBE_IPVS_SRC"), "manifests", name))
	must(t, err)
	return string(text)
}

// TestRBAC runs the agent as the ServiceAccount of the manifests, with its rights and no others.
func TestRBAC(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := newAPI(t, w, cluster.Options{})
	a.createNodes(t)
	must(t, a.Apply(t.Context(), manifest(t, "base/rbac.yaml")))
	token, err := a.Token(t.Context(), "kube-system", "kube-ipvs")
	must(t, err)
	web := a.create(t, service("web"), backends...)
	a.create(t, service("clash", func(s *corev1.Service) { s.Spec.ExternalIPs = []string{otherNodeAddr} }), backends[0])
	p := newAgent(t, w, a.kubeconfigFor(t, cluster.Identity{Token: token}))
	p.start(t)
	wantAnswers(t, "as a ServiceAccount", w.pod, vip(web), 8)
	later := a.create(t, service("later"), backends[1])
	answersSoon(t, w, later)
	starting := a.wantEvent(t, "Node", thisNode, "Starting")
	if want := "kube-proxy"; starting.ReportingController != want {
		t.Errorf("the Event is reported by %q, want %q", starting.ReportingController, want)
	}
	clash := a.wantEvent(t, "Service", "clash", "VIPConflictsWithNode")
	if clash.Type != corev1.EventTypeWarning || !strings.Contains(clash.Note, otherNodeAddr) {
		t.Errorf("the Event is %s %q, want a Warning about %s", clash.Type, clash.Note, otherNodeAddr)
	}
	for line := range strings.Lines(p.output.String()) {
		if strings.Contains(strings.ToLower(line), "forbidden") {
			t.Errorf("the rights are not enough: %s", line)
		}
	}
}
