package manifests_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

func TestEveryManifestIsWhatKubernetesUnderstands(t *testing.T) {
	for _, file := range manifests(t) {
		if len(objects(t, file)) == 0 {
			t.Errorf("%s is empty", file)
		}
	}
}

// Every manifest is used by a kustomization, and what a kustomization uses is there.
func TestKustomizationsAreComplete(t *testing.T) {
	used := map[string]bool{"install.yaml": true, "dsr-backend.yaml": true}
	for _, file := range manifests(t) {
		if filepath.Base(file) != "kustomization.yaml" {
			continue
		}
		used[file] = true
		k := object[*kustomization](t, file)
		for _, name := range k.Resources {
			used[filepath.Join(filepath.Dir(file), name)] = true
		}
		for _, patch := range k.Patches {
			used[filepath.Join(filepath.Dir(file), patch.Path)] = true
		}
	}
	for file := range used {
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
	for _, file := range manifests(t) {
		if !used[file] {
			t.Errorf("%s is in no kustomization", file)
		}
	}
}

// The example of direct server return is one Service of which the pods have the address,
// on the port that the Service has.
func TestDirectReturnFitsTogether(t *testing.T) {
	svc := object[*corev1.Service](t, "dsr-backend.yaml")
	pod := object[*appsv1.Deployment](t, "dsr-backend.yaml").Spec.Template
	if got := svc.Annotations["kube-ipvs.io/forward"]; got != "tunnel" {
		t.Errorf("forward is %q", got)
	}
	if diff := cmp.Diff(svc.Spec.Selector, pod.Labels); diff != "" {
		t.Errorf("labels (-selector +pod):\n%s", diff)
	}
	if diff := cmp.Diff(strings.Join(svc.Spec.ExternalIPs, " "), pod.Spec.InitContainers[0].Env[0].Value); diff != "" {
		t.Errorf("addresses (-Service +pod):\n%s", diff)
	}
	port := svc.Spec.Ports[0]
	if listens := pod.Spec.Containers[0].Ports[0].ContainerPort; port.Port != listens || port.TargetPort.IntVal != listens {
		t.Errorf("port %d of the Service leads to %s, the pod listens on %d", port.Port, port.TargetPort.String(), listens)
	}
}

func TestInstallIsTheBase(t *testing.T) {
	if diff := cmp.Diff(objects(t, base(t)...), objects(t, "install.yaml")); diff != "" {
		t.Errorf("install.yaml is out of date, run make manifests (-base +install.yaml):\n%s", diff)
	}
}

// The requests of the program to the API server need exactly these rights.
func TestRightsAreTheSmallest(t *testing.T) {
	want := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
	}
	role := object[*rbacv1.ClusterRole](t, base(t)...)
	if diff := cmp.Diff(want, role.Rules); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
}

func TestRightsAreTheAgents(t *testing.T) {
	account := object[*corev1.ServiceAccount](t, base(t)...)
	role := object[*rbacv1.ClusterRole](t, base(t)...)
	binding := object[*rbacv1.ClusterRoleBinding](t, base(t)...)
	pod := object[*appsv1.DaemonSet](t, base(t)...).Spec.Template.Spec
	if diff := cmp.Diff(rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name}, binding.RoleRef); diff != "" {
		t.Errorf("role (-want +got):\n%s", diff)
	}
	want := []rbacv1.Subject{{Kind: "ServiceAccount", Name: account.Name, Namespace: account.Namespace}}
	if diff := cmp.Diff(want, binding.Subjects); diff != "" {
		t.Errorf("subjects (-want +got):\n%s", diff)
	}
	if pod.ServiceAccountName != account.Name {
		t.Errorf("the pods are %s, the rights are those of %s", pod.ServiceAccountName, account.Name)
	}
}

// The image has one name everywhere, which kustomize or sed can replace, and make
// image builds it under that name.
func TestImageIsTheSameEverywhere(t *testing.T) {
	m := regexp.MustCompile(`(?m)^IMAGE +\?= (\S+)$`).FindSubmatch(read(t, "../Makefile"))
	if m == nil {
		t.Fatal("the Makefile does not say what make image builds")
	}
	const previous = "kube-proxy:old" // a kube-proxy that removes its own rules
	seen := 0
	for _, file := range manifests(t) {
		for key, o := range objects(t, file) {
			d, ok := o.(*appsv1.DaemonSet)
			if !ok {
				continue
			}
			pod := d.Spec.Template.Spec
			for _, c := range append(pod.InitContainers, pod.Containers...) {
				seen++
				patched := c.Image == "" && file == profiled // the image is the base's
				if c.Image != string(m[1]) && c.Image != previous && !patched {
					t.Errorf("%s: %s: %s is %q, make image builds %q", file, key, c.Name, c.Image, m[1])
				}
			}
		}
	}
	if seen < 8 {
		t.Errorf("%d containers looked at, want at least 8", seen)
	}
}

// Paths in the documentation are those of files.
func TestReadmeNamesFilesThatExist(t *testing.T) {
	paths := regexp.MustCompile(`\bmanifests/[a-z][A-Za-z./-]*[a-z]`).FindAllString(string(read(t, "README.md")), -1)
	for _, path := range paths {
		if _, err := os.Stat(strings.TrimPrefix(path, "manifests/")); err != nil {
			t.Error(err)
		}
	}
	if len(paths) < 8 {
		t.Errorf("%d paths found, want at least 8", len(paths))
	}
}
