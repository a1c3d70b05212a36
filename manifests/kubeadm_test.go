package manifests_test

import (
	"encoding/json"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"
)

// merged is a DaemonSet with patches on it, as kubectl patch and kustomize make it.
func merged(t *testing.T, file string, patches ...string) *appsv1.DaemonSet {
	t.Helper()
	text := read(t, file)
	now, err := yaml.YAMLToJSON(text)
	for _, file := range patches {
		var patch []byte
		if patch, err = yaml.YAMLToJSON(read(t, file)); err != nil {
			break
		}
		if now, err = strategicpatch.StrategicMergePatch(now, patch, appsv1.DaemonSet{}); err != nil {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	d := new(appsv1.DaemonSet)
	if err := json.Unmarshal(now, d); err != nil {
		t.Fatal(err)
	}
	return d
}

const (
	kubeadm  = "testdata/kubeadm.yaml" // the DaemonSet of kubeadm
	swap     = "overlays/kubeadm/daemonset.yaml"
	loading  = "components/modules/daemonset.yaml"
	profiled = "components/seccomp/daemonset.yaml"
)

// The patch changes what it names; of what it does not name nothing is lost.
func TestSwapKeepsWhatKubeadmMade(t *testing.T) {
	before, after := merged(t, kubeadm), merged(t, kubeadm, swap)
	was, is := only(t, before.Spec.Template.Spec.Containers), only(t, after.Spec.Template.Spec.Containers)
	equal(t, "image", "kube-ipvs:dev", is.Image)
	equal(t, "command", was.Command, is.Command)
	equal(t, "environment", was.Env, is.Env)

	run := corev1.VolumeMount{Name: "run", MountPath: "/run/kube-ipvs"}
	sysctls := corev1.VolumeMount{Name: "sysctls", MountPath: "/host/proc/sys/net"}
	equal(t, "mounts", asSet(append(was.VolumeMounts, run, sysctls)), asSet(is.VolumeMounts))

	// The rest of the pod is the same but for the volumes and the grace.
	directory, there := directoryOrCreate, corev1.HostPathDirectory
	volumes := append(before.Spec.Template.Spec.Volumes,
		hostPath("run", "/run/kube-ipvs", &directory), hostPath("sysctls", "/proc/sys/net", &there))
	equal(t, "volumes", asSet(volumes), asSet(after.Spec.Template.Spec.Volumes))
	after.Spec.Template.Spec.Containers = before.Spec.Template.Spec.Containers
	after.Spec.Template.Spec.Volumes = before.Spec.Template.Spec.Volumes
	after.Spec.Template.Spec.TerminationGracePeriodSeconds = nil
	equal(t, "everything else", before, after)
}

// asSet compares what is a map to Kubernetes without its order.
func asSet[T any](list []T) map[string]bool {
	set := map[string]bool{}
	for _, v := range list {
		text, err := json.Marshal(v)
		if err != nil {
			panic(err) // API types always can be
		}
		set[string(text)] = true
	}
	return set
}

// On the way back what only kube-ipvs has goes before kube-proxy starts.
func TestHandOverBeforeStart(t *testing.T) {
	pod := merged(t, kubeadm, "overlays/kubeadm-rollback/daemonset.yaml").Spec.Template.Spec
	clean := only(t, pod.InitContainers)
	equal(t, "agent", "kube-proxy:v1.37.2", only(t, pod.Containers).Image)
	equal(t, "cleaner", "kube-ipvs:dev", clean.Image)
	equal(t, "command", []string{"/usr/local/bin/kube-ipvs", "cleanup", "--for=ipvs"}, clean.Command)
	volumes := map[string]bool{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = true
	}
	for _, m := range clean.VolumeMounts {
		if !volumes[m.Name] {
			t.Errorf("%s is mounted and no volume", m.Name)
		}
	}
}
