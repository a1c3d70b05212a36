// Package manifests_test holds the manifests together: each is what Kubernetes
// understands, and they agree with one another and with the program.
package manifests_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// kustomization is what the manifests use of kustomize.
type kustomization struct {
	metav1.TypeMeta `json:",inline"`
	Resources       []string                `json:"resources"`
	Patches         []struct{ Path string } `json:"patches"`
}

// kinds makes an empty object of each kind that a manifest may be.
var kinds = map[string]func() any{
	"v1 ServiceAccount":  func() any { return new(corev1.ServiceAccount) },
	"v1 ConfigMap":       func() any { return new(corev1.ConfigMap) },
	"v1 Service":         func() any { return new(corev1.Service) },
	"apps/v1 Deployment": func() any { return new(appsv1.Deployment) },
	"apps/v1 DaemonSet":  func() any { return new(appsv1.DaemonSet) },
	"rbac.authorization.k8s.io/v1 ClusterRole":        func() any { return new(rbacv1.ClusterRole) },
	"rbac.authorization.k8s.io/v1 ClusterRoleBinding": func() any { return new(rbacv1.ClusterRoleBinding) },
	"rbac.authorization.k8s.io/v1 Role":               func() any { return new(rbacv1.Role) },
	"rbac.authorization.k8s.io/v1 RoleBinding":        func() any { return new(rbacv1.RoleBinding) },
	"monitoring.coreos.com/v1 PodMonitor":             func() any { return new(monitored) },
	"monitoring.coreos.com/v1 PrometheusRule":         func() any { return new(monitored) },
	"kustomize.config.k8s.io/v1beta1 Kustomization":   func() any { return new(kustomization) },
	"kustomize.config.k8s.io/v1alpha1 Component":      func() any { return new(kustomization) },
}

// documents splits a YAML file. A part with only comments is no document.
func documents(t *testing.T, text []byte) [][]byte {
	t.Helper()
	var all [][]byte
	for r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		doc, err := r.Read()
		switch {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatal(err)
		}
		var content any
		if err := yaml.Unmarshal(doc, &content); err != nil {
			t.Fatal(err)
		}
		if content != nil {
			all = append(all, doc)
		}
	}
}

// strict decodes a document into an object: a field that is unknown or there twice
// is a mistake.
func strict(t *testing.T, where string, doc []byte, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict(doc, into); err != nil {
		t.Errorf("%s: %v", where, err)
	}
}

// objects reads files of manifests, by "Kind name".
func objects(t *testing.T, files ...string) map[string]any {
	t.Helper()
	all := map[string]any{}
	for _, file := range files {
		for _, doc := range documents(t, read(t, file)) {
			var head metav1.PartialObjectMetadata
			if err := yaml.Unmarshal(doc, &head); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			empty := kinds[head.APIVersion+" "+head.Kind]
			if empty == nil {
				t.Errorf("%s: no manifest is to be a %s of %s", file, head.Kind, head.APIVersion)
				continue
			}
			key := head.Kind + " " + head.Name
			if all[key] != nil {
				t.Errorf("%s: %s is there twice", file, key)
			}
			all[key] = empty()
			strict(t, file, doc, all[key])
		}
	}
	return all
}

// object is the one of a type that the files hold.
func object[T any](t *testing.T, files ...string) T {
	t.Helper()
	var found []T
	for _, o := range objects(t, files...) {
		if is, ok := o.(T); ok {
			found = append(found, is)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d objects of this type in %v, want 1", len(found), files)
	}
	return found[0]
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// base lists the files of the base, as its kustomization does.
func base(t *testing.T) []string {
	t.Helper()
	var files []string
	for _, name := range object[*kustomization](t, "base/kustomization.yaml").Resources {
		files = append(files, filepath.Join("base", name))
	}
	return files
}

// notManifests are directories whose YAML other programs read: Prometheus (see
// internal/telemetry), nfpm (see e2e/release), helm
// (see chart_test.go).
var notManifests = []string{"testdata", "monitoring", "package", "chart"}

// manifests lists every file of ours that kubectl or kustomize reads.
func manifests(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if d.IsDir() && slices.Contains(notManifests, d.Name()) {
			return fs.SkipDir
		}
		if strings.HasSuffix(path, ".yaml") {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) < 10 {
		t.Fatalf("%d manifests found, error %v", len(files), err)
	}
	return files
}
