package manifests_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

const (
	directoryOrCreate = corev1.HostPathDirectoryOrCreate
	fileOrCreate      = corev1.HostPathFileOrCreate
)

func hostPath(name, path string, kind *corev1.HostPathType) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: kind}}}
}

func configMap(name, of string) corev1.Volume {
	source := &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: of}}
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{ConfigMap: source}}
}

// only is the one container of a list.
func only(t *testing.T, list []corev1.Container) corev1.Container {
	t.Helper()
	if len(list) != 1 {
		t.Fatalf("%d containers, want 1", len(list))
	}
	return list[0]
}

func equal(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// The pod is where a node's Services depend on nothing but the node.
func TestPod(t *testing.T) {
	d := object[*appsv1.DaemonSet](t, base(t)...)
	pod := d.Spec.Template.Spec
	equal(t, "name", "kube-system/kube-ipvs", d.Namespace+"/"+d.Name)
	equal(t, "update", appsv1.RollingUpdateDaemonSetStrategyType, d.Spec.UpdateStrategy.Type)
	equal(t, "selected labels", d.Spec.Selector.MatchLabels["k8s-app"], d.Spec.Template.Labels["k8s-app"])
	equal(t, "network of the host", true, pod.HostNetwork)
	equal(t, "DNS of the host", corev1.DNSDefault, pod.DNSPolicy)
	equal(t, "priority", "system-node-critical", pod.PriorityClassName)
	equal(t, "tolerations", []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, pod.Tolerations)
	equal(t, "nodes", map[string]string{"kubernetes.io/os": "linux"}, pod.NodeSelector)
	// SIGTERM ends it within 2 s, and nothing is gained by waiting longer.
	equal(t, "grace", int64(5), *pod.TerminationGracePeriodSeconds)
	directory, file := directoryOrCreate, fileOrCreate
	equal(t, "volumes", []corev1.Volume{
		configMap("config", object[*corev1.ConfigMap](t, base(t)...).Name),
		hostPath("run", "/run/kube-ipvs", &directory),
		hostPath("xtables-lock", "/run/xtables.lock", &file),
		hostPath("lib-modules", "/lib/modules", nil),
	}, pod.Volumes)
}

// Only the container that ends before the agent starts has privileges.
func TestPrivileges(t *testing.T) {
	pod := object[*appsv1.DaemonSet](t, base(t)...).Spec.Template.Spec
	yes, no, root := true, false, int64(0)
	equal(t, "init", &corev1.SecurityContext{Privileged: &yes, ReadOnlyRootFilesystem: &yes}, only(t, pod.InitContainers).SecurityContext)
	equal(t, "agent", &corev1.SecurityContext{
		RunAsUser:                &root,
		AllowPrivilegeEscalation: &no,
		ReadOnlyRootFilesystem:   &yes,
		SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_ADMIN", "NET_RAW"}},
	}, only(t, pod.Containers).SecurityContext)
}

// Both containers see the same files, and the settings are the same.
func TestContainersAgree(t *testing.T) {
	pod := object[*appsv1.DaemonSet](t, base(t)...).Spec.Template.Spec
	first, agent := only(t, pod.InitContainers), only(t, pod.Containers)
	equal(t, "mounts", []corev1.VolumeMount{
		{Name: "config", MountPath: "/var/lib/kube-proxy", ReadOnly: true},
		{Name: "run", MountPath: "/run/kube-ipvs"},
		{Name: "xtables-lock", MountPath: "/run/xtables.lock"},
		{Name: "lib-modules", MountPath: "/lib/modules", ReadOnly: true},
	}, agent.VolumeMounts)
	equal(t, "mounts of init", agent.VolumeMounts, first.VolumeMounts)
	equal(t, "arguments", []string{"--config=/var/lib/kube-proxy/config.conf", "--hostname-override=$(NODE_NAME)"}, agent.Args)
	equal(t, "arguments of init", append(agent.Args[:len(agent.Args):len(agent.Args)], "--init-only"), first.Args)
	node := &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}
	equal(t, "environment", []corev1.EnvVar{{Name: "NODE_NAME", ValueFrom: node}}, agent.Env)
	equal(t, "environment of init", agent.Env, first.Env)
}

// An API server that is away makes the pod unready, and restarts nothing.
func TestProbes(t *testing.T) {
	for file, name := range map[string]string{"base/daemonset.yaml": "kube-ipvs", "overlays/kubeadm/daemonset.yaml": "kube-proxy"} {
		t.Run(name, func(t *testing.T) {
			c := only(t, object[*appsv1.DaemonSet](t, file).Spec.Template.Spec.Containers)
			equal(t, "container", name, c.Name)
			for what, probe := range map[string]*corev1.Probe{"/livez": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
				equal(t, what, what, probe.HTTPGet.Path)
				equal(t, what, 10256, probe.HTTPGet.Port.IntValue())
			}
			equal(t, "startup asks what liveness asks", c.LivenessProbe.HTTPGet, c.StartupProbe.HTTPGet)
			if patience := c.StartupProbe.PeriodSeconds * c.StartupProbe.FailureThreshold; patience < 300 {
				t.Errorf("%d s to start, want 300 at least: a node may be busy booting", patience)
			}
			if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() || c.Resources.Limits != nil {
				t.Errorf("resources %v: requests are wanted, and no limits", c.Resources)
			}
		})
	}
}
