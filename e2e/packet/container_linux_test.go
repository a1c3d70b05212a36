package packet

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
	"github.com/kube-ipvs/kube-ipvs/internal/agent"
)

// TestRestrictedPod runs the agent as the DaemonSet runs its container, with an OCI runtime: with
// its capabilities, a read-only root file system, and only the system calls of manifests/seccomp.
// It has to serve, to follow changes, to set sysctls, and to clean up.
func TestRestrictedPod(t *testing.T) {
	t.Parallel()
	for _, iptables := range []string{"nft", "legacy"} {
		t.Run(iptables, func(t *testing.T) {
			w := newWorld(t)
			w.node.sysctl(t, "ipv4/vs/conntrack", "0")
			w.node.sysctl(t, "ipv4/vs/expire_nodest_conn", "0")
			w.restrictedPod(t, iptables, "--ipvs-strict-arp", "--ipvs-tcp-timeout", "900s")
		})
	}
}

// TestIPTablesRestrictedPod is the same without IPVS.
func TestIPTablesRestrictedPod(t *testing.T) {
	t.Parallel()
	for _, iptables := range []string{"nft", "legacy"} {
		t.Run(iptables, func(t *testing.T) { buildWorld(t).restrictedPod(t, iptables, "--proxy-mode", "iptables") })
	}
}

func (w *world) restrictedPod(t *testing.T, iptables string, flags ...string) {
	t.Helper()
	before, sysctls := w.held(t, iptables), w.sysctls(t)
	web := w.web(t)
	web.nodePort, web.lb = 30080, pair{"198.51.100.20", "2001:db8:51::20"}
	web.ranges, web.affinity = []string{"203.0.113.0/24", "2001:db8::/64"}, 60
	// The kubelet sets the score of a pod, and here no kubelet runs.
	flags = append(flags, "--cluster-cidr", clusters, "--iptables-backend", iptables, "--oom-score-adj", "0")
	n := newAgent(t, w.node, flags...)
	n.writeFile(t, "nodes.yaml", w.nodes())
	n.write(t, web)
	c := n.contain(t)
	n.launch(t, c.commandLine(t, n.flags))
	n.settle(t, "be ready", func(s agent.Status) bool { return s.Ready && s.Failures == 0 })
	mode := n.mode(t)
	if set := w.sysctls(t)["sysctls"]; mode == "ipvs" && !slices.Contains(set, "net.ipv4.vs.conntrack = 1") {
		t.Errorf("sysctls are not set: %v", set)
	}
	web.asked(t, w)

	// The removed backend deletes rules, set entries, a destination and flows of UDP.
	web.backends = endpoints(w.pod2)
	n.edit(t, func() { n.write(t, web) })
	web.asked(t, w)
	n.lacksNothing(t)
	n.listens(t, filepath.Join(c.mount("run").MountPath, "agent.sock"))
	if _, err := n.stop(t); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
	check := c.commandLine(t, []string{"check", "--run-dir", c.run, "--iptables-backend", iptables, "--proxy-mode", mode})
	if out, err := n.try(check[0], check[1:]...); err != nil {
		t.Errorf("a node on which the agent ran is not fit for it: %v\n%s", err, out)
	}
	clean := c.commandLine(t, []string{"cleanup", "--run-dir", c.run, "--iptables-backend", iptables})
	out, err := n.try(clean[0], clean[1:]...)
	t.Logf("cleanup:\n%s", out)
	if err != nil {
		t.Error(err)
	}
	same(t, "kernel after cleanup", before, w.held(t, iptables))
	same(t, "sysctls after cleanup", sysctls, w.sysctls(t))
}

// held is what the node's kernel holds of what an agent writes. The links of a new node come up, and get addresses, in their time.
func (w *world) held(t *testing.T, iptables string) view {
	t.Helper()
	look := w.node.lookAtRules
	if kernelHasIPVS() {
		look = w.node.look
	}
	v := look(t, iptables)
	ours := func(line string) bool { return !strings.Contains(line, "kube-ipvs0") }
	for _, kind := range []string{"links", "addresses"} {
		v[kind] = slices.DeleteFunc(v[kind], ours)
	}
	return v
}

// TestRestrictedPodGetsModules: the kernel loads IPVS and its schedulers when the agent asks for them, although the agent may load
// nothing itself.
func TestRestrictedPodGetsModules(t *testing.T) {
	needKernel(t)
	if _, err := os.Stat("/sys/module/ip_vs"); err == nil {
		t.Skip("this kernel has IPVS already: the stage contracts of make test removes the modules first")
	}
	w := buildWorld(t)
	n := newAgent(t, w.node, "--cluster-cidr", clusters, "--oom-score-adj", "0", "--ipvs-scheduler", "wlc", "--on-missing-ipvs", "fail")
	web := w.web(t)
	n.write(t, web)
	n.launch(t, n.contain(t).commandLine(t, n.flags))
	n.inMode(t, "ipvs")
	for _, module := range []string{"ip_vs", "ip_vs_wlc"} {
		if _, err := os.Stat("/sys/module/" + module); err != nil {
			t.Error(err)
		}
	}
	if got := w.pod3.ask(backend.TCP, web.vip.v4, 80, 3); got.OK != 3 {
		t.Error(text(got))
	}
}

// asked expects answers on every address of the Service, from where it is reached.
func (s service) asked(t *testing.T, w *world) {
	t.Helper()
	for _, family := range families {
		for _, to := range []struct {
			from *pod
			addr string
			port int
		}{{w.pod3, s.vip.of(family), 80}, {w.outside, s.lb.of(family), 80}, {w.outside, extAddr.of(family), s.nodePort}} {
			for _, proto := range []backend.Proto{backend.TCP, backend.UDP} {
				if got := to.from.ask(proto, to.addr, to.port, 2); got.OK != 2 {
					t.Errorf("%s to %s:%d by %s\n%s", to.from.name, to.addr, to.port, proto, text(got))
				}
			}
		}
	}
}

// lacksNothing checks in the log that the kernel refused nothing, with known exceptions: modules,
// which the kernel loads by itself, and the hash table of connection tracking.
func (n *proxy) lacksNothing(t *testing.T) {
	t.Helper()
	known := []string{"module", "nf_conntrack hashsize", "nf_conntrack_max"}
	for line := range strings.Lines(n.output.String()) {
		refused := func(word string) bool { return strings.Contains(line, word) }
		if slices.ContainsFunc([]string{"not permitted", "denied", "read-only", "refused"}, refused) && !slices.ContainsFunc(known, refused) {
			t.Errorf("the agent lacks something: %s", line)
		}
	}
}

// container is an agent's, as the DaemonSet of manifests/base makes it.
type container struct {
	manifests, run string
	root           string // root of the OCI runtime's own state
	pod            corev1.PodSpec
	seccomp        json.RawMessage
	dir            string
	bundles        int
}

// ociPaths are what a runtime hides from a container, or lets it only read (the defaults of the CRI).
var ociPaths = object{
	"maskedPaths":   []string{"/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/sched_debug", "/proc/scsi", "/sys/firmware"},
	"readonlyPaths": []string{"/proc/asound", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
}

// contain prepares a container for the agent. Files that the runtime leaves are removed with the
// test.
func (n *proxy) contain(t *testing.T) *container {
	t.Helper()
	if _, err := n.try("crun", "--version"); err != nil {
		t.Fatalf("no OCI runtime; e2e/install.sh brings it: %v", err)
	}
	value := func(flag string) string { return n.flags[slices.Index(n.flags, flag)+1] }
	c := &container{manifests: value("--source-dir"), run: value("--run-dir"), dir: t.TempDir(), root: t.TempDir()}
	text, err := os.ReadFile("../../manifests/base/daemonset.yaml")
	n.must(t, err)
	var d appsv1.DaemonSet
	n.must(t, yaml.UnmarshalStrict(text, &d))
	c.pod = d.Spec.Template.Spec
	c.seccomp, err = os.ReadFile("../../manifests/seccomp/kube-ipvs.json")
	n.must(t, err)
	n.must(t, os.WriteFile(filepath.Join(c.dir, "xtables.lock"), nil, 0o600))
	t.Cleanup(func() { c.end(t, n) })
	return c
}

// end kills the processes of containers: a runtime that is killed leaves its children running.
func (c *container) end(t *testing.T, n *proxy) {
	t.Helper()
	left, err := os.ReadDir(c.root)
	n.must(t, err)
	for _, id := range left {
		if _, err := n.try("crun", "--root", c.root, "delete", "--force", id.Name()); err != nil {
			t.Error(err)
		}
	}
}

// commandLine runs the program in a new container. The runtime looks at control groups even where it makes none, and knows
// not every arrangement of them, so it sees an empty directory.
func (c *container) commandLine(t *testing.T, args []string) []string {
	t.Helper()
	c.bundles++
	bundle := filepath.Join(c.dir, strconv.Itoa(c.bundles))
	c.write(t, bundle, c.inside(args))
	const script = `mount -t tmpfs none /sys/fs/cgroup
exec crun --root "$1" --cgroup-manager=disabled run --no-pivot --bundle "$2" "${2##*/}-$$"`
	return []string{"unshare", "-m", "sh", "-ec", script, "sh", c.root, bundle}
}

// inside is what a command line is in the container, where directories have other names.
func (c *container) inside(args []string) []string {
	args = slices.Clone(args)
	for i, arg := range args {
		switch arg {
		case c.manifests:
			args[i] = c.mount("config").MountPath
		case c.run:
			args[i] = c.mount("run").MountPath
		}
	}
	return args
}

// agent is the container of the agent.
func (c *container) agent() corev1.Container { return c.pod.Containers[0] }

func (c *container) mount(name string) corev1.VolumeMount {
	all := c.agent().VolumeMounts
	return all[slices.IndexFunc(all, func(m corev1.VolumeMount) bool { return m.Name == name })]
}

// write makes a bundle: the settings, and a root of the host's programs and libraries.
func (c *container) write(t *testing.T, bundle string, args []string) {
	t.Helper()
	secure := c.agent().SecurityContext
	caps := []string{}
	for _, name := range secure.Capabilities.Add {
		caps = append(caps, "CAP_"+string(name))
	}
	root := filepath.Join(bundle, "rootfs")
	linux := object{"namespaces": []object{{"type": "mount"}, {"type": "pid"}, {"type": "ipc"}}, "seccomp": c.seccomp}
	maps.Copy(linux, ociPaths)
	text, err := json.Marshal(object{
		"ociVersion": "1.0.2",
		"root":       object{"path": "rootfs", "readonly": *secure.ReadOnlyRootFilesystem},
		"process": object{
			"args": append(slices.Clone(c.agent().Command), args...), "cwd": "/", "user": object{"uid": *secure.RunAsUser, "gid": 0},
			"env":             []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			"capabilities":    object{"bounding": caps, "effective": caps, "permitted": caps},
			"noNewPrivileges": !*secure.AllowPrivilegeEscalation,
		},
		"mounts": append(c.image(t, root), c.volumes(t)...),
		"linux":  linux,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), text, 0o644); err != nil {
		t.Fatal(err)
	}
}

// image is what a container image has, made of the host's directories, and what every runtime mounts.
func (c *container) image(t *testing.T, root string) []object {
	t.Helper()
	mounts := []object{
		{"destination": "/proc", "type": "proc", "source": "proc"},
		{"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": []string{"nosuid", "mode=755", "size=65536k"}},
		{"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": []string{"ro"}},
		bound("/sys", "/sys", "ro"), bound(program(), c.agent().Command[0], "ro"),
	}
	for _, dir := range []string{"/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib64", "/usr/share", "/etc", "/bin", "/sbin", "/lib", "/lib64"} {
		place := filepath.Join(root, dir)
		if err := os.MkdirAll(filepath.Dir(place), 0o755); err != nil {
			t.Fatal(err)
		}
		target, err := os.Readlink(dir)
		switch {
		case err == nil: // /bin is often usr/bin
			if err := os.Symlink(target, place); err != nil {
				t.Fatal(err)
			}
		case errors.Is(err, fs.ErrNotExist):
		default:
			mounts = append(mounts, bound(dir, dir, "ro"))
		}
	}
	return mounts
}

// volumes are those of the DaemonSet: manifests stand for its ConfigMap, and the lock and the run directory are the test's.
func (c *container) volumes(t *testing.T) []object {
	t.Helper()
	ours := map[string]string{"config": c.manifests, "run": c.run, "xtables-lock": filepath.Join(c.dir, "xtables.lock")}
	var mounts []object
	for _, v := range c.pod.Volumes {
		source, ok := ours[v.Name]
		if !ok {
			source = v.HostPath.Path
		}
		m, mode := c.mount(v.Name), "rw"
		if m.ReadOnly {
			mode = "ro"
		}
		if _, err := os.Stat(source); err != nil && v.Name == "lib-modules" {
			continue // a kernel without modules
		}
		mounts = append(mounts, bound(source, m.MountPath, mode))
	}
	return mounts
}

func bound(source, destination, mode string) object {
	return object{"destination": destination, "type": "bind", "source": source, "options": []string{"rbind", mode}}
}
