package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A unit is what a guest takes from the queue: a shell script that runs one test, or a batch of short ones.
type unit struct {
	name   string // "packet:TestLimits"
	script string
}

// A pool is a set of guests that work through one queue.
type pool struct {
	name   string
	guests int
	units  []unit // in the order in which they are taken
	accel  string // -accel of vmrun
	suite  string // -suite of vmrun
	need   string // -need of vmrun
	memory int    // memory of a guest, MiB
	copies []string
	shares []string // beside the queue and the sources
	limit  string   // limit of a guest's life, as vmrun has it
}

//go:embed worker.sh
var workerScript string

// run boots the guests and returns when the queue is empty. A guest that dies fails the unit that it was at; the others go on.
func (p *pool) run(ctx context.Context, r *recorder) error {
	dir, err := p.fill()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	r.plan(len(p.units), "units")
	ended := make([]error, min(p.guests, len(p.units)))
	var guests sync.WaitGroup
	for i := range ended {
		guests.Go(func() { ended[i] = p.guest(ctx, r, dir, i) })
	}
	guests.Wait()
	left, err := filepath.Glob(filepath.Join(dir, "todo", "*"))
	if len(left) > 0 {
		err = fmt.Errorf("%d units were never started, the first is %s", len(left), filepath.Base(left[0]))
	}
	for _, file := range left {
		_, name, _ := strings.Cut(filepath.Base(file), " ")
		r.unitFailed(name)
	}
	for _, u := range r.unitsFailed(p.units) {
		alone := *p
		alone.guests, alone.units = 1, []unit{u}
		r.mayRepeat(u.name, alone.run)
	}
	return errors.Join(errors.Join(ended...), err)
}

// fill writes the queue into a new directory: one file for each unit, whose name begins with its rank.
func (p *pool) fill() (string, error) {
	dir, err := os.MkdirTemp(filepath.Join(root, "bin"), "queue-")
	if err != nil {
		return "", err
	}
	files := map[string]string{"worker.sh": workerScript}
	for i, u := range p.units {
		files[fmt.Sprintf("todo/%04d %s", i, u.name)] = u.script + "\n"
	}
	errs := []error{os.Mkdir(filepath.Join(dir, "todo"), 0o777), os.Mkdir(filepath.Join(dir, "taken"), 0o777)}
	for name, text := range files {
		errs = append(errs, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	return dir, errors.Join(errs...)
}

// guest runs one guest to its end. Each stays on one CPU of this machine, in turn. The threads of a
// User-mode Linux guest switch to each other at each of its system calls, which costs ten times as
// much between CPUs.
func (p *pool) guest(ctx context.Context, r *recorder, queue string, number int) error {
	lane := p.name + "-" + strconv.Itoa(number)
	where := []string{"-auto", "-need", p.need}
	if p.suite != "" {
		where = []string{"-suite", p.suite}
	}
	args := append([]string{filepath.Join(root, "bin/vmrun")}, where...)
	args = append(args, "-accel", p.accel, "-timeout", p.limit,
		"-m", strconv.Itoa(p.memory), "-share", queue+":/run/kube-ipvs/queue:rw", "-share", root+":/run/kube-ipvs/src")
	for _, file := range p.copies {
		args = append(args, "-copy", filepath.Join(root, "bin/guest", file)+":/run/kube-ipvs/bin/"+file)
	}
	for _, share := range p.shares {
		args = append(args, "-share", share)
	}
	args = append(args, "-env", "KUBE_IPVS_BIN=/run/kube-ipvs/bin/kube-ipvs", "--", "bash", "/run/kube-ipvs/queue/worker.sh", lane)
	if _, err := exec.LookPath("taskset"); err == nil && inUML(p.accel) {
		args = append([]string{"taskset", "-c", strconv.Itoa(number % runtime.NumCPU())}, args...)
	}
	out := newParser(r, lane, false)
	err := r.command(ctx, out, nil, args...)
	if out.unit != "" {
		r.unitFailed(out.unit)
		r.add(result{name: out.unit, outcome: fail, output: append(tail(out.kept), "the guest ended during this unit")})
	}
	r.running(lane, "")
	return err
}

// testUnits returns one unit for each of the tests, the slowest first. A test runs in a process of its own.
func testUnits(known durations, stage, binary, pkg string, tests []string) (units []unit) {
	names := make([]string, len(tests))
	for i, test := range tests {
		names[i] = binary + ":" + test
	}
	for _, name := range known.slowestFirst(stage, names) {
		units = append(units, unit{name: name, script: testScript(binary, pkg, "^"+name[len(binary)+1:]+"$", "")})
	}
	return units
}

// testScript runs the tests of a binary that match, in their package's directory.
func testScript(binary, pkg, pattern, env string) string {
	return fmt.Sprintf("cd /run/kube-ipvs/src/%s && %s exec /run/kube-ipvs/bin/%s.test -test.v -test.timeout %s -test.run '%s'",
		pkg, env, binary, unitLimit, pattern)
}

// testsOf lists the tests of a package that match keep and do not match drop, from its source files.
func testsOf(dir string, keep func(name string) bool) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			name, ok := strings.CutPrefix(line, "func Test")
			if name, _, found := strings.Cut(name, "(t *testing.T)"); ok && found && keep("Test"+name) {
				names = append(names, "Test"+name)
			}
		}
	}
	slices.Sort(names)
	return names, nil
}
