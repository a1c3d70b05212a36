package kube

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/e2e/kube/cluster"
)

// TestManifestsAccepted gives every manifest to the API server, which checks it as if it was to be kept, and warns of nothing.
// The overlays change what kubeadm left, which is therefore there, as manifests/docs/migrate.md has it.
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
	knowMonitoring(t, c)
	dry := []string{"--dry-run=server", "--output=name", "--warnings-as-errors"}
	tests := []struct {
		name  string
		args  []string
		wants []string
	}{
		{"install.yaml", []string{"apply", "--filename=" + filepath.Join(manifests, "install.yaml")}, ours},
		{"base", []string{"apply", "--kustomize=" + filepath.Join(manifests, "base")}, ours},
		{"base with all components", []string{"apply", "--kustomize=" + composed(t, manifests)}, ours},
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

// operatorModule is Prometheus' operator. Its files define the kinds that manifests/components/monitoring has.
const operatorModule = "github.com/prometheus-operator/prometheus-operator@v0.85.0"

// knowMonitoring gives the API server the kinds of Prometheus' operator.
func knowMonitoring(t *testing.T, c cluster.Control) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", operatorModule).Output()
	var module struct{ Dir, Error string }
	if decodeErr := json.Unmarshal(out, &module); decodeErr != nil || module.Error != "" {
		t.Fatalf("download %s: %v %v %s", operatorModule, err, decodeErr, module.Error)
	}
	dir := filepath.Join(module.Dir, "example", "prometheus-operator-crd")
	for _, kind := range []string{"podmonitors", "prometheusrules"} {
		kubectl(t, c, "create", "--filename="+filepath.Join(dir, "monitoring.coreos.com_"+kind+".yaml"))
		kubectl(t, c, "wait", "--for=condition=Established", "crd/"+kind+".monitoring.coreos.com")
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

// composed is a kustomization of a user: the base with every component.
func composed(t *testing.T, manifests string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	components, err := filepath.Glob(filepath.Join(manifests, "components", "*"))
	if err != nil || len(components) < 2 {
		t.Fatalf("components %v, error %v", components, err)
	}
	text := "resources: [" + relative(t, dir, filepath.Join(manifests, "base")) + "]\ncomponents:\n"
	for _, c := range components {
		text += "- " + relative(t, dir, c) + "\n"
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// relative is a path as kustomize wants it.
func relative(t *testing.T, from, to string) string {
	t.Helper()
	path, err := filepath.Rel(from, to)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
