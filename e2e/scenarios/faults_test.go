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

var every = flag.Bool("every", false, "let every call of every scenario fail in its turn, which takes an hour")

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

func eachCall(t *testing.T, o scenario.Options, spoil func(f *scenario.Fakes, room string, nth int)) {
	for _, file := range scenario.List(t, "testdata") {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		if few && o.Crash != (turn(name, 2) == 0) {
			continue // the other of the two tests has this scenario
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, p := range picks(name, count(t, file, o)) {
				t.Run(fmt.Sprintf("%s-%d", p.room, p.nth), func(t *testing.T) {
					run(t, file, o, func(f *scenario.Fakes) { spoil(f, p.room, p.nth) })
				})
			}
		})
	}
}

// pick is one call of one room, counted from 1.
type pick struct {
	room string
	nth  int
}

// picksARoom is how many calls of a room fail in one scenario. Most calls are like
// those of all other scenarios: each begins by making forty sets.
const picksARoom = 3

// picks chooses the calls to spoil: all of a room that has few, else some, evenly
// spread. Each scenario begins at another, so that together they meet every call.
func picks(scene string, calls map[string]int) []pick {
	var all []pick
	for _, room := range scenario.Rooms() {
		n := calls[room]
		stride := (n + picksARoom - 1) / picksARoom
		if *every {
			stride = 1
		}
		for i := 0; i < n; i += stride {
			all = append(all, pick{room, i + 1 + turn(scene+room, min(stride, n-i))})
		}
	}
	if (few || testing.Short()) && len(all) > 0 && !*every {
		at := turn(scene, len(all))
		all = all[at : at+1]
	}
	return all
}

// turn is a number below n that differs from text to text.
func turn(text string, n int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(text))
	return int(h.Sum32() % uint32(n))
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
