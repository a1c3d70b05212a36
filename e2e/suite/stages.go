package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/kube/binaries"
)

// The levels.
var (
	levelTest = []string{"compile", "race", "faults", "packets", "contracts", "iptables", "alerts", "kube"}
	levelAll  = append(slices.Clone(levelTest), "long", "runner", "fuzz", "kills", "million", "model", "model-guest", "storm", "takeover", "micro")
)

// expand replaces the names of levels by their stages.
func expand(names []string) (stages []string) {
	for _, name := range names {
		switch name {
		case "test":
			stages = append(stages, levelTest...)
		case "all":
			stages = append(stages, levelAll...)
		default:
			stages = append(stages, name)
		}
	}
	return stages
}

// unitLimit bounds one unit of a queue, and guestLimit the life of a guest. The race detector makes programs slow.
const (
	unitLimit      = "15m"
	guestLimit     = "45m"
	raceGuestLimit = "3h"
)

// guestPackages have test binaries that run in guests, or without the race detector on this machine.
var guestPackages = strings.Fields(`./e2e/packet ./e2e/scenarios ./internal/kernel/vserver ./internal/kernel/link ./internal/kernel/nftables
	./internal/kernel/conntrack ./internal/kernel/capture ./internal/kernel/rules ./internal/kernel/nft ./internal/dataplane/ipvs ./internal/dataplane/ipvs/nftrules ./ipset
	./e2e/bench/rawwrite`)

// compiled is the stage that all stages wait for that compile or run tests. Parallel compilers do
// the same work twice, and take the CPUs from guests, whose clients go by the clock.
var compiled = []string{"compile"}

// stages are all stages, those that others need first.
func (c *config) stages() []*stage {
	command := func(args ...string) func(context.Context, *recorder) error {
		return func(ctx context.Context, r *recorder) error { return r.command(ctx, nil, nil, args...) }
	}
	return []*stage{
		{name: "tools", about: "install what the tests need and this machine lacks", cores: 0.5, run: command("e2e/install.sh", "tools", "vm", "uml")},
		{name: "build", about: "the program and the test binaries for guests, compiled once", cores: 1, run: c.build},
		{name: "compile", about: "what the other stages compile, once, before guests need the processors", cores: 1, after: []string{"tools", "build"}, run: c.compile},
		{name: "guests", about: "guest kernels and root file systems, built once into the cache", cores: 0.5, after: []string{"tools", "build"}, run: c.guestKernels},
		{name: "packets", about: "packets and scenario files through the program, in guests side by side", cores: 2, after: []string{"guests"}, behind: compiled, run: c.packets},
		{name: "iptables", about: "iptables mode with packets, by both kinds of iptables", cores: 1, after: []string{"tools", "build"}, behind: compiled, run: c.iptables},
		{name: "race", about: "all packages on fakes and on this kernel, race detector on", cores: 1, spare: true, after: []string{"tools"}, behind: compiled, run: c.raced},
		{name: "contracts", about: "kernel contracts and a smoke of packets on the distribution's kernel", cores: 1, after: []string{"guests"}, behind: compiled, run: c.contracts},
		{name: "faults", about: "each scenario with failing kernel calls and crashes", cores: 1, nice: 5, after: []string{"build"}, behind: compiled, timed: true, run: c.faults},
		{name: "kube", about: "the program with a real API server", cores: 0.5, after: []string{"guests"}, behind: compiled, timed: true, run: c.kube},
		{name: "verify", about: "format, vet on Linux and Darwin, tidy modules", cores: 0.5, spare: true, after: []string{"tools"}, behind: compiled, run: command("make", "verify")},
		{name: "lint", about: "style and import rules", cores: 0.5, spare: true, after: []string{"tools"}, behind: compiled, run: command("make", "lint")},
		{name: "vuln", about: "known vulnerabilities", cores: 0.5, spare: true, after: []string{"tools"}, behind: compiled, run: command("make", "vuln")},
		{name: "alerts", about: "dashboard and alert rules against Prometheus' own engine", cores: 0.5, spare: true, after: []string{"tools"}, behind: compiled, run: c.alerts},
		{name: "demo-ipvs", about: "the demo in ipvs mode", cores: 0.5, after: []string{"guests"}, behind: compiled, timed: true, run: command("make", "demo")},
		{name: "demo-iptables", about: "the demo in iptables mode", cores: 0.5, after: []string{"guests"}, behind: compiled, timed: true, run: command("make", "demo", "MODE=iptables")},
		{name: "scenarios", about: "the scenario files alone, with the program in guests; RUN= some files", cores: 1, after: []string{"guests"}, run: c.scenarios},
		{name: "long", about: "all packages in the sizes that make test leaves out (no -short)", cores: 2, run: c.long},
		{name: "runner", about: "the runner of guests: exit status, output, nothing left behind", cores: 1, after: []string{"guests"}, run: c.runner},
		{name: "fuzz", about: "each fuzz target for FUZZTIME (10s)", cores: 2, run: command("e2e/fuzz.sh")},
		{name: "micro", about: "benchmarks that need no kernel, against the last run here", cores: 2, run: command("e2e/benchstat.sh")},
		{name: "mutants", about: "one condition flipped in each of 94 places: which tests notice; RUN= some", cores: 2, run: command("go", "run", "./e2e/mutants", "-run", cmp.Or(c.pattern, "."))},
		{name: "model", about: "random walks on fakes: OPS=100000 operations, SEED= of the first walk", cores: 2, run: c.model},
		{name: "storm", about: "an API server with 10,000 changes a second for FOR=1m, and a list of 50 MB", cores: 2, run: c.storm},
		{name: "every-fault", about: "N=18 faults a scenario, RUN= one scenario; the table is in bin/faults.txt", cores: 2, run: c.everyFault},
		{name: "nftables", about: "ipvs mode on a kernel without ipset and iptables: packets, scenarios, the demo, no tool", cores: 2, after: []string{"tools", "build"}, run: c.nftables},
		{name: "takeover", about: "kube-proxy in each mode, kube-ipvs, and back, under load", cores: 1, after: []string{"guests"}, run: c.takeover},
		{name: "neighbours", about: "firewalls, managers of links and routing daemons of Debian beside the agent; RUN= some", cores: 1, after: []string{"guests"}, run: c.neighbours},
		{name: "kernels", about: "contracts, packets, the demo and features on kernels of Debian and User-mode Linux, as a table; KERNELS= some", cores: 2, after: []string{"guests"}, run: c.kernels},
		{name: "architectures", about: "build for five, and unit tests of arm64 and s390x (big endian), emulated", cores: 2, run: c.architectures},
		c.single("model-guest", "random walks with the program in a guest, for MINUTES=10 or OPS=1000", single{test: "TestModelOnKernel", scenarios: true, share: "walks"}),
		c.single("kills", "fifty times kill -9 during churn", single{test: "TestKilledAtRandomMoments", env: "KUBE_IPVS_E2E_KILLS=" + or("KUBE_IPVS_E2E_KILLS", "50")}),
		c.single("million", "UDP beside a million flows of other programs", single{test: "TestUDPBesideAMillionFlows", env: "KUBE_IPVS_E2E_MILLION=1"}),
		c.single("soak", "FOR=1h of churn, traffic, faults and restarts", single{test: "TestSoak", env: "KUBE_IPVS_E2E_SOAK=" + or("FOR", "1h")}),
		c.single("repairs", "how long each loss takes to be repaired, and an idle minute, with SERVICES=10,1000", single{test: "TestRepairTimes", env: "KUBE_IPVS_E2E_REPAIRS=" + or("SERVICES", "10,1000")}),
		c.single("nftables-figures", "rules in iptables beside rules in nftables, with KUBE_IPVS_E2E_SERVICES=1000 Services", single{test: "TestNFTablesFigures", env: "KUBE_IPVS_E2E_FIGURES=1 KUBE_IPVS_E2E_SERVICES=" + or("KUBE_IPVS_E2E_SERVICES", "1000")}),
		c.single("queries", "what each query of an operator costs the agent, with N=10000 Services", single{test: "TestQueriesLeaveTheLoopFree", env: "KUBE_IPVS_E2E_SERVICES=" + or("KUBE_IPVS_E2E_SERVICES", "10000")}),
		c.single("recordings", "what the verbs print, into e2e/recordings", single{test: "TestRecordings", env: "KUBE_IPVS_E2E_RECORD=/run/kube-ipvs/out", share: "../e2e/recordings"}),
		c.single("scrapes", "the metrics of a busy node, for the picture of the dashboard", single{test: "TestDashboardData", env: "KUBE_IPVS_E2E_SCRAPES=/run/kube-ipvs/out", share: "scrapes"}),
	}
}

// or returns a variable of the environment, or a default.
func or(name, otherwise string) string {
	return cmp.Or(os.Getenv(name), otherwise)
}

// build compiles what the guests run.
func (c *config) build(ctx context.Context, r *recorder) error {
	dir := filepath.Join(root, "bin/guest")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var env []string
	flags := []string{"-ldflags=-w"}
	if c.race {
		// The detector needs C; a race that it finds in an agent fails the test, see e2e/races.
		env, flags = []string{"CGO_ENABLED=1"}, []string{"-ldflags=-w", "-race", "-tags=netgo,osusergo"}
	}
	return errors.Join(
		r.command(ctx, nil, nil, "go", "build", "-o", "bin/", "./e2e/vm/vmrun", "./e2e/kube/serve"),
		r.command(ctx, nil, env, slices.Concat([]string{"go", "build"}, flags, []string{"-o", dir + "/", "./cmd/kube-ipvs", "./e2e/backend/cmd/backend"})...),
		r.command(ctx, nil, env, slices.Concat([]string{"go", "test", "-c", "-vet=off"}, flags, []string{"-o", dir + "/"}, guestPackages)...))
}

// compile fills the compilers' cache, which takes seconds where it is filled and most of an hour
// where it is empty. A failure here occurs again, and counts, in the stage that needs the package.
func (c *config) compile(ctx context.Context, r *recorder) error {
	list := []string{"go", "list", "-export", "-test", "-deps", "-f", "{{if .Error}}{{.Error}}{{end}}"}
	for _, one := range []struct {
		what string
		env  []string
		args []string
	}{
		{"all packages with the race detector", []string{"CGO_ENABLED=1"}, slices.Concat(list, []string{"-race", "./..."})},
		{"all packages", nil, slices.Concat(list, []string{"./..."})},
		{"all packages for Darwin", []string{"GOOS=darwin"}, slices.Concat(list, darwinPackages)},
		{"the linter and the scanner of vulnerabilities", nil, []string{"make", "checkers"}},
	} {
		r.say("compiling %s", one.what)
		if err := r.command(ctx, nil, one.env, one.args...); err != nil {
			r.say("%v", err)
		}
	}
	if _, err := c.compiledAlerts(ctx, r); err != nil {
		r.say("%v", err)
	}
	return ctx.Err()
}

// darwinPackages are those of make verify.
var darwinPackages = []string{"./cmd/...", "./internal/...", "./ipset/...", "./scheduler/..."}

// guestKernels chooses the guests' kernel and fills the cache with it.
func (c *config) guestKernels(ctx context.Context, r *recorder) error {
	where, err := exec.CommandContext(ctx, filepath.Join(root, "bin/vmrun"), "-where").Output()
	if err != nil {
		return fmt.Errorf("ask where IPVS is: %w", err)
	}
	c.accel = c.kernel
	if strings.TrimSpace(string(where)) == "netns" && c.kernel == "auto" {
		r.say("network namespaces of this machine, whose kernel has IPVS")
		return nil
	}
	if c.kernel == "auto" || inUML(c.kernel) {
		accel := cmp.Or(strings.TrimPrefix(c.kernel, "auto"), "uml")
		err := r.command(ctx, nil, nil, "bin/vmrun", "-prepare", "-accel", accel)
		switch {
		case err == nil:
			c.accel = accel
		case c.kernel != "auto":
			return err
		default:
			c.accel = "qemu"
		}
	}
	if err := r.command(ctx, nil, nil, "bin/vmrun", "-prepare", "-accel", "qemu"); err != nil {
		return err
	}
	r.say("guests run on %s", c.accel)
	return nil
}

// nftKernel is User-mode Linux without ipset and iptables, as vmrun -accel has it.
const nftKernel = "uml-nft"

// inUML reports whether guests are programs of this machine, each with one processor.
func inUML(accel string) bool { return accel == "uml" || accel == nftKernel }

// emulated reports whether guests are slow, and few.
func (c *config) emulated() bool { return !inUML(c.accel) }

// packets runs packet tests and scenario files in one queue.
func (c *config) packets(ctx context.Context, r *recorder) error {
	tests, err := testsOf("e2e/packet", func(name string) bool {
		return c.wanted(name) && !strings.HasPrefix(name, "TestIPTables") && !slices.Contains(distribution, name)
	})
	if err != nil {
		return err
	}
	units := testUnits(c.known, r.stage, "packet", "e2e/packet", tests)
	if c.pattern == "" {
		units = append(units, c.scenarioUnits()...)
		units = append(units, c.kernelUnits(r, false)...)
	}
	c.sort(r.stage, units)
	return c.pool(r.stage, units).run(ctx, r)
}

// scenarios runs the scenario files without the packet tests.
func (c *config) scenarios(ctx context.Context, r *recorder) error {
	return c.pool(r.stage, c.scenarioUnits()).run(ctx, r)
}

// sort puts the slowest unit first.
func (c *config) sort(stage string, units []unit) {
	slices.SortStableFunc(units, func(a, b unit) int {
		return int(c.known.of(stage, b.name) - c.known.of(stage, a.name))
	})
}

// wanted reports whether a test is part of this run.
func (c *config) wanted(test string) bool {
	return c.pattern == "" || regexp.MustCompile(c.pattern).MatchString(test)
}

// scenarioBatches is the number of units that the scenario files are dealt into: enough to fill the last minutes of the queue evenly.
const scenarioBatches = 24

// scenarioUnits deals the scenario files into batches.
func (c *config) scenarioUnits() []unit {
	units := c.scenarioTest("TestOnKernel")
	if len(units) == 0 {
		return nil
	}
	return append(units, unit{"scenarios:AcrossProcesses", testScript("scenarios", "e2e/scenarios", "AcrossProcesses", "")})
}

// scenarioTest returns the units of a test that runs each file as a subtest. Files of iptables mode are left out.
func (c *config) scenarioTest(test string) (units []unit) {
	files, _ := filepath.Glob(filepath.Join(root, "e2e/scenarios/testdata/*.txtar"))
	var names []string
	for _, file := range files {
		if name := strings.TrimSuffix(filepath.Base(file), ".txtar"); !strings.HasPrefix(name, "iptables") && c.wanted(name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	for i, batch := range c.known.deal("scenario", names, scenarioBatches) {
		pattern := "^" + test + "$/^(" + strings.Join(batch, "|") + ")$"
		units = append(units, unit{fmt.Sprintf("scenarios:batch-%02d", i), testScript("scenarios", "e2e/scenarios", pattern, "")})
	}
	return units
}

// pool returns the guests for a queue that any of them can work through.
func (c *config) pool(name string, units []unit) *pool {
	p := &pool{
		name: name, units: units, guests: c.guests, accel: c.accel, need: "ipvs", memory: 2048, limit: guestLimit,
		copies: []string{"kube-ipvs"},
	}
	for _, pkg := range guestPackages {
		p.copies = append(p.copies, filepath.Base(pkg)+".test")
	}
	if c.race {
		p.limit = raceGuestLimit
	}
	if p.guests == 0 {
		p.guests = 3
		if c.emulated() {
			p.guests = 2
		}
	}
	return p
}

// Tests of modules that come later need a kernel with modules that can be removed, and come first, for other tests load more of them. The
// memory limit of a control group has no effect in User-mode Linux. The clock is set last.
var (
	lateModules  = []string{"TestIPVSAppears", "TestRestrictedPodGetsModules", "TestSchedulerModulesLoadBesideEndingPods"}
	smoke        = []string{"TestTruthTable", "TestVIPAnswersPing", "TestRestartsFailNoRequest", "TestKilledForMemory", "TestClockJumps"}
	distribution = []string{"TestNFTablesWithoutModules", "TestIPVSAppears", "TestRestrictedPodGetsModules", "TestSchedulerModulesLoadBesideEndingPods", "TestKilledForMemory", "TestClockJumps"} // in no other stage
)

// removeIPVS takes the modules of IPVS out of the kernel of a guest, or ends the unit. A module
// that was just used may take a moment until it can be removed.
const removeIPVS = `for try in {1..30}; do modprobe -r $(lsmod | sed -n 's/^\(ip_vs_[^ ]*\|xt_ipvs\) .*/\1/p') ip_vs && break; sleep 1; done
[ ! -e /proc/net/ip_vs ] || { echo 'the modules of IPVS cannot be removed'; exit 1; }
`

// removeIPSet takes ipset and iptables out of the kernel of a guest. The test is skipped where that fails.
const removeIPSet = "modprobe -r nft_compat xt_set; modprobe -r ip_set x_tables\n"

// kernelUnits returns a unit for each package that speaks to the kernel: all of its tests, or the contracts that fakes and kernels share.
func (c *config) kernelUnits(r *recorder, contracts bool) (units []unit) {
	for _, pkg := range guestPackages {
		name, pattern := filepath.Base(pkg), "."
		if contracts {
			pattern = "Contract"
		}
		switch name {
		case "packet", "scenarios":
			continue
		case "ipvs":
			pattern = "TestOnKernel" // the rest of it runs natively
			if contracts {
				continue
			}
		case "rawwrite":
			if contracts {
				continue
			}
		case "capture":
			pattern = "."
		case "rules":
			if hasIPTables() {
				r.say("internal/kernel/rules runs in the race stage: this machine's kernel has iptables")
				continue
			}
		}
		units = append(units, unit{name + ":kernel", testScript(name, strings.TrimPrefix(pkg, "./"), pattern, "")})
	}
	return units
}

// contracts runs on the kernel that distributions ship, in one boot.
func (c *config) contracts(ctx context.Context, r *recorder) error {
	p := c.pool(r.stage, c.wantedUnits(c.distributionUnits(r)))
	p.guests, p.accel = 1, "qemu"
	return p.run(ctx, r)
}

// wantedUnits leaves the units that RUN chooses, by their names with or without what stands before the last colon.
func (c *config) wantedUnits(all []unit) []unit {
	return slices.DeleteFunc(all, func(u unit) bool {
		return !c.wanted(u.name) && !c.wanted(u.name[strings.LastIndex(u.name, ":")+1:])
	})
}

// packetUnit runs one packet test, after some lines of shell.
func packetUnit(test, before, env string) unit {
	return unit{"packet:" + test, before + testScript("packet", "e2e/packet", "^"+test+"$", env)}
}

// distributionUnits are for a kernel with modules: contracts, what happens without modules, and a smoke of packets.
func (c *config) distributionUnits(r *recorder) []unit {
	units := []unit{packetUnit("TestNFTablesWithoutModules", removeIPSet, "")}
	for _, test := range lateModules {
		units = append(units, packetUnit(test, removeIPVS, ""))
	}
	units = append(units, c.kernelUnits(r, true)...)
	for _, test := range smoke {
		units = append(units, packetUnit(test, "modprobe -a ip_vs ip_vs_rr || exit 1\n", "KUBE_IPVS_E2E_CLOCK=1"))
	}
	return units
}

// hasIPTables reports whether tests of rules run on this machine's own kernel, with both backends.
func hasIPTables() bool {
	return exec.Command("unshare", "-n", "sh", "-c", "iptables-nft -t nat -S PREROUTING && iptables-legacy -t nat -S PREROUTING").Run() == nil
}

// iptables runs iptables mode in namespaces of this machine, or in guests.
func (c *config) iptables(ctx context.Context, r *recorder) error {
	tests, err := testsOf("e2e/packet", func(name string) bool { return c.wanted(name) && strings.HasPrefix(name, "TestIPTables") })
	if err != nil {
		return err
	}
	units := testUnits(c.known, r.stage, "packet", "e2e/packet", tests)
	if c.wanted("TestIPTablesOnKernel") {
		units = append(units, unit{"scenarios:TestIPTablesOnKernel", testScript("scenarios", "e2e/scenarios", "^TestIPTablesOnKernel$", "")})
	}
	c.sort(r.stage, units)
	p := c.pool(r.stage, units)
	p.need, p.guests, p.accel = "iptables", 4, "auto"
	return p.run(ctx, r)
}

// raced runs all packages with the race detector, the slowest first.
func (c *config) raced(ctx context.Context, r *recorder) error {
	out, err := exec.CommandContext(ctx, "go", "list", "./...").Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	var packages []string
	for _, path := range strings.Fields(string(out)) {
		packages = append(packages, shortPackage(path))
	}
	r.plan(len(packages), "packages")
	return r.race(ctx, c.known.slowestFirst(r.stage, packages)...)
}

// race runs packages with the race detector, in their order.
func (r *recorder) race(ctx context.Context, packages ...string) error {
	args := []string{"go", "test", "-race", "-short", "-v", "-vet=off", "-ldflags=-w", "-timeout=40m"}
	for _, pkg := range packages {
		args = append(args, "./"+strings.TrimPrefix(pkg, module))
	}
	// By default a program with the detector sleeps for a second at its end.
	return r.command(ctx, newParser(r, "race", true), []string{"CGO_ENABLED=1", "GORACE=atexit_sleep_ms=10"}, args...)
}

// faults runs the scenarios on fakes with trouble, without the race detector, which has them with less of it.
func (c *config) faults(ctx context.Context, r *recorder) error {
	pattern := c.pattern
	if pattern == "" {
		pattern = "."
	}
	script := fmt.Sprintf("cd e2e/scenarios && exec %s -test.v -test.timeout 40m -test.run '%s'", filepath.Join(root, "bin/guest/scenarios.test"), pattern)
	return r.command(ctx, newParser(r, "faults", false), nil, "bash", "-c", script)
}

// alertPackages are those of e2e/alerts, a module of its own.
var alertPackages = map[string]string{"rules": ".", "evaluate": "evaluate"}

// alerts runs the tests of a module of its own, whose binary is kept in the cache as long as its sources are the same.
func (c *config) alerts(ctx context.Context, r *recorder) error {
	dir, err := c.compiledAlerts(ctx, r)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(alertPackages)) {
		run := fmt.Sprintf("cd e2e/alerts/%s && exec %s -test.v", alertPackages[name], filepath.Join(dir, name+".test"))
		if err := r.command(ctx, newParser(r, name, false), nil, "bash", "-c", run); err != nil {
			return err
		}
	}
	return nil
}

// compiledAlerts returns the folder of the binaries, which it compiles where they are not in the cache.
func (c *config) compiledAlerts(ctx context.Context, r *recorder) (string, error) {
	sum, err := hashOf("e2e/alerts")
	if err != nil {
		return "", err
	}
	dir := filepath.Join(c.cache, "alerts-"+sum)
	for name, pkg := range alertPackages {
		binary := filepath.Join(dir, name+".test")
		if _, err := os.Stat(binary); err == nil {
			continue
		}
		r.say("compiling the engine of Prometheus, once")
		build := fmt.Sprintf("cd e2e/alerts && go vet ./%s && go test -c -o %s.new ./%s && mv %s.new %s", pkg, binary, pkg, binary, binary)
		if err := r.command(ctx, nil, nil, "bash", "-c", build); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// kube runs where the control plane is in the cache: its build takes longer than everything else.
func (c *config) kube(ctx context.Context, r *recorder) error {
	if _, err := binaries.Find(); errors.Is(err, binaries.ErrNotBuilt) && !c.buildControlPlane {
		return skipped("etcd and kube-apiserver are not in the cache: make e2e WHAT=kube builds them, which takes some 13 minutes, and runs this stage")
	} else if err != nil && !errors.Is(err, binaries.ErrNotBuilt) {
		return err
	}
	env := []string{"KUBE_IPVS_E2E_OUTAGE=" + (45 * time.Second).String()}
	return r.command(ctx, newParser(r, "kube", false), env, "e2e/test-kube.sh")
}
