package main

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

// dataless are panels that have nothing to show of an agent that is as it was in the sample.
var dataless = map[string]string{
	"Age of watches": "it read manifests, and watched no API server",
}

// sample is the dashboard over testdata/scrapes. These are two of the scrapes behind the committed picture, 15 s apart. They have
// only a part of the lines that the dashboard reads.
func sample(t *testing.T) *picture {
	t.Helper()
	d, err := readDashboard("../../../manifests/monitoring/kube-ipvs.dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	kept, err := readScrapes("testdata/scrapes")
	if err != nil {
		t.Fatal(err)
	}
	out, err := evaluate(t.Context(), d, kept, "node-a", 15*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Every panel shows something, each line by a name of its own.
func TestPanelsShowSomething(t *testing.T) {
	drawn := 0
	for _, p := range sample(t).Panels {
		if p.Type == "row" {
			continue
		}
		drawn++
		named := map[string]bool{}
		points := 0
		for _, s := range p.Series {
			if s.Legend == "" || named[s.Legend] {
				t.Errorf("panel %s: two lines, or one without a name, are %q", p.Title, s.Legend)
			}
			named[s.Legend] = true
			for _, v := range s.Values {
				if v != nil {
					points++
				}
			}
		}
		if why, expected := dataless[p.Title]; expected != (points == 0) {
			t.Errorf("panel %s: %d points of %d series; expected to be empty: %t %s", p.Title, points, len(p.Series), expected, why)
		}
	}
	if drawn < 20 {
		t.Errorf("%d panels, want 20 at least", drawn)
	}
}

// A rate is that of what the scrapes say, and a line ends where its series does.
func TestEvaluate(t *testing.T) {
	dir := t.TempDir()
	for name, page := range map[string]string{
		"1000000": "c{a=\"x\"} 0\ng 5\n", "1015000": "c{a=\"x\"} 30\ng 6\n", "1030000": "c{a=\"x\"} 60\n", "1045000": "",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := readScrapes(dir)
	if err != nil {
		t.Fatal(err)
	}
	d := &dashboard{Panels: []panel{{Title: "p", Targets: []target{
		{Expr: `rate(c{instance=~"$node"}[$__rate_interval])`, LegendFormat: "{{a}} on {{ instance }}"}, {Expr: "g"},
	}}}}
	d.Templating.List = []struct{ Name, Label, AllValue string }{{"node", "Node", ".*"}}
	got, err := evaluate(t.Context(), d, kept, "n", 15*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if lines := got.Panels[0].Series; len(lines) != 2 || lines[0].Legend != "x on n" || lines[1].Legend != `{__name__="g", instance="n", job="kube-ipvs"}` {
		t.Fatalf("lines %+v", lines)
	}
	rate, gauge := got.Panels[0].Series[0].Values, got.Panels[0].Series[1].Values
	if rate[0] != nil || rate[2] == nil || math.Abs(*rate[2]-2*30.0/60) > 1e-9 {
		t.Errorf("rate %v, want none of one sample and 60 in 60s of three", rate)
	}
	if gauge[1] == nil || *gauge[1] != 6 || gauge[2] != nil || gauge[3] != nil {
		t.Errorf("gauge %v, want none where a scrape has it no longer", gauge)
	}
}

func TestFill(t *testing.T) {
	known := map[string]string{"a": "1", "__rate_interval": "1m"}
	if got, err := fill(`x{b="$a"}[$__rate_interval] ${a}`, known); err != nil || got != `x{b="1"}[1m] 1` {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := fill("x[$__range]", known); err == nil || !strings.Contains(err.Error(), "$__range") {
		t.Errorf("an unknown variable: %v", err)
	}
}

func TestScrapesThatAreNone(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"a name that is no time": {"README": ""},
		"one alone":              {"1000": "a 1\n"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, page := range files {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(page), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if kept, err := readScrapes(dir); err == nil {
				t.Errorf("read %d", len(kept))
			}
		})
	}
	bad := scrape{at: time.UnixMilli(1), page: []byte("a{ 1\n")}
	if err := bad.add(nil, labels.EmptyLabels(), nil); err == nil {
		t.Error("a page that is none is read")
	}
}
