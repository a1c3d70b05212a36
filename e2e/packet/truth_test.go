package packet

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// cell is one question of a truth table: a word of each dimension, in their order.
type cell [5]string

// The dimensions, by their place in a cell.
const (
	dimClient = iota
	dimFrontend
	dimInternal
	dimExternal
	dimEnds
)

// words are what each dimension can be, in the order of the report.
var words = [5][]string{
	dimClient:   {"pod", "pod-elsewhere", "host", "outside"},
	dimFrontend: {"ClusterIP", "ExternalIP", "LoadBalancer", "NodePort"},
	dimInternal: {"Cluster", "Local"},
	dimExternal: {"Cluster", "Local"},
	dimEnds:     {"local", "remote", "terminating", "none"},
}

// answer is the entry of a truth table for a cell.
type answer struct{ outcome, source string }

// answered are the outcomes of a request that reached a backend; they, and only they, have a source.
var (
	answered   = []string{"any", "here"}
	unanswered = []string{"refused", "dropped"}
)

// cells is the full product of the dimensions.
func cells() []cell {
	out := []cell{{}}
	for d, choices := range words {
		var longer []cell
		for _, c := range out {
			for _, word := range choices {
				c[d] = word
				longer = append(longer, c)
			}
		}
		out = longer
	}
	return out
}

// readTruth reads a truth table and proves that it answers each cell once.
func readTruth(text string) (map[cell]answer, error) {
	truth, err := readLines(text)
	errs := []error{err}
	for _, c := range cells() {
		if _, known := truth[c]; !known {
			errs = append(errs, fmt.Errorf("%v is in no line", c))
		}
	}
	return truth, errors.Join(errs...)
}

// readDifferences reads the rows in which another truth differs from a whole one, and proves that they are no more than that.
func readDifferences(text string, whole map[cell]answer) (map[cell]answer, error) {
	differs, err := readLines(text)
	errs := []error{err}
	for c, says := range differs {
		if whole[c] == says {
			errs = append(errs, fmt.Errorf("%v is %v anyway", c, says))
		}
	}
	return differs, errors.Join(errs...)
}

// readLines reads rows and proves that none answers a cell again.
func readLines(text string) (map[cell]answer, error) {
	truth, from := map[cell]answer{}, map[cell]int{}
	var errs []error
	number := 0
	for line := range strings.Lines(text) {
		number++
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		matched, says, err := readRow(line)
		if err != nil {
			errs = append(errs, fmt.Errorf("line %d: %w", number, err))
		}
		for _, c := range matched {
			if from[c] > 0 {
				errs = append(errs, fmt.Errorf("line %d: %v is in line %d already", number, c, from[c]))
			}
			truth[c], from[c] = says, number
		}
	}
	return truth, errors.Join(errs...)
}

// readRow returns the cells that a row is about, and its answer.
func readRow(line string) ([]cell, answer, error) {
	fields := strings.Fields(line)
	if len(fields) != len(words)+2 {
		return nil, answer{}, fmt.Errorf("%d words, want %d", len(fields), len(words)+2)
	}
	says := answer{fields[len(words)], fields[len(words)+1]}
	if !says.valid() {
		return nil, answer{}, fmt.Errorf("%v is no outcome and source", says)
	}
	for d, field := range fields[:len(words)] {
		for _, word := range strings.Split(field, "|") {
			if word != "*" && !slices.Contains(words[d], word) {
				return nil, answer{}, fmt.Errorf("%q is none of %q", word, words[d])
			}
		}
	}
	return slices.DeleteFunc(cells(), func(c cell) bool { return !c.in(fields) }), says, nil
}

// in reports whether a row's first fields cover the cell.
func (c cell) in(fields []string) bool {
	for d, word := range c {
		if fields[d] != "*" && !slices.Contains(strings.Split(fields[d], "|"), word) {
			return false
		}
	}
	return true
}

func (a answer) valid() bool {
	if slices.Contains(answered, a.outcome) {
		return a.source == "own" || a.source == "node"
	}
	return slices.Contains(unanswered, a.outcome) && a.source == "-"
}

// The tables that the kernel has to agree with, under one setting each.
const (
	truthFile         = "testdata/truth.txt"
	masqueradeAllFile = "testdata/truth-masquerade-all.txt"
	noDetectorFile    = "testdata/truth-no-detector.txt"
	// iptablesFile is how each of them differs in iptables mode.
	iptablesFile = "testdata/iptables-differs.txt"
)

func truth(t *testing.T, file string) map[cell]answer {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out, err := readTruth(string(text))
	if err != nil {
		t.Fatalf("%s:\n%v", file, err)
	}
	return out
}

// truthOfIPTables is a table as iptables mode has it.
func truthOfIPTables(t *testing.T, file string) map[cell]answer {
	t.Helper()
	all := truth(t, file)
	text, err := os.ReadFile(iptablesFile)
	if err != nil {
		t.Fatal(err)
	}
	differs, err := readDifferences(string(text), all)
	if err != nil {
		t.Fatalf("%s beside %s:\n%v", iptablesFile, file, err)
	}
	maps.Copy(all, differs)
	return all
}

// TestTruthOfIPTablesDiffersLittle: iptables mode has the same truth but for what is written down, in each of the tables.
func TestTruthOfIPTablesDiffersLittle(t *testing.T) {
	for _, file := range []string{truthFile, masqueradeAllFile, noDetectorFile} {
		if all := truthOfIPTables(t, file); len(all) != len(cells()) {
			t.Errorf("%s: %d cells, want the full product", file, len(all))
		}
	}
	whole := truth(t, truthFile)
	for _, tt := range []struct{ name, text, want string }{
		{"no difference", "pod ClusterIP Local Local none refused -", "[pod ClusterIP Local Local none] is {refused -} anyway"},
		{"more than the difference", "host|pod ExternalIP Local Local remote any node", "[host ExternalIP Local Local remote] is {any node} anyway"},
		{"twice", "pod ClusterIP Local Local none dropped -\n* ClusterIP Local Local none dropped -", "line 2: [pod ClusterIP Local Local none] is in line 1 already"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := readDifferences(tt.text, whole); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %s", err, tt.want)
			}
		})
	}
}

// TestTruthIsWhole reads each table, and holds what the first means at some cells that its wildcards decide.
func TestTruthIsWhole(t *testing.T) {
	for _, file := range []string{truthFile, masqueradeAllFile, noDetectorFile} {
		if all := truth(t, file); len(all) != 4*4*2*2*4 {
			t.Errorf("%s: %d cells, want the full product", file, len(all))
		}
	}
	all := truth(t, truthFile)
	for c, want := range map[cell]answer{
		{"outside", "NodePort", "Cluster", "Local", "none"}:              {"refused", "-"},
		{"pod", "ClusterIP", "Local", "Cluster", "remote"}:               {"dropped", "-"},
		{"pod-elsewhere", "ClusterIP", "Local", "Cluster", "remote"}:     {"here", "own"},
		{"pod", "LoadBalancer", "Local", "Local", "local"}:               {"any", "own"},
		{"pod", "LoadBalancer", "Local", "Cluster", "local"}:             {"any", "node"},
		{"host", "NodePort", "Cluster", "Local", "terminating"}:          {"any", "node"},
		{"outside", "ExternalIP", "Local", "Local", "terminating"}:       {"here", "own"},
		{"pod-elsewhere", "NodePort", "Cluster", "Local", "remote"}:      {"dropped", "-"},
		{"pod-elsewhere", "ExternalIP", "Cluster", "Local", "remote"}:    {"any", "own"},
		{"outside", "ClusterIP", "Cluster", "Local", "local"}:            {"any", "node"},
		{"host", "ClusterIP", "Local", "Local", "terminating"}:           {"here", "node"},
		{"outside", "LoadBalancer", "Cluster", "Cluster", "terminating"}: {"any", "node"},
	} {
		if all[c] != want {
			t.Errorf("%v: %v, want %v", c, all[c], want)
		}
	}
}

func TestTruthRefuses(t *testing.T) {
	const all = "* * * * * any own\n"
	for _, tt := range []struct{ name, text, want string }{
		{"nothing", "# only words\n", "[pod ClusterIP Cluster Cluster local] is in no line"},
		{"a gap", "pod|host|outside * * * * any own", "[pod-elsewhere ClusterIP Cluster Cluster local] is in no line"},
		{"an overlap", all + "pod ClusterIP Local Local none refused -", "line 2: [pod ClusterIP Local Local none] is in line 1 already"},
		{"an unknown word", all + "pods * * * * any own", `line 2: "pods" is none of ["pod" "pod-elsewhere" "host" "outside"]`},
		{"a word of another column", all + "* Local * * * any own", `line 2: "Local" is none of`},
		{"an unknown outcome", "* * * * * reached own", "line 1: {reached own} is no outcome and source"},
		{"an answer without a source", "* * * * * here -", "line 1: {here -} is no outcome and source"},
		{"a source without an answer", "* * * * * dropped own", "line 1: {dropped own} is no outcome and source"},
		{"a missing column", "* * * * any own", "line 1: 6 words, want 7"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := readTruth(tt.text)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %s", err, tt.want)
			}
		})
	}
}
