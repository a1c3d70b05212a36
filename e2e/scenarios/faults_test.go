package scenarios_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/testkit/scenario"
)

// TestFailEachCall runs every scenario again and again; each time another kernel
// call fails once. Wherever that is, the kernel must end up as the file says.
func TestFailEachCall(t *testing.T) {
	eachCall(t, scenario.Options{Rough: true}, (*scenario.Fakes).FailCall)
}

// TestCrashAtEachCall is the same with an agent that dies in the middle of the
// call, and is started again.
func TestCrashAtEachCall(t *testing.T) {
	eachCall(t, scenario.Options{Crash: true}, (*scenario.Fakes).CrashAtCall)
}

// callsARoom bounds how many calls of one room fail: scenarios in which the audit
// goes round make calls without end, and the later ones are like the earlier.
const callsARoom = 40

func eachCall(t *testing.T, o scenario.Options, spoil func(f *scenario.Fakes, room string, nth int)) {
	for _, file := range scenario.List(t, "testdata") {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			for room, calls := range count(t, file, o) {
				for nth := 1; nth <= min(calls, callsARoom); nth += step() {
					t.Run(fmt.Sprintf("%s-%d", room, nth), func(t *testing.T) {
						run(t, file, o, func(f *scenario.Fakes) { spoil(f, room, nth) })
					})
				}
			}
		})
	}
}

// step is 1 where there is time, so that every call fails in its turn.
func step() int {
	if testing.Short() {
		return 5 * stride
	}
	return stride
}

// run runs one scenario on a node of its own.
func run(t *testing.T, file string, o scenario.Options, prepare func(*scenario.Fakes)) {
	o.Files, o.Driver = []string{file}, "fakes"
	o.Open = func(work string) (scenario.Driver, error) {
		f := scenario.NewFakes(work)
		prepare(f)
		return f, nil
	}
	scenario.Run(t, o)
}

// count runs a scenario without faults and returns the calls that it makes.
func count(t *testing.T, file string, o scenario.Options) (calls map[string]int) {
	var node *scenario.Fakes
	t.Run("clean", func(t *testing.T) {
		run(t, file, o, func(f *scenario.Fakes) { node = f })
	})
	if node != nil {
		calls = node.Calls()
	}
	return calls
}
