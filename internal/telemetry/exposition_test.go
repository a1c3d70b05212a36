package telemetry_test

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// get scrapes a handler.
func get(t *testing.T, h http.Handler) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("scrape: status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// wants checks that each line is there.
func wants(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains("\n"+text, "\n"+line+"\n") {
			t.Errorf("metrics lack %s", line)
		}
	}
}

// family is what an exposition tells of one metric besides its values.
type family struct {
	typ     string
	labels  map[string]struct{}
	buckets []float64 // buckets of each series that has them, in order, without +Inf
}

// shape is a family in a form that can be compared.
type shape struct {
	Type    string
	Labels  []string
	Buckets []float64
}

func (f *family) shape() shape {
	s := shape{Type: f.typ, Labels: slices.Sorted(maps.Keys(f.labels)), Buckets: slices.Clone(f.buckets)}
	slices.Sort(s.Buckets)
	s.Buckets = slices.Compact(s.Buckets)
	return s
}

var (
	sample = regexp.MustCompile(`^([a-z0-9_]+)(?:\{(.*)\})? \S+$`)
	label  = regexp.MustCompile(`([a-z0-9_]+)="((?:[^"\\]|\\.)*)"`)
)

// parse reads the text format.
func parse(t *testing.T, text string) map[string]*family {
	t.Helper()
	families := map[string]*family{}
	var name string
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if strings.HasPrefix(line, "# TYPE ") {
			name = words[2]
			families[name] = &family{typ: words[3], labels: map[string]struct{}{}}
		}
		if strings.HasPrefix(line, "#") {
			continue
		}
		found := sample.FindStringSubmatch(strings.TrimSpace(line))
		if found == nil || !strings.HasPrefix(found[1], name) {
			t.Fatalf("line of no metric: %s", line)
		}
		families[name].add(t, found[2])
	}
	return families
}

func (f *family) add(t *testing.T, labels string) {
	t.Helper()
	for _, l := range label.FindAllStringSubmatch(labels, -1) {
		if l[1] != "le" {
			f.labels[l[1]] = struct{}{}
			continue
		}
		if bound := number(t, l[2]); l[2] != "+Inf" {
			f.buckets = append(f.buckets, bound)
		}
	}
}

func number(t *testing.T, s string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
