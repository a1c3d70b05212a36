package scenarios_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"

	"github.com/kube-ipvs/kube-ipvs/internal/testkit/scenario"
)

// tally counts faults by kind and kernel package.
type tally struct {
	mu    sync.Mutex
	cells map[cell]*counts
}

type cell struct{ name, pkg string }

type counts struct{ tried, survived, told int }

func newTally() *tally { return &tally{cells: map[cell]*counts{}} }

func (t *tally) count(name, pkg string, survived, told bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range []cell{{name, pkg}, {name, ""}, {"", pkg}, {"", ""}} {
		if t.cells[c] == nil {
			t.cells[c] = &counts{}
		}
		t.cells[c].tried++
		if survived {
			t.cells[c].survived++
		}
		if told {
			t.cells[c].told++
		}
	}
}

// String is the table, "survived/tried" a cell. Those that last until the agent has told
// of them have another column; a fault that a scenario ends sooner has no report.
func (t *tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	packages := append(scenario.Packages(), "")
	fmt.Fprintf(w, "SURVIVED/TRIED\t%s\tall\ttold\n", strings.Join(scenario.Packages(), "\t"))
	names := []string{}
	for _, p := range faultPlan() {
		names = append(names, p.name)
	}
	for _, name := range append(names, "") {
		label := name
		if label == "" {
			label = "all"
		}
		fmt.Fprint(w, label)
		for _, pkg := range packages {
			fmt.Fprintf(w, "\t%s", t.cells[cell{name, pkg}])
		}
		fmt.Fprintf(w, "\t%s\n", t.told(name))
	}
	_ = w.Flush() // into memory
	return b.String()
}

var tableFile = flag.String("table", "", "where to write the table of faults")

// write logs the table, and writes it where it is wanted.
func (t *tally) write(test *testing.T) {
	test.Logf("\n%s", t)
	if *tableFile == "" {
		return
	}
	if err := os.WriteFile(*tableFile, []byte(t.String()), 0o644); err != nil {
		test.Error(err)
	}
}

// told is how many of a kind that lasts were told of.
func (t *tally) told(name string) string {
	lasts := slices.ContainsFunc(faultPlan(), func(p plan) bool { return p.name == name && p.Times == 0 })
	if c := t.cells[cell{name, ""}]; lasts && c != nil {
		return strconv.Itoa(c.told)
	}
	return ""
}

// String is a dash for what does not exist.
func (c *counts) String() string {
	if c == nil {
		return "-"
	}
	return fmt.Sprintf("%d/%d", c.survived, c.tried)
}

func TestTally(t *testing.T) {
	faults := newTally()
	faults.count("hangs for a while", "sets", true, true)
	faults.count("hangs for a while", "sets", false, false)
	faults.count("EPERM", "links", true, false)
	for _, want := range []string{"hangs for a while - 1/2 - - 1/2 1 ", "EPERM - - - 1/1 1/1 EPERM", "all - 1/2 - 1/1 2/3"} {
		if got := strings.Join(strings.Fields(faults.String()), " "); !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, faults)
		}
	}
}
