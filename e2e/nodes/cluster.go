package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/e2e/kube/binaries"
	"github.com/kube-ipvs/kube-ipvs/e2e/kube/cluster"
)

// machineAddr is where nodes reach this machine, and the API server.
const machineAddr = "172.30.0.1"

// world is a running cluster.
type world struct {
	o      options
	start  time.Time
	out    io.Writer
	plane  *cluster.Cluster
	set    binaries.Set
	own    binaries.Nodes
	beside binaries.Neighbours // empty unless a check needs them
	others []*exec.Cmd         // controllers and nodes, in the order of their start
	guests map[int]*exec.Cmd   // nodes by number
	kernel map[int]string      // of nodes by number, fullKernel where there is none
	ready  time.Duration
}

// build brings everything up. The caller closes the world, also after an error.
func build(ctx context.Context, o options) (*world, error) {
	w := &world{o: o, start: time.Now(), out: os.Stderr, guests: map[int]*exec.Cmd{}, kernel: map[int]string{}}
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"programs", w.findPrograms}, {"namespaces", w.ownProc}, {"directory", w.makeDir}, {"network", w.makeNetwork}, {"control plane", w.startPlane}, {"nodes", w.startNodes},
	} {
		if err := step.do(ctx); err != nil {
			return w, fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return w, nil
}

func (w *world) say(format string, args ...any) { say(w.out, w.start, format, args...) }

// findPrograms finds what makePrograms made.
func (w *world) findPrograms(context.Context) (err error) {
	if w.set, err = binaries.Find(); err != nil {
		return err
	}
	if w.own, err = binaries.FindNodes(); err != nil || !w.o.wantsNeighbours() {
		return err
	}
	w.beside, err = binaries.FindNeighbours()
	return err
}

// ownProc shows the processes of this namespace, and no others, in /proc.
func (w *world) ownProc(context.Context) error {
	return errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("proc", "/proc", "proc", 0, ""))
}

// makeDir fills the directory that all nodes see as /run/cluster.
func (w *world) makeDir(ctx context.Context) error {
	dir := w.o.dir
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(filepath.Join(dir, "images"), 0o755)); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "node.sh"), nodeScript, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "inside.sh"), insideScript, 0o755); err != nil {
		return err
	}
	if err := w.compile(ctx); err != nil {
		return err
	}
	return w.makeImages()
}

// compile builds the programs of this repository that nodes and their images need.
func (w *world) compile(ctx context.Context) error {
	for _, p := range []struct{ name, pkg string }{
		{"oci", "./e2e/nodes/oci"}, {"pause", "./e2e/nodes/pause"}, {"backend", "./e2e/backend/cmd/backend"}, {"vmrun", "./e2e/vm/vmrun"},
		{"kube-ipvs", "./cmd/kube-ipvs"},
	} {
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", filepath.Join(w.o.dir, p.name), p.pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, out)
		}
	}
	return nil
}

// makeNetwork lays a bridge with a link to each node. The far ends carry the frames of guests and nothing of this machine: they answer
// no ARP and have no addresses.
func (w *world) makeNetwork(ctx context.Context) error {
	batch := []string{
		"link set lo up", "link add nodes type bridge", "address add " + machineAddr + "/24 dev nodes",
		"address add fd00:30::1/64 dev nodes nodad", "link set nodes up",
	}
	for n := range w.o.nodes {
		i := strconv.Itoa(n + 1)
		batch = append(batch, "link add br"+i+" type veth peer name node"+i, "link set br"+i+" master nodes up", "link set node"+i+" arp off up",
			"route add 10.244."+i+".0/24 via 172.30.0.1"+i, "route add fd00:10:244:"+i+"::/64 via fd00:30::1"+i)
	}
	cmd := exec.CommandContext(ctx, "ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(batch, "\n"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ip: %w: %s", err, out)
	}
	for n := range w.o.nodes {
		if err := os.WriteFile(fmt.Sprintf("/proc/sys/net/ipv6/conf/node%d/disable_ipv6", n+1), []byte("1"), 0o644); err != nil { //nolint:gosec // a file of the kernel
			return err
		}
	}
	return nil
}

// startPlane starts etcd and the API server, and the controllers and the scheduler beside them.
func (w *world) startPlane(ctx context.Context) (err error) {
	w.plane, err = cluster.Start(ctx, cluster.Options{
		Binaries: w.set, Dir: filepath.Join(w.o.dir, "controlplane"), Bind: netip.MustParseAddr(machineAddr), Nodes: true, Log: w.out,
	})
	if err != nil {
		return err
	}
	config, keys := "--kubeconfig="+w.plane.AdminKubeconfig(), w.plane.Dir()
	_, manager := w.launch("kube-controller-manager", w.own.ControllerManager, config, "--leader-elect=false", "--secure-port=0",
		"--service-account-private-key-file="+filepath.Join(keys, "accounts.key"), "--root-ca-file="+filepath.Join(keys, "ca.crt"))
	_, scheduler := w.launch("kube-scheduler", w.own.Scheduler, config, "--leader-elect=false", "--secure-port=0")
	return errors.Join(manager, scheduler)
}

// launch starts a program that lasts as long as the world, with its output in a file of its own.
func (w *world) launch(name, path string, args ...string) (*exec.Cmd, error) {
	log, err := os.Create(filepath.Join(w.o.dir, name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close() // the program has its own descriptor
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	w.others = append(w.others, cmd)
	return cmd, nil
}

// close ends everything, the last first.
func (w *world) close() error {
	for i := len(w.others) - 1; i >= 0; i-- {
		_ = w.others[i].Process.Kill()
		_ = w.others[i].Wait() // it was killed
	}
	if w.plane == nil {
		return nil
	}
	return w.plane.Close()
}

// kubectl asks the cluster as its administrator.
func (w *world) kubectl(ctx context.Context, args ...string) (string, error) {
	return w.plane.Kubectl(ctx, args...)
}

// pollEvery is the time between two looks at a condition.
const pollEvery = 500 * time.Millisecond

// until polls a condition. The error of the last look says what was missing when ctx ended.
func until(ctx context.Context, what string, look func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	for {
		err := look(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not within %s: %w", what, readyLimit, err)
		case <-time.After(pollEvery):
		}
	}
}
