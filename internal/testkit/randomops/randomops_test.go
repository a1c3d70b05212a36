package randomops_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/testkit/randomops"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/scenario"
)

// forgetful is a node whose kernel drops a virtual server of a Service, once an agent of it was killed.
type forgetful struct {
	randomops.Node
	killed bool
}

const lost = "10.96.0.3:"

func (f *forgetful) Kill() error {
	f.killed = true
	return f.Node.Kill()
}

func (f *forgetful) Text(kind string) (string, error) {
	text, err := f.Node.Text(kind)
	if kind != "servers" || !f.killed {
		return text, err
	}
	var left strings.Builder
	for line := range strings.Lines(text) {
		if !strings.Contains(line, lost) {
			left.WriteString(line)
		}
	}
	return left.String(), err
}

func search(t *testing.T, open func() randomops.Node) *randomops.Search {
	return &randomops.Search{
		Open:     func() (randomops.Node, error) { return open(), nil },
		Patience: 3 * time.Second, Again: 20 * time.Millisecond, Tries: 2, Budget: randomops.Budget{Runs: 500, Time: time.Hour},
		Dir: t.TempDir(), Count: &randomops.Count{}, Repeat: func(w randomops.Walk) string { return fmt.Sprintf("again %d", w.Seed) },
	}
}

// failing finds a walk that meets the injected mistake.
func failing(t *testing.T, h *randomops.Search) (randomops.Walk, error) {
	for seed := range uint64(20) {
		w := randomops.New(seed, 120, randomops.Fakes)
		if err := h.Try(w); err != nil {
			return w, err
		}
	}
	t.Fatal("no walk met what the node forgets")
	return randomops.Walk{}, nil
}

// The rest of a shrunk walk is what the failure needs, and its scenario file fails in the same way.
func TestFailureShrinksToAScenario(t *testing.T) {
	broken := func() randomops.Node { return &forgetful{Node: randomops.NewFakes()} }
	h := search(t, broken)
	w, err := failing(t, h)
	for _, want := range []string{fmt.Sprintf("seed %d: ", w.Seed), fmt.Sprintf("repeat: again %d", w.Seed), lost, ".txtar"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the failure does not say %q:\n%v", want, err)
		}
	}
	file := filepath.Join(h.Dir, fmt.Sprintf("walk-%d.txtar", w.Seed))
	text, errRead := os.ReadFile(file)
	if errRead != nil {
		t.Fatal(errRead)
	}
	steps, _, _ := strings.Cut(string(text), "-- manifests/")
	done := slices.DeleteFunc(strings.Split(strings.TrimSpace(steps), "\n"), func(l string) bool { return strings.HasPrefix(l, "#") })
	// host, start, the Service, kill and start, heal and agree; one more where a slice or another agent is part of it.
	if len(done) > 10 {
		t.Errorf("%d steps are left of %d operations:\n%s", len(done), len(w.Ops), text)
	}
	scenario.Run(t, scenario.Options{
		Files: []string{file}, Driver: "fakes",
		Open: func(work string) (scenario.Driver, error) { return scenario.NewFakes(work), nil },
	})
}

func TestWalkFollowsFromItsSeed(t *testing.T) {
	one, same, other := randomops.New(7, 300, randomops.Fakes), randomops.New(7, 300, randomops.Fakes), randomops.New(8, 300, randomops.Fakes)
	if diff := cmp.Diff(one, same); diff != "" {
		t.Errorf("the same seed made another walk:\n%s", diff)
	}
	if cmp.Equal(one.Ops, other.Ops) {
		t.Error("another seed made the same walk")
	}
	seen := map[randomops.Verb]int{}
	for _, o := range one.Ops {
		seen[o.Verb]++
	}
	for _, v := range []randomops.Verb{randomops.Put, randomops.Remove, randomops.Spoil, randomops.Host, randomops.Stop, randomops.Kill, randomops.Fault, randomops.Damage, randomops.Look, randomops.Quiet} {
		if seen[v] == 0 {
			t.Errorf("no operation %s among 300", v)
		}
	}
}

// A kernel does not fail on demand.
func TestWalkOnKernelHasNoFaults(t *testing.T) {
	for _, o := range randomops.New(7, 2000, randomops.Kernel).Ops {
		if o.Verb == randomops.Fault || o.Verb == randomops.Hops || o.Verb == randomops.Host && len(o.Args) == 0 {
			t.Fatalf("%s", o)
		}
	}
}

// Any part of a walk can be done: the walk passes, and so does its script.
func TestAnyPartOfAWalkCanBeDone(t *testing.T) {
	whole := randomops.New(11, 200, randomops.Fakes)
	for part := range 3 {
		t.Run(fmt.Sprint(part), func(t *testing.T) {
			t.Parallel()
			w := whole
			w.Ops = nil
			for i, o := range whole.Ops {
				if i%4 == part || i == len(whole.Ops)-1 {
					w.Ops = append(w.Ops, o)
				}
			}
			if f := randomops.Run(randomops.NewFakes(), w, 5*time.Second, &randomops.Count{}); f != nil {
				t.Errorf("%v\n%s", f, f.Log)
			}
			file := filepath.Join(t.TempDir(), "part.txtar")
			if err := os.WriteFile(file, randomops.Script(w, "a part of a walk"), 0o644); err != nil {
				t.Fatal(err)
			}
			scenario.Run(t, scenario.Options{
				Files: []string{file}, Driver: "fakes",
				Open: func(work string) (scenario.Driver, error) { return scenario.NewFakes(work), nil },
			})
		})
	}
}

// Foreign rows that are deleted are reported.
func TestForeignRowsAreMissed(t *testing.T) {
	w := randomops.Walk{Foreign: true, Ops: []randomops.Operation{{Verb: randomops.Quiet}}}
	if f := randomops.Run(randomops.NewFakes(), w, 5*time.Second, &randomops.Count{}); f != nil {
		t.Fatalf("%v\n%s", f, f.Log)
	}
	f := randomops.Run(&thief{Node: randomops.NewFakes()}, w, 0, &randomops.Count{})
	if f == nil || !strings.Contains(f.Error(), "rows of another program are gone") || !strings.Contains(f.Error(), "198.51.100.77") {
		t.Errorf("a foreign server went: %v", f)
	}
}

// thief is an agent that takes a server that is not its own.
type thief struct{ randomops.Node }

func (n *thief) Start(s scenario.Start) error {
	if err := n.Tool(strings.Fields("ipvsadm -D -t 198.51.100.77:80")); err != nil {
		return err
	}
	return n.Node.Start(s)
}

func TestShrinkKeepsWhatItTakes(t *testing.T) {
	w := randomops.Walk{Foreign: true}
	for i := range 100 {
		w.Ops = append(w.Ops, randomops.Operation{Verb: randomops.Look, Args: []string{fmt.Sprint(i)}})
	}
	w.Ops = append(w.Ops, randomops.Operation{Verb: randomops.Quiet})
	runs := 0
	fails := func(w randomops.Walk) bool {
		runs++
		text := fmt.Sprint(w.Ops)
		return strings.Contains(text, "look 17") && strings.Contains(text, "look 83")
	}
	got := randomops.Shrink(w, fails, randomops.Budget{Runs: 1000, Time: time.Minute})
	if fmt.Sprint(got.Ops) != "[look 17 look 83 quiet]" || got.Foreign || len(w.Ops) != 101 {
		t.Errorf("left: %v, foreign %t", got.Ops, got.Foreign)
	}
	runs = 0
	if got := randomops.Shrink(w, fails, randomops.Budget{Runs: 5, Time: time.Minute}); runs != 5 || !fails(got) {
		t.Errorf("%d runs of 5, left %v", runs, got.Ops)
	}
}
