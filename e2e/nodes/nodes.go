package main

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/e2e/kube/cluster"
)

var (
	//go:embed node.sh
	nodeScript []byte
	//go:embed inside.sh
	insideScript []byte
)

// Kernels of nodes, as -accel of vmrun has them.
const (
	fullKernel        = "uml"
	kernelWithoutIPVS = "uml-noipvs"
)

// readyLimit bounds the boot of all nodes, and every wait for pods: a busy machine takes minutes.
const readyLimit = 5 * time.Minute

// snapshotter is native, which copies: a layer in memory has no attributes in this kernel, and overlays of containers need them.
const snapshotter = "native"

func nodeName(i int) string { return "node" + strconv.Itoa(i) }

// startNodes boots all nodes side by side, and returns when each is Ready.
func (w *world) startNodes(ctx context.Context) error {
	begin := time.Now()
	for i := 1; i <= w.o.nodes; i++ {
		if err := w.bootNode(ctx, i); err != nil {
			return err
		}
	}
	if err := until(ctx, "nodes are Ready", w.nodesReady); err != nil {
		return fmt.Errorf("%w\n%s", err, w.logs())
	}
	w.ready = time.Since(begin)
	w.say("%d nodes are Ready after %.0fs", w.o.nodes, w.ready.Seconds())
	return nil
}

// bootNode registers a Node, whose pod networks are known before its kubelet is, and boots the guest.
func (w *world) bootNode(ctx context.Context, i int) error {
	name := nodeName(i)
	own := filepath.Join(w.o.dir, name)
	who := cluster.Identity{User: "system:node:" + name, Groups: []string{"system:nodes"}}
	config, err := w.plane.Kubeconfig(ctx, who)
	if err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(own, "run"), 0o755), os.WriteFile(filepath.Join(own, "kubeconfig"), config, 0o600)); err != nil {
		return err
	}
	object := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Node", "metadata": {"name": %q}, "spec": {"podCIDR": "10.244.%d.0/24", "podCIDRs": ["10.244.%[2]d.0/24", "fd00:10:244:%[2]d::/64"]}}`, name, i)
	if err := w.plane.Apply(ctx, object); err != nil {
		return err
	}
	return w.boot(i)
}

// reboot ends a node without a word to the processes on it, and boots it again. Its disk is memory, so it has nothing afterwards.
func (w *world) reboot(ctx context.Context, i int) error {
	if _, err := w.onNode(ctx, i, "(sleep 1; echo o >/proc/sysrq-trigger) >/dev/null 2>&1 &"); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = w.guests[i].Wait() // a guest that was switched off has no exit status
		close(ended)
	}()
	select {
	case <-ended:
		return w.boot(i)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// boot starts the guest of a node, on one CPU of those that this program may use.
func (w *world) boot(i int) (err error) {
	var may unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		return fmt.Errorf("ask for the CPUs of this program: %w", err)
	}
	name := nodeName(i)
	w.guests[i], err = w.launch(name, "taskset", "-c", strconv.Itoa(cpuOf(i, &may)), filepath.Join(w.o.dir, "vmrun"), "-accel", cmp.Or(w.kernel[i], fullKernel), "-link", name,
		"-m", strconv.Itoa(w.o.memory), "-timeout", "6h", "-share", w.o.dir+":/run/cluster:rw", "-share", filepath.Dir(w.own.Kubelet)+":/run/binaries", "-share", "/:/run/host",
		"-env", "INDEX="+strconv.Itoa(i), "-env", "NODES="+strconv.Itoa(w.o.nodes), "-env", "SNAPSHOTTER="+snapshotter,
		"--", "bash", "/run/cluster/node.sh")
	return err
}

// cpuOf deals the CPUs of a set to nodes in turn.
func cpuOf(i int, may *unix.CPUSet) int {
	var list []int
	for cpu := range 8 * int(unsafe.Sizeof(*may)) {
		if may.IsSet(cpu) {
			list = append(list, cpu)
		}
	}
	return list[i%len(list)]
}

// logTail is how many lines of a log an error has.
const logTail = 10

// logs are the ends of what the nodes have written.
func (w *world) logs() string {
	var out strings.Builder
	for i := 1; i <= w.o.nodes; i++ {
		for _, path := range []string{nodeName(i) + ".log", nodeName(i) + "/boot.log", nodeName(i) + "/containerd.log", nodeName(i) + "/kubelet.log"} {
			text, _ := os.ReadFile(filepath.Join(w.o.dir, path)) // what does not exist is empty
			fmt.Fprintf(&out, "--- %s\n%s\n", path, lastLines(string(text), logTail))
		}
	}
	return out.String()
}

// lastLines are the last n lines of a text.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// nodesReady fails with the names of the nodes that are not Ready.
func (w *world) nodesReady(ctx context.Context) error {
	out, err := w.kubectl(ctx, "get", "nodes", "-o", `jsonpath={range .items[*]}{.metadata.name} {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`)
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	lines = slices.DeleteFunc(lines, func(line string) bool { return strings.HasSuffix(line, " True") })
	if len(lines) > 0 {
		return fmt.Errorf("not Ready: %s", strings.Join(lines, ", "))
	}
	return nil
}

// onNode runs a script on a node, in its root namespaces, and returns its output. It fails with the output when the script does.
func (w *world) onNode(ctx context.Context, i int, script string) (string, error) {
	dir := filepath.Join(w.o.dir, nodeName(i), "run")
	id := strconv.FormatInt(time.Now().UnixNano(), 36)
	file := func(kind string) string { return filepath.Join(dir, id+kind) }
	if err := os.WriteFile(file(".new"), []byte(script), 0o644); err != nil { //nolint:gosec // a script for a guest
		return "", err
	}
	if err := os.Rename(file(".new"), file(".sh")); err != nil {
		return "", err
	}
	var status []byte
	err := until(ctx, "the script on "+nodeName(i), func(context.Context) (err error) {
		status, err = os.ReadFile(file(".status"))
		return err
	})
	if err != nil {
		return "", err
	}
	out, err := os.ReadFile(file(".out"))
	if text := strings.TrimSpace(string(status)); text != "0" {
		err = errors.Join(err, fmt.Errorf("on %s: exit status %s: %s", nodeName(i), text, out))
	}
	return string(out), err
}
