package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"syscall"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/kube/binaries"
	"github.com/kube-ipvs/kube-ipvs/e2e/vm"
)

// options are what the flags say.
type options struct {
	dir    string
	nodes  int
	memory int // of a node, in MiB
	only   *regexp.Regexp
	keep   bool
	image  string        // file
	helm   string        // program, empty without it
	outage time.Duration // how long the API server is away
}

// errChecks is the error of a run with failed checks; the report has named them.
var errChecks = errors.New("checks failed")

// init keeps the first thread for main: the programs that it starts end with the thread that started them.
func init() { runtime.LockOSThread() }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Args[1:])
	stop()
	var exit *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &exit):
		os.Exit(max(1, exit.ExitCode())) // the program in the namespace has said why
	default:
		fmt.Fprintln(os.Stderr, "e2e-cluster:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if os.Getenv(insideVariable) == "" {
		return enter(ctx, o)
	}
	for _, name := range []string{"HTTPS_PROXY", "https_proxy"} { // no proxy can be reached from the namespace
		if err := os.Unsetenv(name); err != nil {
			return err
		}
	}
	outside, err := os.Readlink("/proc/self") // the number that other programs know this process by
	if err != nil {
		return err
	}
	w, err := build(ctx, o)
	if err != nil {
		return errors.Join(err, w.close())
	}
	report := w.check(ctx)
	report.print(os.Stdout)
	if o.keep && ctx.Err() == nil {
		w.say("kept until this program is told to end: nsenter -t %s -n %s --kubeconfig %s", outside, w.set.Kubectl, w.plane.AdminKubeconfig())
		<-ctx.Done()
	}
	if err := w.close(); err != nil {
		return err
	}
	if report.failed() {
		return errChecks
	}
	return ctx.Err()
}

func parse(args []string) (options, error) {
	var o options
	var only string
	f := flag.NewFlagSet("nodes", flag.ContinueOnError)
	f.StringVar(&o.dir, "dir", "bin/e2e-cluster", "`DIRECTORY` for logs, keys and what nodes share; it is emptied first")
	f.StringVar(&o.image, "image", "bin/image.tar", "`FILE` with the image kube-ipvs:dev, of make image")
	f.StringVar(&o.helm, "helm", "", "`FILE` of the program helm, for the checks of the chart")
	f.DurationVar(&o.outage, "outage", time.Minute, "how `LONG` the API server is away")
	f.IntVar(&o.nodes, "nodes", 3, "how many nodes, 1 to 8")
	f.IntVar(&o.memory, "memory", 2500, "`MiB` of a node at most")
	f.StringVar(&only, "run", "", "`REGEXP` of the checks to run; those that install always run")
	f.BoolVar(&o.keep, "keep", false, "keep the cluster after the checks, until a signal")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 || o.nodes < 1 || o.nodes > 8 || o.outage <= 0 {
		return o, errors.New("want flags only, 1 to 8 nodes, and a time without the API server")
	}
	var errs [4]error
	o.only, errs[0] = regexp.Compile(only)
	o.dir, errs[1] = filepath.Abs(o.dir)
	o.image, errs[2] = filepath.Abs(o.image)
	if o.helm != "" {
		o.helm, errs[3] = filepath.Abs(o.helm)
	}
	return o, errors.Join(errs[:]...)
}

// insideVariable is set for the program that runs in the namespace.
const insideVariable = "KUBE_IPVS_E2E_NODES_INSIDE"

// endLimit bounds how long the program in the namespace takes to end after a signal.
const endLimit = 30 * time.Second

// enter runs this program again, in network and mount namespaces of its own. They end with it, with all links and guests.
func enter(ctx context.Context, o options) error {
	if err := able(o); err != nil {
		return fmt.Errorf("this machine cannot run it: %w", err)
	}
	if err := makePrograms(ctx, o); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideVariable+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL, Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = endLimit
	return cmd.Run()
}

// makePrograms fills the cache with the programs of Kubernetes and containerd, and with the kernel of the nodes. It is done before the
// namespace, which has no way to the sources.
func makePrograms(ctx context.Context, o options) error {
	b, err := binaries.NewBuilder(ctx, os.Stderr)
	if err != nil {
		return err
	}
	_, control := b.Build(ctx)
	_, nodes := b.BuildNodes(ctx)
	errs := []error{control, nodes, vm.Prepare(ctx, vm.Options{Accel: fullKernel, Log: os.Stderr})}
	if o.wantsNeighbours() {
		_, beside := b.BuildNeighbours(ctx)
		errs = append(errs, beside)
	}
	if o.nodes > 1 && o.only.MatchString(lacksIPVS) {
		errs = append(errs, vm.Prepare(ctx, vm.Options{Accel: kernelWithoutIPVS, Log: os.Stderr}))
	}
	return errors.Join(errs...)
}

// say prints a line with the seconds since the start.
func say(out io.Writer, since time.Time, format string, args ...any) {
	fmt.Fprintf(out, "e2e-cluster: %4.0fs  %s\n", time.Since(since).Seconds(), fmt.Sprintf(format, args...))
}
