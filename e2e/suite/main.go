package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/vm"
)

// module is the path of the module under test.
const module = "github.com/kube-ipvs/kube-ipvs"

// root is the directory of the sources, which is the working directory of this program.
var root string

// Exit statuses.
const (
	statusOK     = 0
	statusFailed = 1
	statusUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

const help = `suite runs test stages side by side and prints a table of what they did.

  suite [flags] STAGE...      a stage brings along the stages that it needs

Examples:
  suite test                            everything that can find a defect in a change
  suite test verify lint                the same with the checks of the sources beside it
  suite -run 'TestAffinity' packets     one packet test in a guest
  suite -race scenarios                 the scenario files with the race detector in agent and tests
  suite -kernel qemu packets            packets on the distribution's kernel, emulated
  suite -list                           all stages

Flags:
`

// options are the flags.
type options struct {
	list    bool
	pattern string
	kernel  string
	race    bool
	guests  int
}

func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	var o options
	flags := flag.NewFlagSet("suite", flag.ContinueOnError)
	flags.SetOutput(errOut)
	flags.Usage = func() {
		fmt.Fprint(errOut, help)
		flags.PrintDefaults()
	}
	flags.BoolVar(&o.list, "list", false, "print the stages and what they prove")
	flags.StringVar(&o.pattern, "run", os.Getenv("RUN"), "only tests that match this regular expression, in stages that run in guests or namespaces")
	flags.StringVar(&o.kernel, "kernel", os.Getenv("KERNEL"), "the guests' `kernel`: uml, uml-nft, qemu, kvm, or auto for the fastest that works here")
	flags.BoolVar(&o.race, "race", os.Getenv("RACE") != "", "build agent and tests of the guests with the race detector")
	flags.IntVar(&o.guests, "guests", 0, "`number` of guests that run at once (default 3, or 2 that are emulated)")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return statusOK
	case err != nil:
		return statusUsage
	}
	c, err := newConfig(o)
	if err != nil {
		fmt.Fprintln(errOut, "suite:", err)
		return statusUsage
	}
	for _, name := range []string{"kube", "all", "takeover"} {
		c.buildControlPlane = c.buildControlPlane || slices.Contains(flags.Args(), name)
	}
	all := c.stages()
	if o.list {
		list(out, all)
		return statusOK
	}
	chosen, err := choose(all, expand(flags.Args()))
	if err == nil && len(chosen) == 0 {
		err = errors.New("name a stage: suite -list prints them")
	}
	if err != nil {
		fmt.Fprintln(errOut, "suite:", err)
		return statusUsage
	}
	return c.runStages(ctx, chosen, out, errOut)
}

func list(out io.Writer, stages []*stage) {
	fmt.Fprintf(out, "%-12s %s\n", "test", "= "+strings.Join(levelTest, " "))
	fmt.Fprintf(out, "%-12s %s\n", "all", "= "+strings.Join(levelAll, " "))
	for _, s := range stages {
		fmt.Fprintf(out, "%-12s %s\n", s.name, s.about)
	}
}

// runStages runs the stages and prints the report.
func (c *config) runStages(ctx context.Context, stages []*stage, out, errOut io.Writer) int {
	// One cache serves all checkouts only if paths of this one are in none of its entries.
	_ = os.Setenv("GOFLAGS", strings.TrimSpace(os.Getenv("GOFLAGS")+" -trimpath"))
	_ = os.Setenv("CGO_ENABLED", "0") // all but the race detector builds the same packages, once
	report := &reporter{out: out, begun: time.Now()}
	s := newSchedule(stages, float64(runtime.NumCPU()))
	s.recorder = func(st *stage) *recorder {
		r, err := newRecorder(filepath.Join(root, "bin/logs"), st.name)
		if err != nil {
			fmt.Fprintln(errOut, "suite:", err)
			os.Exit(statusFailed)
		}
		r.nice, r.spare = st.nice, st.spare
		report.start(st, r)
		return r
	}
	s.ended = func(_ *stage, r *recorder) {
		report.end(r)
		c.remember(r)
	}
	progress, stop := context.WithCancel(ctx)
	go report.follow(progress)
	s.run(ctx)
	stop()
	if err := c.known.save(c.timesFile); err != nil {
		fmt.Fprintln(errOut, "suite: durations are not kept:", err)
	}
	report.summary(stages)
	if !s.ok() {
		return statusFailed
	}
	return statusOK
}

// config is what the stages share.
type config struct {
	options
	cache     string
	timesFile string
	known     durations
	accel     string // accelerator of the guests, known when the kernels are prepared

	buildControlPlane bool // even when that takes a quarter of an hour
}

func newConfig(o options) (*config, error) {
	switch o.kernel {
	case "":
		o.kernel = "auto"
	case "auto", "uml", nftKernel, "qemu", "kvm":
	default:
		return nil, fmt.Errorf("kernel %q: want auto, uml, %s, qemu or kvm", o.kernel, nftKernel)
	}
	if _, err := os.Stat("go.mod"); err != nil {
		return nil, errors.New("run it from the root of the sources")
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	root = dir
	cache, err := vm.CacheDir()
	if err != nil {
		return nil, err
	}
	times := filepath.Join(cache, "durations.json")
	return &config{options: o, cache: cache, timesFile: times, known: loadDurations(times)}, nil
}

// remember keeps how long units took. It is called by one stage at a time.
func (c *config) remember(r *recorder) {
	for unit, took := range r.units {
		c.known.set(r.stage, unit, took)
	}
}
