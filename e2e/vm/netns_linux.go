package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// probeLimit bounds the question what the host can do.
const probeLimit = 20 * time.Second

// probeModules are what a probe, run as root, asks the host's kernel to load first.
var probeModules = map[Need][]string{
	NeedIPVS:     {"ip_vs", "ip_vs_rr", "dummy", "nf_conntrack"},
	NeedIPTables: {"ip_tables", "ip6_tables", "nf_tables", "nft_compat", "veth", "bridge"},
}

// HostCanIPVS returns nil if this user can run IPVS and a dummy link in a fresh network namespace of the host's kernel, else the
// reason why not. It tries: lists of loaded modules do not know what is built in, nor what a namespace may do.
func HostCanIPVS(ctx context.Context) error { return HostCan(ctx, NeedIPVS) }

// HostCan returns nil if this user can do in a fresh network namespace of the host's kernel what a command needs, else the reason
// why not.
func HostCan(ctx context.Context, need Need) error {
	loadModules(ctx, probeModules[need])
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	var said tail
	status, err := runChild(ctx, childTask{Probe: need}, Options{Stdout: &said})
	if err != nil {
		return err
	}
	if status != 0 {
		return errors.New(strings.TrimSpace(said.String()))
	}
	return nil
}

// RunInNetns runs the command in new network, mount and process namespaces of the host. lo is up,
// forwarding is on, /run is empty and private, and processes that the command leaves running end
// with it. Results and errors are those of Run.
func RunInNetns(ctx context.Context, o Options) (int, error) {
	o.Defaults()
	if err := errors.Join(o.Validate(), o.validateAnywhere()); err != nil {
		return StatusBroken, err
	}
	loadModules(ctx, o.Modules)
	ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout, fmt.Errorf("time-out of %s", o.Timeout))
	defer cancel()
	return runChild(ctx, newTask(o), o)
}

// loadModules ignores failures: only root may load modules, names may be built in or unknown, and a
// program that needs one finds out by using it.
func loadModules(ctx context.Context, names []string) {
	if os.Geteuid() == 0 {
		_, _ = output(ctx, "/", "modprobe", append([]string{"-aq"}, names...)...)
	}
}

func newTask(o Options) childTask {
	task := childTask{Command: o.Command, Env: append([]string{"KUBE_IPVS_WHERE=" + string(InNetns)}, o.Env...), Dir: o.Dir, IPTables: o.IPTables}
	for _, share := range o.Shares {
		task.Binds = append(task.Binds, bind{Host: share.Host, Guest: share.Guest, ReadOnly: !share.Writable})
	}
	for _, file := range o.Copies {
		host, err := filepath.Abs(file.Host)
		if err != nil {
			host = file.Host
		}
		task.Binds = append(task.Binds, bind{Host: host, Guest: file.Guest, ReadOnly: true})
	}
	return task
}

// runChild starts this very program again as the first process of new namespaces, where init below takes over.
func runChild(ctx context.Context, task childTask, o Options) (int, error) {
	text, err := json.Marshal(task)
	if err != nil {
		return StatusBroken, fmt.Errorf("describe the command: %w", err)
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = append(os.Environ(), childVariable+"="+string(text))
	cmd.Stdout, cmd.Stderr = o.Stdout, o.Stdout
	cmd.SysProcAttr = namespaces()

	runtime.LockOSThread() // the kernel ends the child with this thread, not with this process
	defer runtime.UnlockOSThread()
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return StatusBroken, fmt.Errorf("run stopped: %w", context.Cause(ctx))
	case err == nil || errors.As(err, &exit) && exit.Exited():
		return cmd.ProcessState.ExitCode(), nil
	default:
		return StatusBroken, fmt.Errorf("run in new namespaces: %w", err)
	}
}

// namespaces asks for new ones; a user who is not root becomes root of a user namespace first.
func namespaces() *syscall.SysProcAttr {
	attr := dieWithRunner()
	attr.Cloneflags = unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID
	if os.Geteuid() != 0 {
		attr.Cloneflags |= unix.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	return attr
}
