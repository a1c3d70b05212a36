package manifests_test

import (
	"os"
	"path/filepath"
	"slices"
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
	equal(t, "grace", int64(10), *pod.TerminationGracePeriodSeconds)
	directory, file, there := directoryOrCreate, fileOrCreate, corev1.HostPathDirectory
	equal(t, "volumes", []corev1.Volume{
		configMap("config", object[*corev1.ConfigMap](t, base(t)...).Name),
		hostPath("run", "/run/kube-ipvs", &directory),
		hostPath("xtables-lock", "/run/xtables.lock", &file),
		hostPath("lib-modules", "/lib/modules", nil),
		hostPath("sysctls", "/proc/sys/net", &there),
	}, pod.Volumes)
}

// restricted is what every container of ours that touches the kernel has: a list of
// capabilities and nothing else.
func restricted(capabilities ...corev1.Capability) *corev1.SecurityContext {
	yes, no, root := true, false, int64(0)
	return &corev1.SecurityContext{
		RunAsUser:                &root,
		Privileged:               &no,
		AllowPrivilegeEscalation: &no,
		ReadOnlyRootFilesystem:   &yes,
		SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: capabilities},
	}
}

// No container is privileged, whatever is installed, swapped or cleaned up; modules are
// loaded by whom that was asked of.
func TestPrivileges(t *testing.T) {
	agent := restricted("NET_ADMIN", "NET_RAW")
	pod := object[*appsv1.DaemonSet](t, base(t)...).Spec.Template.Spec
	equal(t, "init containers of the base", 0, len(pod.InitContainers))
	equal(t, "agent", agent, only(t, pod.Containers).SecurityContext)
	equal(t, "agent in place of kubeadm's", agent, only(t, merged(t, kubeadm, swap).Spec.Template.Spec.Containers).SecurityContext)
	cleanup := object[*appsv1.DaemonSet](t, "overlays/cleanup/daemonset.yaml").Spec.Template.Spec
	equal(t, "cleanup", agent, only(t, cleanup.InitContainers).SecurityContext)
	back := merged(t, kubeadm, "overlays/kubeadm-rollback/daemonset.yaml").Spec.Template.Spec
	equal(t, "cleanup before kube-proxy", agent, only(t, back.InitContainers).SecurityContext)
	loader := merged(t, "base/daemonset.yaml", loading).Spec.Template.Spec
	equal(t, "loader of modules", restricted("NET_ADMIN", "NET_RAW", "SYS_MODULE"), only(t, loader.InitContainers).SecurityContext)
	equal(t, "agent beside it", agent, only(t, loader.Containers).SecurityContext)
}

// An unprivileged pod finds sysctls where it may write them.
func TestSysctlsAreMounted(t *testing.T) {
	want := corev1.VolumeMount{Name: "sysctls", MountPath: "/host/proc/sys/net"}
	for file, pod := range map[string]corev1.PodSpec{
		"base":             object[*appsv1.DaemonSet](t, base(t)...).Spec.Template.Spec,
		"modules":          merged(t, "base/daemonset.yaml", loading).Spec.Template.Spec,
		"kubeadm":          merged(t, kubeadm, swap).Spec.Template.Spec,
		"kubeadm-rollback": merged(t, kubeadm, "overlays/kubeadm-rollback/daemonset.yaml").Spec.Template.Spec,
		"cleanup":          object[*appsv1.DaemonSet](t, "overlays/cleanup/daemonset.yaml").Spec.Template.Spec,
	} {
		for _, c := range append(pod.InitContainers, pod.Containers...) {
			ours := c.SecurityContext.Capabilities != nil && len(c.SecurityContext.Capabilities.Add) > 0
			there := func(m corev1.VolumeMount) bool { return cmp.Equal(m, want) }
			if ours && !slices.ContainsFunc(c.VolumeMounts, there) {
				t.Errorf("%s: %s cannot set sysctls: %v", file, c.Name, c.VolumeMounts)
			}
		}
		there := corev1.HostPathDirectory
		if !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return cmp.Equal(v, hostPath("sysctls", "/proc/sys/net", &there)) }) {
			t.Errorf("%s: the volume of sysctls is not there: %v", file, pod.Volumes)
		}
	}
}

// With our own profile the agent gets it, and nothing else changes.
func TestOwnSeccompProfile(t *testing.T) {
	before, after := merged(t, "base/daemonset.yaml"), merged(t, "base/daemonset.yaml", profiled)
	name := "kube-ipvs.json"
	equal(t, "profile", &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: &name},
		only(t, after.Spec.Template.Spec.Containers).SecurityContext.SeccompProfile)
	after.Spec.Template.Spec.Containers[0].SecurityContext.SeccompProfile = before.Spec.Template.Spec.Containers[0].SecurityContext.SeccompProfile
	equal(t, "everything else", before, after)
	if _, err := os.Stat(filepath.Join("seccomp", name)); err != nil {
		t.Error(err)
	}
}

// The profile allows by name, and nothing that reaches out of a container. That it is
// enough is shown by running the agent under it (TestRestrictedPod).
func TestSeccompProfile(t *testing.T) {
	var profile struct {
		DefaultAction   string   `json:"defaultAction"`
		DefaultErrnoRet int      `json:"defaultErrnoRet"`
		Architectures   []string `json:"architectures"`
		Syscalls        []struct {
			Names    []string         `json:"names"`
			Action   string           `json:"action"`
			ErrnoRet int              `json:"errnoRet"`
			Args     []map[string]any `json:"args"`
		} `json:"syscalls"`
	}
	strict(t, "profile", read(t, "seccomp/kube-ipvs.json"), &profile)
	equal(t, "what is not named", "SCMP_ACT_ERRNO", profile.DefaultAction)
	freely := profile.Syscalls[0]
	equal(t, "allowed", "SCMP_ACT_ALLOW", freely.Action)
	equal(t, "order of names", true, slices.IsSorted(freely.Names))
	for _, name := range []string{
		"add_key", "bpf", "chroot", "clone", "clone3", "delete_module", "finit_module", "init_module", "io_uring_setup", "kexec_load", "keyctl",
		"mknod", "mknodat", "mount", "move_mount", "open_by_handle_at", "perf_event_open", "personality", "pivot_root", "process_vm_readv",
		"process_vm_writev", "ptrace", "reboot", "setns", "setuid", "socket", "swapon", "umount2", "unshare", "userfaultfd",
	} {
		if slices.Contains(freely.Names, name) {
			t.Errorf("%s is allowed, whatever its arguments", name)
		}
	}
	for _, limited := range profile.Syscalls[1:] {
		if limited.Action == "SCMP_ACT_ALLOW" && len(limited.Args) != 1 {
			t.Errorf("%v is allowed with arguments %v", limited.Names, limited.Args)
		}
	}
}

// With the component that loads modules both containers see the same files, and the
// settings are the same.
func TestContainersAgree(t *testing.T) {
	pod := merged(t, "base/daemonset.yaml", loading).Spec.Template.Spec
	first, agent := only(t, pod.InitContainers), only(t, pod.Containers)
	equal(t, "mounts", []corev1.VolumeMount{
		{Name: "config", MountPath: "/var/lib/kube-proxy", ReadOnly: true},
		{Name: "run", MountPath: "/run/kube-ipvs"},
		{Name: "xtables-lock", MountPath: "/run/xtables.lock"},
		{Name: "lib-modules", MountPath: "/lib/modules", ReadOnly: true},
		{Name: "sysctls", MountPath: "/host/proc/sys/net"},
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
