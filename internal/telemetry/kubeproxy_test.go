package telemetry_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// row is one line of testdata/kube-proxy.txt.
type row struct {
	path, name string
	want       shape
	anyBuckets bool
	verdict    string
}

func (r row) served() bool { return r.verdict == "served" || strings.HasPrefix(r.verdict, "served; ") }

// Every metric of kube-proxy is either served exactly as it is there, or absent for a
// reason that is written down. -v prints the table.
func TestMetricsOfKubeProxy(t *testing.T) {
	metrics, slis := fed(t)
	shown := map[string]map[string]*family{"/metrics": parse(t, metrics), "/metrics/slis": parse(t, slis)}
	rows := readRows(t)
	t.Log("\n" + table(rows))
	for _, r := range rows {
		t.Run(strings.TrimPrefix(r.path, "/")+"/"+r.name, func(t *testing.T) { r.check(t, shown[r.path][r.name]) })
	}
	for path, families := range shown {
		for name := range families {
			if !unlisted(name) && !slices.ContainsFunc(rows, func(r row) bool { return r.path == path && r.name == name }) {
				t.Errorf("%s: %s is neither ours nor listed as kube-proxy's", path, name)
			}
		}
	}
}

func (r row) check(t *testing.T, got *family) {
	t.Helper()
	if !r.served() {
		if got != nil {
			t.Error("it is served, and the table says that it is absent")
		}
		return
	}
	if got == nil {
		t.Fatal("it is absent, and the table says that it is served")
	}
	opts := cmp.Options{cmpopts.EquateEmpty(), cmpopts.EquateApprox(1e-9, 0)}
	if r.anyBuckets {
		opts = append(opts, cmpopts.IgnoreFields(shape{}, "Buckets"))
	}
	if diff := cmp.Diff(r.want, got.shape(), opts); diff != "" {
		t.Errorf("shape (-want +got):\n%s", diff)
	}
}

// table tells an operator which panels of a kube-proxy dashboard still work.
func table(rows []row) string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "METRIC\tTYPE\tLABELS\tKUBE-IPVS")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.name, r.want.Type, strings.Join(r.want.Labels, ","), r.verdict)
	}
	_ = w.Flush() // a strings.Builder takes everything
	return out.String()
}

// unlisted metrics need no line: ours, and the rest of the Go runtime's.
func unlisted(name string) bool {
	return slices.ContainsFunc([]string{"kube_ipvs_", "go_", "process_"}, func(p string) bool { return strings.HasPrefix(name, p) })
}

func readRows(t *testing.T) []row {
	t.Helper()
	text, err := os.ReadFile("testdata/kube-proxy.txt")
	if err != nil {
		t.Fatal(err)
	}
	var rows []row
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 6 {
			t.Fatalf("%d cells in %q", len(cells), line)
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		r := row{path: cells[0], name: cells[1], anyBuckets: cells[4] == "*", verdict: cells[5]}
		r.want = shape{Type: cells[2], Labels: strings.Fields(cells[3])}
		if !r.anyBuckets {
			r.want.Buckets = buckets(t, cells[4])
		}
		if reason, absent := strings.CutPrefix(r.verdict, "absent: "); !r.served() && (!absent || reason == "") {
			t.Fatalf("%s: the verdict is neither served nor absent for a reason: %q", r.name, r.verdict)
		}
		rows = append(rows, r)
	}
	return rows
}

// buckets reads the notation that the head of the table explains.
func buckets(t *testing.T, text string) (out []float64) {
	t.Helper()
	for _, word := range strings.Fields(text) {
		first, rest, isRange := strings.Cut(word, "..")
		from := number(t, first)
		if !isRange {
			out = append(out, from)
			continue
		}
		i := strings.IndexAny(rest, "/*")
		if i < 0 {
			t.Fatalf("range without a step: %s", word)
		}
		to, step := number(t, rest[:i]), number(t, rest[i+1:])
		for v := from; v <= to*(1+1e-9); {
			out = append(out, v)
			if rest[i] == '*' {
				v *= step
			} else {
				v += step
			}
		}
	}
	return out
}
