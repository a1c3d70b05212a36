package kube

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/e2e/kube/cluster"
)

// TestManifestsAccepted gives every manifest to the API server, which checks it as if it was to be kept, and warns of nothing.
// The overlays change what kubeadm left, which is therefore there, as manifests/README.md has it.
func TestManifestsAccepted(t *testing.T) {
	c := start(t, cluster.Options{})
	manifests, err := filepath.Abs("../../manifests")
	if err != nil {
		t.Fatal(err)
	}
	kubeadm, err := os.ReadFile(filepath.Join(manifests, "testdata", "kubeadm.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Apply(t.Context(), string(kubeadm)); err != nil {
		t.Fatal(err)
	}
	dry := []string{"--dry-run=server", "--output=name", "--warnings-as-errors"}
	tests := []struct {
		name  string
		args  []string
		wants []string
	}{
		{"install.yaml", []string{"apply", "--filename=" + filepath.Join(manifests, "install.yaml")}, ours},
		{"base", []string{"apply", "--kustomize=" + filepath.Join(manifests, "base")}, ours},
	}
	overlays, err := filepath.Glob(filepath.Join(manifests, "overlays", "*"))
	if err != nil || len(overlays) < 3 {
		t.Fatalf("overlays %v, error %v", overlays, err)
	}
	for _, dir := range overlays {
		name, wants := filepath.Base(dir), theirs
		if name == "cleanup" {
			wants = []string{"daemonset.apps/kube-ipvs-cleanup"}
		}
		tests = append(tests, struct {
			name  string
			args  []string
			wants []string
		}{name, []string{"apply", "--server-side", "--force-conflicts", "--field-manager=kube-ipvs", "--kustomize=" + dir}, wants})
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out := kubectl(t, c, append(tt.args, dry...)...)
			for _, want := range tt.wants {
				if !strings.Contains(out, want) {
					t.Errorf("%s was not accepted, only\n%s", want, out)
				}
			}
		})
	}
}

// Objects of an installation beside kube-proxy, the DaemonSet last, and of one in its place, by the names that kubectl prints.
var (
	ours = []string{
		"serviceaccount/kube-ipvs", "clusterrole.rbac.authorization.k8s.io/kube-ipvs", "clusterrolebinding.rbac.authorization.k8s.io/kube-ipvs",
		"configmap/kube-ipvs", "daemonset.apps/kube-ipvs",
	}
	theirs = []string{"daemonset.apps/kube-proxy"}
)
