package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// nopLog is the log of a recorder that tests look at.
type nopLog struct{ io.Writer }

func (nopLog) Close() error { return nil }

func testRecorder(stage string) *recorder {
	return &recorder{stage: stage, log: nopLog{io.Discard}, begun: time.Now(), now: map[string]string{}, units: map[string]time.Duration{}}
}

// brief is what tests compare of results.
func brief(results []result) (lines []string) {
	for _, r := range results {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", r.outcome, r.name, r.took, r.reason)))
	}
	return lines
}

const packages = `=== RUN   TestA
=== RUN   TestA/sub
    a_test.go:12: not on this kernel
--- PASS: TestA (1.50s)
    --- SKIP: TestA/sub (0.00s)
PASS
ok  	github.com/kube-ipvs/kube-ipvs/internal/plan	1.700s
?   	github.com/kube-ipvs/kube-ipvs/internal/testkit	[no test files]
=== RUN   TestB
    b_test.go:3: got 1, want 2
--- FAIL: TestB (0.10s)
FAIL
FAIL	github.com/kube-ipvs/kube-ipvs/ipset	0.200s
FAIL	github.com/kube-ipvs/kube-ipvs/scheduler [build failed]
`

func TestParserNamesThePackageOfEachTest(t *testing.T) {
	r := testRecorder("race")
	p := newParser(r, "race", true)
	for _, part := range []string{packages[:40], packages[40:]} { // lines arrive in pieces
		_, _ = p.Write([]byte(part))
	}
	want := []string{
		"PASS internal/plan:TestA 1.5s",
		"SKIP internal/plan:TestA/sub 0s not on this kernel",
		"FAIL ipset:TestB 100ms",
		"FAIL scheduler: 0s",
	}
	if diff := cmp.Diff(want, brief(r.results)); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	if out := strings.Join(r.results[2].output, "\n"); !strings.Contains(out, "got 1, want 2") {
		t.Errorf("the failure lost its output: %q", out)
	}
	if r.done != 4 || r.units["internal/plan"] != 1700*time.Millisecond {
		t.Errorf("done = %d of 4 packages, units = %v", r.done, r.units)
	}
}

func TestParserFailsAUnitThatEndsWithoutAResult(t *testing.T) {
	r := testRecorder("packets")
	p := newParser(r, "guest-0", false)
	_, _ = io.WriteString(p, "=== ITEM packet:TestX\n=== RUN   TestX\npanic: test timed out\n=== DONE packet:TestX 2\n")
	_, _ = io.WriteString(p, "=== ITEM packet:TestY\n=== RUN   TestY\n--- PASS: TestY (0.01s)\n=== DONE packet:TestY 0\n=== ITEM packet:TestZ\n=== RUN   TestZ\n")
	_, _ = io.WriteString(newParser(r, "guest-1", false), "=== ITEM packet:TestRenamed\ntesting: warning: no tests to run\nPASS\n=== DONE packet:TestRenamed 0\n")
	if diff := cmp.Diff([]string{"FAIL packet:TestX", "PASS packet:TestY", "FAIL packet:"}, outcomes(r.results)); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	if !slices.Contains(r.results[0].output, "panic: test timed out") {
		t.Errorf("the failure lost its output: %q", r.results[0].output)
	}
	want := []unit{{name: "packet:TestX"}, {name: "packet:TestRenamed"}}
	if got := r.unitsFailed(append(want, unit{name: "packet:TestY"})); !slices.Equal(got, want) {
		t.Errorf("units that failed: %v, want %v", got, want)
	}
	if p.unit != "packet:TestZ" {
		t.Errorf("unit = %q, want the one that the guest was at", p.unit)
	}
}

func outcomes(results []result) (lines []string) {
	for _, r := range results {
		lines = append(lines, string(r.outcome)+" "+r.name)
	}
	return lines
}

func TestDealGivesTheSlowestFirst(t *testing.T) {
	known := durations{"s/a": 10, "s/b": 1, "s/c": 2, "s/d": 7}
	got := known.deal("s", []string{"a", "b", "c", "d"}, 2)
	if diff := cmp.Diff([][]string{{"a"}, {"d", "c", "b"}}, got); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
	if got := known.slowestFirst("s", []string{"b", "new", "a"}); !slices.Equal(got, []string{"new", "a", "b"}) {
		t.Errorf("order = %q, want an unknown test first", got)
	}
}

func TestDurationsAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache", "durations.json")
	d := loadDurations(path)
	d.set("packets", "packet:TestLimits", 1234*time.Millisecond)
	if err := d.save(path); err != nil {
		t.Fatal(err)
	}
	if got := loadDurations(path).of("packets", "packet:TestLimits"); got != 1230*time.Millisecond {
		t.Errorf("kept %s", got)
	}
	if err := os.WriteFile(path, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := loadDurations(path); len(got) != 0 {
		t.Errorf("a broken file is read as %v", got)
	}
}

// trial runs stages on a schedule and returns the order of their starts and their verdicts.
func trial(t *testing.T, capacity float64, stages []*stage) (order []string, verdicts map[string]verdict) {
	t.Helper()
	var mu sync.Mutex
	for _, st := range stages {
		run := st.run
		st.run = func(ctx context.Context, r *recorder) error {
			mu.Lock()
			order = append(order, st.name)
			mu.Unlock()
			return run(ctx, r)
		}
	}
	s := newSchedule(stages, capacity)
	s.recorder = func(st *stage) *recorder { return testRecorder(st.name) }
	s.ended = func(*stage, *recorder) {}
	s.run(t.Context())
	return order, s.verdicts
}

func TestScheduleBlocksWhatNeedsAFailedStage(t *testing.T) {
	ok := func(context.Context, *recorder) error { return nil }
	order, verdicts := trial(t, 2, []*stage{
		{name: "packets", after: []string{"guests"}, run: ok},
		{name: "guests", run: func(context.Context, *recorder) error { return errors.New("no kernel") }},
		{name: "kube", after: []string{"control"}, run: ok},
		{name: "control", run: func(context.Context, *recorder) error { return skipped("not in the cache") }},
		{name: "lint", after: []string{"not part of this run"}, run: func(_ context.Context, r *recorder) error {
			r.add(result{name: "TestX", outcome: fail})
			return nil
		}},
	})
	want := map[string]verdict{"packets": blocked, "guests": failed, "kube": passed, "control": absent, "lint": failed}
	if diff := cmp.Diff(want, verdicts); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
	if slices.Contains(order, "packets") {
		t.Error("a stage ran without what it needs")
	}
}

// TestScheduleRunsBehind: a stage waits for those that it is behind, also if they fail, and not for those that are not part of the run.
func TestScheduleRunsBehind(t *testing.T) {
	ok := func(context.Context, *recorder) error { return nil }
	order, verdicts := trial(t, 2, []*stage{
		{name: "packets", behind: []string{"compile"}, run: ok},
		{name: "compile", after: []string{"tools"}, run: func(context.Context, *recorder) error { return errors.New("offline") }},
		{name: "tools", run: ok},
		{name: "lint", behind: []string{"not part of this run"}, run: ok},
	})
	if verdicts["packets"] != passed || verdicts["lint"] != passed || slices.Index(order, "packets") < slices.Index(order, "compile") {
		t.Errorf("ran %q with %v", order, verdicts)
	}
}

// TestWhatFailsRunsOnceMoreAlone has stages that fail beside others: those whose parts all pass alone are unsteady.
func TestWhatFailsRunsOnceMoreAlone(t *testing.T) {
	lost := func(times int) func(context.Context, *recorder) error {
		tries := 0
		return func(_ context.Context, r *recorder) error {
			if tries++; tries <= times {
				r.add(result{name: "TestX", outcome: fail})
			}
			return nil
		}
	}
	parts := func(again ...func(context.Context, *recorder) error) func(context.Context, *recorder) error {
		return func(_ context.Context, r *recorder) error {
			for i, run := range again {
				r.mayRepeat(fmt.Sprint(r.stage, " ", i), run)
			}
			return errors.New("failed")
		}
	}
	_, verdicts := trial(t, 2, []*stage{
		{name: "once", timed: true, run: lost(1)},
		{name: "twice", timed: true, run: lost(2)},
		{name: "lint", run: lost(1)},
		{name: "units", run: parts(lost(0), lost(0))},
		{name: "one bad unit", run: parts(lost(0), lost(1))},
		{name: "race", run: func(_ context.Context, r *recorder) error {
			_, _ = io.WriteString(newParser(r, "race", true), "WARNING: DATA RACE\n--- FAIL: TestA (0.01s)\nFAIL\nFAIL\t"+module+"/internal/plan\t0.1s\n")
			return errors.New("failed")
		}},
	})
	want := map[string]verdict{"once": unsteady, "twice": failed, "lint": failed, "units": unsteady, "one bad unit": failed, "race": failed}
	if diff := cmp.Diff(want, verdicts); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
	if _, verdicts = trial(t, 2, []*stage{{name: "units", run: parts(slices.Repeat([]func(context.Context, *recorder) error{lost(0)}, maxRepeats+1)...)}}); verdicts["units"] != failed {
		t.Errorf("%d units failed by accident, it says", maxRepeats+1)
	}
}

// TestScheduleKeepsToTheProcessors has two stages that want a processor each, and one processor.
func TestScheduleKeepsToTheProcessors(t *testing.T) {
	var mu sync.Mutex
	busy, most := 0, 0
	run := func(context.Context, *recorder) error {
		mu.Lock()
		busy++
		most = max(most, busy)
		mu.Unlock()
		time.Sleep(10 * time.Millisecond)
		mu.Lock()
		busy--
		mu.Unlock()
		return nil
	}
	var stages []*stage
	for i := range 6 {
		stages = append(stages, &stage{name: fmt.Sprint(i), cores: 1, run: run})
	}
	if trial(t, 1, stages); most != 1 {
		t.Errorf("%d stages at once on one processor", most)
	}
	// A stage that wants more than there is runs alone.
	if order, _ := trial(t, 1, []*stage{{name: "large", cores: 2, run: run}}); len(order) != 1 {
		t.Errorf("ran %q", order)
	}
}

// TestScheduleFillsWhatIsLeft: a stage that takes what others leave runs beside one that has all processors.
func TestScheduleFillsWhatIsLeft(t *testing.T) {
	together := make(chan struct{})
	meet := func(context.Context, *recorder) error {
		select {
		case together <- struct{}{}:
		case <-together:
		case <-time.After(time.Minute):
			return errors.New("no other stage ran beside it")
		}
		return nil
	}
	_, verdicts := trial(t, 2, []*stage{{name: "packets", cores: 2, run: meet}, {name: "race", cores: 1, spare: true, run: meet}})
	if want := map[string]verdict{"packets": passed, "race": passed}; !maps.Equal(verdicts, want) {
		t.Errorf("verdicts %v", verdicts)
	}
}

func TestChooseBringsWhatIsNeeded(t *testing.T) {
	all := []*stage{{name: "build"}, {name: "guests", after: []string{"build"}}, {name: "packets", after: []string{"guests"}}, {name: "lint"}}
	got, err := choose(all, []string{"packets"})
	if err != nil || !slices.Equal(stageNames(got), []string{"build", "guests", "packets"}) {
		t.Errorf("choose = %q, %v", stageNames(got), err)
	}
	if _, err := choose(all, []string{"packet"}); err == nil || !strings.Contains(err.Error(), "want one of build, guests, packets, lint") {
		t.Errorf("an unknown stage is answered by %v", err)
	}
}

// TestEveryStageIsWhole looks for a name twice, and for a need or level that does not exist.
func TestEveryStageIsWhole(t *testing.T) {
	c := &config{known: durations{}}
	all := c.stages()
	names := stageNames(all)
	slices.Sort(names)
	if unique := slices.Compact(slices.Clone(names)); len(unique) != len(names) {
		t.Errorf("a name is used twice: %q", names)
	}
	if _, err := choose(all, slices.Concat(names, expand([]string{"test", "all"}))); err != nil {
		t.Error(err)
	}
	for _, s := range all {
		if s.about == "" || s.run == nil {
			t.Errorf("stage %s is not whole", s.name)
		}
	}
}

// TestNamedTestsExist looks for a test that was renamed.
func TestNamedTestsExist(t *testing.T) {
	old := root
	root, _ = filepath.Abs("../..")
	t.Cleanup(func() { root = old })
	got, err := testsOf("e2e/packet", func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Concat(smoke, distribution, lateModules) {
		if !slices.Contains(got, name) {
			t.Errorf("e2e/packet has no %s", name)
		}
	}
}

func TestSummary(t *testing.T) {
	var out strings.Builder
	p := &reporter{out: &out, begun: time.Now()}
	r := testRecorder("packets")
	r.add(result{name: "packet:TestSlow", outcome: pass, took: 90 * time.Second})
	r.add(result{name: "packet:TestParent", outcome: pass, took: 95 * time.Second})
	r.add(result{name: "packet:TestParent/child", outcome: pass, took: 80 * time.Second})
	r.add(result{name: "packet:TestGone", outcome: skip, reason: "no SCTP in this kernel"})
	r.add(result{name: "packet:TestBad", outcome: fail})
	r.finish(failed, nil)
	p.ended = []*recorder{r}
	p.summary([]*stage{{name: "packets"}})
	shaky := testRecorder("iptables")
	shaky.finish(failed, nil)
	shaky.unsteady([]repeat{{name: "packet:TestIPTablesTruthTable"}})
	p.ended = append(p.ended, shaky)
	out.Reset()
	p.summary([]*stage{{name: "packets"}, {name: "iptables"}})
	for _, want := range []string{"iptables  unsteady", "unsteady: iptables: failed beside others", "  packet:TestIPTablesTruthTable\n", "packets    FAILED", "3       1        1", "1  no SCTP in this kernel", "1m30s  packets     packet:TestSlow", "packet:TestParent/child", "FAILED: packets", "  packet:TestBad"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the summary lacks %q:\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "packet:TestParent\n") {
		t.Error("a test with subtests is among the slowest beside them")
	}
}

// TestWorkersShareTheQueue runs two workers as guests do, but in directories of this machine.
func TestWorkersShareTheQueue(t *testing.T) {
	old := root
	root = t.TempDir()
	t.Cleanup(func() { root = old })
	if err := os.Mkdir(filepath.Join(root, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	p := &pool{}
	for i := range 20 {
		p.units = append(p.units, unit{fmt.Sprintf("x:Test%02d", i), fmt.Sprintf("sleep 0.01; exit %d", i%2)})
	}
	dir, err := p.fill()
	if err != nil {
		t.Fatal(err)
	}
	r := testRecorder("packets")
	var workers sync.WaitGroup
	for i := range 2 {
		workers.Go(func() {
			script := strings.ReplaceAll(workerScript, "/run/kube-ipvs/queue", dir)
			_ = r.command(t.Context(), newParser(r, fmt.Sprint(i), false), nil, "bash", "-c", script)
		})
	}
	workers.Wait()
	if r.done != 20 || r.counts().failed != 10 {
		t.Errorf("%d of 20 units done, %d of 10 failed", r.done, r.counts().failed)
	}
	if lost := r.unitsFailed(p.units); len(lost) != 10 || lost[0].name != "x:Test01" {
		t.Errorf("units to repeat: %v", lost)
	}
	if left, _ := os.ReadDir(filepath.Join(dir, "todo")); len(left) != 0 {
		t.Errorf("%d units are left", len(left))
	}
}

func TestUsage(t *testing.T) {
	t.Chdir("../..")
	for _, tt := range []struct {
		args []string
		want int
		text string
	}{
		{[]string{"-h"}, statusOK, "Examples:"},
		{[]string{"-list"}, statusOK, "packets"},
		{nil, statusUsage, "name a stage"},
		{[]string{"-kernel", "bsd", "test"}, statusUsage, "want auto, uml, uml-nft, qemu or kvm"},
		{[]string{"nothing"}, statusUsage, `no stage is called "nothing"`},
	} {
		var out strings.Builder
		if got := run(t.Context(), tt.args, &out, &out); got != tt.want || !strings.Contains(out.String(), tt.text) {
			t.Errorf("suite %q = %d, want %d and %q:\n%s", tt.args, got, tt.want, tt.text, &out)
		}
	}
}

func TestTestsOf(t *testing.T) {
	old := root
	root, _ = filepath.Abs("../..")
	t.Cleanup(func() { root = old })
	got, err := testsOf("e2e/suite", func(name string) bool { return strings.HasPrefix(name, "TestP") })
	if err != nil || !slices.Equal(got, []string{"TestParserFailsAUnitThatEndsWithoutAResult", "TestParserNamesThePackageOfEachTest"}) {
		t.Errorf("testsOf = %q, %v", got, err)
	}
}

func TestKernelTable(t *testing.T) {
	results := []result{
		{name: "old:packet:TestKernelFeatures/kernel-5.10.0-30-amd64", outcome: pass},
		{name: "old:packet:TestKernelFeatures/scheduler-rr", outcome: pass},
		{name: "old:packet:TestKernelFeatures/scheduler-twos", outcome: skip},
		{name: "new:packet:TestKernelFeatures/scheduler-twos", outcome: pass},
		{name: "old:packet:TestKernelFeatures/sloppy_tcp", outcome: pass},
		{name: "old:packet:TestKernelFeatures", outcome: pass},
		{name: "old:vserver:TestContract", outcome: pass},
		{name: "old:vserver:TestContract/add", outcome: pass},
		{name: "new:vserver:TestContract/add", outcome: fail},
		{name: "old:packet:TestTruthTable/tcp", outcome: pass},
		{name: "old:packet:TestTruthTable/sctp", outcome: skip},
		{name: "old:demo", outcome: pass},
	}
	want := `kernel                   old 5.10.0-30-amd64  new
scheduler rr             yes                  
scheduler twos           no                   yes
sloppy_tcp               yes                  
contracts: vserver       2 pass               1 FAILED of 1
packets: TestTruthTable  1 pass, 1 skipped    
demo                     yes                  
`
	if got := kernelTable([]string{"old", "new"}, results); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
