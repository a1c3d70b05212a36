package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// userMode is the name of User-mode Linux among the kernels.
const userMode = "uml"

// triedKernels are suites of Debian, whose kernels boot in QEMU from the oldest to the newest, and User-mode Linux.
const triedKernels = "bullseye bookworm trixie sid " + userMode

// kernels runs contracts, a smoke of packets and the demo on one kernel after the other, and shows a table. A
// kernel that cannot be had is a skipped test with the reason.
func (c *config) kernels(ctx context.Context, r *recorder) error {
	names := strings.Fields(or("KERNELS", triedKernels))
	var errs []error
	for _, name := range names {
		p, err := c.kernelPool(ctx, r, name)
		if err != nil {
			r.add(result{name: name + ":kernel", outcome: skip, reason: err.Error()})
			continue
		}
		p.units = c.wantedUnits(p.units)
		errs = append(errs, p.run(ctx, r))
	}
	r.mu.Lock()
	results := slices.Clone(r.results)
	r.mu.Unlock()
	r.show(kernelTable(names, results))
	return errors.Join(errs...)
}

// kernelPool returns one guest on a kernel with its units, after the kernel has been fetched.
func (c *config) kernelPool(ctx context.Context, r *recorder, name string) (*pool, error) {
	var units []unit
	args := []string{"bin/vmrun", "-prepare", "-accel", "qemu", "-suite", name}
	if name == userMode {
		args = []string{"bin/vmrun", "-prepare", "-accel", userMode}
		units = append(units, c.kernelUnits(r, true)...)
		for _, test := range smoke[:3] { // the others are about memory limits and the clock, which it lacks
			units = append(units, packetUnit(test, "", ""))
		}
	} else {
		units = append(units, c.distributionUnits(r)...)
	}
	if out, err := exec.CommandContext(ctx, filepath.Join(root, args[0]), args[1:]...).CombinedOutput(); err != nil {
		fmt.Fprintf(r, "%s\n", out)
		return nil, fmt.Errorf("no kernel: %w: %s", err, lastLine(string(out)))
	}
	// This test loads modules for good, so it comes after those that want modules to be away.
	units = append(units, packetUnit("TestKernelFeatures", "", ""), unit{"demo", demoScript})
	for i := range units {
		units[i].name = name + ":" + units[i].name
	}
	p := c.pool(r.stage, units)
	p.guests, p.accel = 1, "qemu"
	if name == userMode {
		p.accel = userMode
	} else {
		p.suite = name
	}
	p.copies = append(p.copies, "backend")
	return p, nil
}

// demoScript is the demo, inside the guest that runs the units, as a test of one line.
const demoScript = "PATH=/run/kube-ipvs/bin:$PATH DEMO_COLOR=0 DEMO_MODE=ipvs bash /run/kube-ipvs/src/e2e/demo/run.sh && echo '--- PASS: demo (0.00s)'"

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// A cell of the table counts the results of one kind on one kernel.
type cell struct{ passed, failed, skipped int }

func (c *cell) add(o outcome) {
	switch o {
	case pass:
		c.passed++
	case fail:
		c.failed++
	case skip:
		c.skipped++
	}
}

func (c *cell) String() string {
	switch {
	case c == nil:
		return ""
	case c.failed > 0:
		return fmt.Sprintf("%d FAILED of %d", c.failed, c.failed+c.passed)
	case c.passed == 0:
		return "no"
	case c.passed == 1 && c.skipped == 0:
		return "yes"
	case c.skipped > 0:
		return fmt.Sprintf("%d pass, %d skipped", c.passed, c.skipped)
	}
	return fmt.Sprintf("%d pass", c.passed)
}

// kernelTable has a column for each kernel. The rows are features, of which a skipped test is one that the kernel lacks, and the units.
func kernelTable(kernels []string, results []result) string {
	var rows []string
	cells := map[string]map[string]*cell{}
	heads := map[string]string{}
	for _, res := range results {
		kernel, rest, _ := strings.Cut(res.name, ":")
		row := rowOf(rest)
		if release, ok := strings.CutPrefix(row, "kernel-"); ok {
			heads[kernel] = release
			continue
		}
		if row == "" {
			continue
		}
		if cells[row] == nil {
			rows = append(rows, row)
			cells[row] = map[string]*cell{}
		}
		if cells[row][kernel] == nil {
			cells[row][kernel] = &cell{}
		}
		cells[row][kernel].add(res.outcome)
	}
	var text strings.Builder
	tabs := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	line := []string{"kernel"}
	for _, kernel := range kernels {
		line = append(line, strings.TrimSpace(kernel+" "+heads[kernel]))
	}
	fmt.Fprintln(tabs, strings.Join(line, "\t"))
	for _, row := range rows {
		line := []string{row}
		for _, kernel := range kernels {
			line = append(line, cells[row][kernel].String())
		}
		fmt.Fprintln(tabs, strings.Join(line, "\t"))
	}
	_ = tabs.Flush()
	return text.String()
}

// rowOf returns the row of the table that a result counts in: a feature by its name, a packet test with its
// subtests, and all contracts of a package together. The test of features as a whole has none.
func rowOf(name string) string {
	group, test, _ := strings.Cut(name, ":")
	top, feature, _ := strings.Cut(test, "/")
	switch {
	case top == "TestKernelFeatures":
		if strings.HasPrefix(feature, "kernel-") {
			return feature
		}
		return strings.ReplaceAll(feature, "-", " ")
	case group == "packet":
		return "packets: " + top
	case group == "demo" || test == "":
		return group
	}
	return "contracts: " + group
}

// emulators run the unit tests of another architecture: one of 64-bit ARM, and one that is big endian.
var emulators = map[string]string{"arm64": "qemu-aarch64-static", "s390x": "qemu-s390x-static"}

// builtFor are the architectures of releases.
var builtFor = []string{"amd64", "arm64", "ppc64le", "s390x", "riscv64"}

// emulatedPackages encode what the kernel reads, or decide; none of their tests with -short needs a kernel.
var emulatedPackages = strings.Fields(`./ipset ./scheduler ./internal/netkey ./internal/model ./internal/catalog ./internal/plan
	./internal/delta ./internal/config ./internal/kernel/vserver ./internal/kernel/nft ./internal/kernel/conntrack ./internal/cli/...`)

// architectures compiles the program for all architectures of releases, and tests some under an emulator of user programs.
func (c *config) architectures(ctx context.Context, r *recorder) error {
	if err := r.command(ctx, nil, nil, "e2e/install.sh", "emulators"); err != nil {
		return err
	}
	for _, arch := range builtFor {
		out := filepath.Join(os.TempDir(), "kube-ipvs-"+arch)
		env := []string{"CGO_ENABLED=0", "GOARCH=" + arch}
		err := r.command(ctx, nil, env, "go", "build", "-trimpath", "-o", out, "./cmd/kube-ipvs")
		_ = os.Remove(out)
		if err != nil {
			return err
		}
		r.add(result{name: "build:" + arch, outcome: pass})
	}
	for _, arch := range []string{"arm64", "s390x"} {
		args := append([]string{"go", "test", "-short", "-v", "-vet=off", "-timeout=40m", "-exec", emulators[arch]}, emulatedPackages...)
		if err := r.command(ctx, newParser(r, arch, true), []string{"CGO_ENABLED=0", "GOARCH=" + arch}, args...); err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
	}
	return nil
}
