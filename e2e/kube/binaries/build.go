package binaries

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Builder makes the binaries. Its zero value is not usable; see NewBuilder.
type Builder struct {
	modules string // the directory of the modules that pin versions: e2e/kube
	dir     string // of the control plane's binaries
	log     io.Writer

	// run starts one build. Tests put their own here.
	run func(ctx context.Context, command *exec.Cmd) error
}

// NewBuilder prepares to build into Dir and to report progress to log, a line per step. The working directory must lie in the
// main module: that is how the pinned module is found.
func NewBuilder(ctx context.Context, log io.Writer) (*Builder, error) {
	dir, err := Dir()
	if err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return nil, fmt.Errorf("look for the main module: %w", err)
	}
	modules := filepath.Join(filepath.Dir(strings.TrimSpace(string(out))), "e2e/kube")
	if _, err := os.Stat(filepath.Join(modules, kubernetesModule, "go.mod")); err != nil {
		return nil, fmt.Errorf("look for the pinned versions, from a directory of the main module: %w", err)
	}
	return &Builder{modules: modules, dir: dir, log: log, run: runCommand}, nil
}

// Build makes what is missing, one program after the other, and costs nothing when all are there. After an error or a cancelled
// ctx the next call goes on where this one ended. Two that build at the same time do the work twice and harm nothing.
func (b *Builder) Build(ctx context.Context) (Set, error) {
	if err := b.buildAll(ctx, b.dir, programs); err != nil {
		return Set{}, err
	}
	return setIn(b.dir), nil
}

// BuildNodes makes the programs of nodes in the same way.
func (b *Builder) BuildNodes(ctx context.Context) (Nodes, error) {
	dir, err := NodesDir()
	if err != nil {
		return Nodes{}, err
	}
	if err := b.buildAll(ctx, dir, nodePrograms); err != nil {
		return Nodes{}, err
	}
	return nodesIn(dir), nil
}

// BuildNeighbours makes the programs that run beside kube-ipvs in the same way.
func (b *Builder) BuildNeighbours(ctx context.Context) (Neighbours, error) {
	dir, err := NeighboursDir()
	if err != nil {
		return Neighbours{}, err
	}
	if err := b.buildAll(ctx, dir, neighbourPrograms); err != nil {
		return Neighbours{}, err
	}
	return neighboursIn(dir), nil
}

func (b *Builder) buildAll(ctx context.Context, dir string, list []program) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make room for the binaries: %w", err)
	}
	for i, p := range list {
		if built(dir, p) {
			continue
		}
		b.printf("building %s %s (%d of %d): takes about %d min the first time on two free cores", p.name, p.version, i+1, len(list), p.minutes)
		if err := b.build(ctx, dir, p); err != nil {
			return fmt.Errorf("build %s %s: %w", p.name, p.version, err)
		}
	}
	return nil
}

// build publishes one binary by renaming it, so that what has its final name is complete.
func (b *Builder) build(ctx context.Context, dir string, p program) error {
	start := time.Now()
	target := filepath.Join(dir, p.name)
	unfinished := filepath.Join(dir, fmt.Sprintf(".new-%s-%d", p.name, os.Getpid()))
	defer os.Remove(unfinished)
	if err := b.run(ctx, b.command(ctx, p, unfinished)); err != nil {
		return err
	}
	info, err := os.Stat(unfinished)
	if err != nil {
		return err
	}
	b.printf("built %s %s: %d MiB in %s", p.name, p.version, info.Size()>>20, time.Since(start).Round(time.Second))
	return os.Rename(unfinished, target)
}

// command is polite to whatever else the machine does; GOFLAGS=-p=1 from outside makes it more so. The result is static, because
// guests have no libraries to offer.
func (b *Builder) command(ctx context.Context, p program, target string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "nice", "-n", "10", "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", p.ldflags, "-o", target, p.pkg)
	cmd.Dir = filepath.Join(b.modules, p.module)
	cgo := "CGO_ENABLED=0"
	if p.cgo {
		cgo = "CGO_ENABLED=1"
	}
	cmd.Env = append(os.Environ(), cgo, "GOWORK=off", "GOOS=linux")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

func runCommand(ctx context.Context, cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err), errors.New(strings.TrimSpace(string(out))))
	}
	return nil
}

func (b *Builder) printf(format string, args ...any) {
	fmt.Fprintf(b.log, "controlplane: "+format+"\n", args...)
}
