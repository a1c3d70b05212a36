package binaries

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestVersionsAreThePinnedOnes holds the constants, which name the directory, to the module that decides what is built.
func TestVersionsAreThePinnedOnes(t *testing.T) {
	text, err := os.ReadFile("../controlplane/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	staging := "v0." + strings.TrimPrefix(Kubernetes, "v1.")
	for _, want := range []string{
		"k8s.io/kubernetes " + Kubernetes,
		"go.etcd.io/etcd/server/v3 " + Etcd,
		"go.etcd.io/etcd/client/v3 " + Etcd, // the client of etcd in the API server
		"k8s.io/component-base => k8s.io/component-base " + staging,
	} {
		found := slices.ContainsFunc(lines, func(line string) bool {
			requirement, _, _ := strings.Cut(line, " //")
			return strings.TrimSpace(requirement) == want
		})
		if !found {
			t.Errorf("controlplane/go.mod lacks %q", want)
		}
	}
}

// TestEveryProgramIsPinned: the module that a program is built from has a tool line for it, and names its version.
func TestEveryProgramIsPinned(t *testing.T) {
	for _, p := range slices.Concat(programs, nodePrograms, neighbourPrograms) {
		text, err := os.ReadFile(filepath.Join("..", p.module, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		var tool, version bool
		for line := range strings.Lines(string(text)) {
			words := strings.Fields(line)
			tool = tool || strings.TrimPrefix(strings.Join(words, " "), "tool ") == p.pkg
			version = version || len(words) > 1 && strings.HasPrefix(p.pkg, words[0]) && words[1] == p.version
		}
		if !tool || !version {
			t.Errorf("%s/go.mod has a tool line for %s: %t; version %s: %t", p.module, p.pkg, tool, p.version, version)
		}
	}
}

func TestDir(t *testing.T) {
	cache := t.TempDir()
	tests := []struct {
		name, variable, want string
	}{
		{name: "in the cache", want: filepath.Join(cache, "controlplane-"+Kubernetes+"-"+recipe(programs))},
		{name: "named from outside", variable: "/run/controlplane", want: "/run/controlplane"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("KUBE_IPVS_CACHE", cache)
			t.Setenv(Variable, tt.variable)
			if got, err := Dir(); err != nil || got != tt.want {
				t.Errorf("Dir() = %q, %v, want %q", got, err, tt.want)
			}
		})
	}
}

// fakeBuilder builds into an empty directory by writing files instead of running the go command.
func fakeBuilder(t *testing.T, log *bytes.Buffer, run func(context.Context, *exec.Cmd) error) *Builder {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "binaries")
	t.Setenv(Variable, dir)
	t.Setenv("KUBE_IPVS_CACHE", t.TempDir())
	return &Builder{modules: t.TempDir(), dir: dir, log: log, run: run}
}

// target is the value of -o.
func target(cmd *exec.Cmd) string { return cmd.Args[slices.Index(cmd.Args, "-o")+1] }

func writeTarget(_ context.Context, cmd *exec.Cmd) error {
	return os.WriteFile(target(cmd), []byte("program"), 0o755)
}

func TestBuildGoesOnWhereItEnded(t *testing.T) {
	var asked []string
	fail := errors.New("no more memory")
	var log bytes.Buffer
	b := fakeBuilder(t, &log, func(ctx context.Context, cmd *exec.Cmd) error {
		asked = append(asked, cmd.Args[len(cmd.Args)-1])
		if fail != nil && len(asked) == 2 {
			_ = writeTarget(ctx, cmd) // half a program
			return fail
		}
		return writeTarget(ctx, cmd)
	})

	if _, err := b.Build(t.Context()); !errors.Is(err, fail) || !strings.Contains(err.Error(), "build kube-apiserver "+Kubernetes) {
		t.Errorf("Build = %v, want %v for kube-apiserver", err, fail)
	}
	if _, err := Find(); !errors.Is(err, ErrNotBuilt) || !strings.Contains(err.Error(), "kube-apiserver") {
		t.Errorf("Find after half a build = %v, want %v for kube-apiserver", err, ErrNotBuilt)
	}
	fail = nil
	set, err := b.Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Build(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{"go.etcd.io/etcd/server/v3", "k8s.io/kubernetes/cmd/kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver", "k8s.io/kubernetes/cmd/kubectl", "k8s.io/kubernetes/cmd/kube-proxy"}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("programs built (-want +got):\n%s", diff)
	}
	if found, err := Find(); err != nil || found != set {
		t.Errorf("Find = %+v, %v, want %+v", found, err, set)
	}
	left, _ := filepath.Glob(filepath.Join(b.dir, ".new-*"))
	if len(left) > 0 {
		t.Errorf("unfinished files are left: %q", left)
	}
	if line := "controlplane: building kubectl " + Kubernetes + " (3 of 4)"; !strings.Contains(log.String(), line) {
		t.Errorf("progress lacks %q:\n%s", line, log.String())
	}
}

// TestNodesAreBuiltFromBothModules: each program of a node is built where its version is pinned.
func TestNodesAreBuiltFromBothModules(t *testing.T) {
	from := map[string]string{}
	b := fakeBuilder(t, &bytes.Buffer{}, func(ctx context.Context, cmd *exec.Cmd) error {
		from[cmd.Args[len(cmd.Args)-1]] = filepath.Base(cmd.Dir)
		return writeTarget(ctx, cmd)
	})
	if _, err := FindNodes(); !errors.Is(err, ErrNotBuilt) {
		t.Errorf("FindNodes before the build = %v, want %v", err, ErrNotBuilt)
	}
	set, err := b.BuildNodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if found, err := FindNodes(); err != nil || found != set {
		t.Errorf("FindNodes = %+v, %v, want %+v", found, err, set)
	}
	for pkg, want := range map[string]string{"k8s.io/kubernetes/cmd/kubelet": "controlplane", "github.com/containerd/containerd/v2/cmd/ctr": "containerd"} {
		if from[pkg] != want || len(from) != len(nodePrograms) {
			t.Errorf("%d programs are built, %s from %q, want %d and %q", len(from), pkg, from[pkg], len(nodePrograms), want)
		}
	}
}

// TestNeighboursAreBuiltFromTheirModules: each has a module of its own, and flanneld alone has parts in C.
func TestNeighboursAreBuiltFromTheirModules(t *testing.T) {
	from := map[string]string{}
	b := fakeBuilder(t, &bytes.Buffer{}, func(ctx context.Context, cmd *exec.Cmd) error {
		from[filepath.Base(cmd.Dir)] = cmd.Env[len(cmd.Env)-3]
		return writeTarget(ctx, cmd)
	})
	if _, err := FindNeighbours(); !errors.Is(err, ErrNotBuilt) {
		t.Errorf("FindNeighbours before the build = %v, want %v", err, ErrNotBuilt)
	}
	set, err := b.BuildNeighbours(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if found, err := FindNeighbours(); err != nil || found != set {
		t.Errorf("FindNeighbours = %+v, %v, want %+v", found, err, set)
	}
	want := map[string]string{"flannel": "CGO_ENABLED=1", "kuberouter": "CGO_ENABLED=0", "metallb": "CGO_ENABLED=0"}
	if diff := cmp.Diff(want, from); diff != "" {
		t.Errorf("modules and cgo (-want +got):\n%s", diff)
	}
}

func TestCommandIsStaticAndPolite(t *testing.T) {
	b := fakeBuilder(t, nil, nil)
	cmd := b.command(t.Context(), programs[1], "/tmp/out")
	if got := strings.Join(cmd.Args[:5], " "); got != "nice -n 10 go build" {
		t.Errorf("command starts with %q", got)
	}
	if want := filepath.Join(b.modules, "controlplane"); cmd.Dir != want || !slices.Contains(cmd.Env, "CGO_ENABLED=0") {
		t.Errorf("runs in %s with %q, want %s without cgo", cmd.Dir, cmd.Env, want)
	}
}

func TestRunCommandTellsWhatTheToolSaid(t *testing.T) {
	err := runCommand(t.Context(), exec.CommandContext(t.Context(), "sh", "-c", "echo no such package >&2; exit 3"))
	if err == nil || !strings.Contains(err.Error(), "no such package") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("error = %v, want the status and the output", err)
	}
	stopped := errors.New("stopped by hand")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stopped)
	if err := runCommand(ctx, exec.CommandContext(ctx, "true")); !errors.Is(err, stopped) {
		t.Errorf("error = %v, want %v", err, stopped)
	}
}

func TestNewBuilder(t *testing.T) {
	t.Setenv(Variable, t.TempDir())
	b, err := NewBuilder(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := filepath.ToSlash(b.modules); !strings.HasSuffix(got, "/e2e/kube") {
		t.Errorf("the pinned modules are below %s", got)
	}
	t.Chdir(t.TempDir())
	if _, err := NewBuilder(t.Context(), nil); err == nil {
		t.Error("a builder outside of the main module found something")
	}
}
