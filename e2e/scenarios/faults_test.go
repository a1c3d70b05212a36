package scenarios_test

import (
	"flag"
	"fmt"
	"hash/fnv"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/testkit/scenario"
)

var every = flag.Bool("every", false, "try every kind of fault and a crash at every call of every scenario, which takes a day")

// plan is one kind of fault as the table has it.
type plan struct {
	name string
	scenario.Trouble
}

// faultPlan has every fault of calls to the kernel packages.
func faultPlan() []plan {
	plans := []plan{
		{"fails once", scenario.Trouble{Kind: scenario.Fail, Times: 1}},
		{"fails for a while", scenario.Trouble{Kind: scenario.Fail}},
		{"hangs once", scenario.Trouble{Kind: scenario.Hang, Times: 1}},
		{"hangs for a while", scenario.Trouble{Kind: scenario.Hang}},
		{"answers late", scenario.Trouble{Kind: scenario.Late, Times: 3}},
		{"loses its reply", scenario.Trouble{Kind: scenario.Lost, Times: 1}},
		{"loses replies for a while", scenario.Trouble{Kind: scenario.Lost, Times: 5}},
		{"interrupted mid-dump", scenario.Trouble{Kind: scenario.Interrupted, Times: 1}},
		{"interrupted for a while", scenario.Trouble{Kind: scenario.Interrupted, Times: 5}},
		{"one row refused for a while", scenario.Trouble{Kind: scenario.Fail, Row: true}},
		{"one row's reply lost", scenario.Trouble{Kind: scenario.Lost, Row: true, Times: 1}},
	}
	for _, errno := range scenario.Errnos() {
		plans = append(plans,
			plan{string(errno), scenario.Trouble{Kind: errno, Times: 1}},
			plan{string(errno) + " for a while", scenario.Trouble{Kind: errno, Times: 5}},
			plan{string(errno) + " for one row", scenario.Trouble{Kind: errno, Row: true, Times: 5}})
	}
	return plans
}

// TestFaults runs every scenario again and again; each time a kernel call goes wrong in
// another way. Wherever that is, the agent answers and tells of it meanwhile, and the
// kernel ends up as in the file.
func TestFaults(t *testing.T) {
	faults := newTally()
	t.Cleanup(func() { faults.write(t) })
	eachScenario(t, scenario.NewFakes, scenario.List(t, "testdata"), scenario.Options{Rough: true}, func(t *testing.T, file, name string, calls map[string]int) {
		for _, a := range attempts(name, calls, *faultsAScenario) {
			t.Run(a.String(), func(t *testing.T) { a.run(t, scenario.NewFakes, file, faults) })
		}
	})
}

// TestNFTFaults is the same with rules and sets in nftables, and with a few faults in each scenario.
func TestNFTFaults(t *testing.T) {
	faults := newTally()
	eachScenario(t, scenario.NewNFTFakes, withNFT(t), scenario.Options{Rough: true}, func(t *testing.T, file, name string, calls map[string]int) {
		for _, a := range attempts(name, calls, *faultsAScenario/8) {
			t.Run(a.String(), func(t *testing.T) { a.run(t, scenario.NewNFTFakes, file, faults) })
		}
	})
}

// TestCrashAtEachCall is the same with an agent that dies in the middle of the
// call, and is started again.
func TestCrashAtEachCall(t *testing.T) {
	o := scenario.Options{Crash: true}
	eachScenario(t, scenario.NewFakes, scenario.List(t, "testdata"), o, func(t *testing.T, file, name string, calls map[string]int) {
		for _, p := range some(name, picks(name, calls), 1) {
			t.Run(fmt.Sprintf("%s-%d", p.pkg, p.nth), func(t *testing.T) {
				run(t, scenario.NewFakes, file, o, func(f *scenario.Fakes) { f.CrashAtCall(p.pkg, p.nth) })
			})
		}
	})
}

// opener makes a node.
type opener func(work string) *scenario.Fakes

func eachScenario(t *testing.T, open opener, files []string, o scenario.Options, spoil func(t *testing.T, file, name string, calls map[string]int)) {
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		if few && o.Crash != (turn(name, 2) == 0) {
			continue // the other of the two tests has this scenario
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spoil(t, file, name, count(t, open, file, o))
		})
	}
}

// attempt is one fault at one call.
type attempt struct {
	plan
	pick
}

func (a attempt) String() string {
	return fmt.Sprintf("%s-%d-%s", a.pkg, a.nth, strings.ReplaceAll(a.name, " ", "-"))
}

// faultsAScenario is how many of all faults at all picked calls one scenario has. All
// scenarios together have each fault in each kernel package many times.
var faultsAScenario = flag.Int("faults", 18, "how many faults each scenario has, evenly spread over kinds and calls")

func attempts(scene string, calls map[string]int, most int) []attempt {
	var all []attempt
	for _, p := range picks(scene, calls) {
		for _, f := range faultPlan() {
			all = append(all, attempt{f, p})
		}
	}
	return some(scene, all, most)
}

// run tries one fault. A fault that does not occur, because no such call is made or none can fail
// in this way, is not counted.
func (a attempt) run(t *testing.T, open opener, file string, faults *tally) {
	var node *scenario.Fakes
	trouble := a.Trouble
	trouble.Package, trouble.Call = a.pkg, a.nth
	run(t, open, file, scenario.Options{Rough: true}, func(f *scenario.Fakes) {
		node = f
		f.Trouble(trouble)
	})
	t.Cleanup(func() {
		if node == nil {
			return
		}
		if err := node.StatusFaults(); err != nil {
			t.Errorf("%v; the log:\n%s", err, node.Log())
		}
		if node.Struck() {
			faults.count(a.name, a.pkg, !t.Failed(), node.Told())
		}
	})
}

// pick is one call of one kernel package, counted from 1.
type pick struct {
	pkg string
	nth int
}

// picksAPackage is how many calls of a kernel package are picked in one scenario. Most calls are like
// those of all other scenarios: each begins by making forty sets.
const picksAPackage = 3

// picks chooses the calls that fail: all of a package with few calls, else some, evenly spread.
// Each scenario begins at another, so that together they meet every call.
func picks(scene string, calls map[string]int) []pick {
	var all []pick
	for _, pkg := range scenario.Packages() {
		n := calls[pkg]
		stride := (n + picksAPackage - 1) / picksAPackage
		if *every {
			stride = 1
		}
		for i := 0; i < n; i += stride {
			all = append(all, pick{pkg, i + 1 + turn(scene+pkg, min(stride, n-i))})
		}
	}
	return all
}

// some chooses as many as most, and under the race detector or with -short one. They are
// evenly spread, and others in each scenario.
func some[T any](scene string, all []T, most int) []T {
	if few || testing.Short() {
		most = 1
	}
	if *every || len(all) <= most {
		return all
	}
	out := make([]T, 0, most)
	for i := range most {
		from, to := i*len(all)/most, (i+1)*len(all)/most
		out = append(out, all[from+turn(fmt.Sprint(scene, i), to-from)])
	}
	return out
}

// turn is a number below n that differs from text to text.
func turn(text string, n int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(text))
	return int(h.Sum32() % uint32(n))
}

// run runs one scenario on a node of its own.
func run(t *testing.T, open opener, file string, o scenario.Options, prepare func(*scenario.Fakes)) {
	o.Files, o.Driver = []string{file}, "fakes"
	o.Open = func(work string) (scenario.Driver, error) {
		f := open(work)
		prepare(f)
		return f, nil
	}
	scenario.Run(t, o)
}

// count runs a scenario without faults and returns the calls that it makes.
func count(t *testing.T, open opener, file string, o scenario.Options) (calls map[string]int) {
	var node *scenario.Fakes
	t.Run("clean", func(t *testing.T) {
		run(t, open, file, o, func(f *scenario.Fakes) { node = f })
	})
	if node != nil {
		calls = node.Calls()
	}
	return calls
}
