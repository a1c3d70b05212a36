package report_test

import (
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/measure"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/report"
)

var update = flag.Bool("update", false, "write the expectations in testdata; look at the diff")

var machine = measure.Machine{Where: "vm", Kernel: "6.1.0", CPU: "QEMU Virtual CPU", CPUs: 2, Memory: 3072, IPTables: "iptables v1.8.9 (nf_tables)"}

func samples(times ...measure.Seconds) measure.Samples {
	var waits []measure.Wait
	for _, t := range times {
		waits = append(waits, measure.Wait{Seconds: t})
	}
	return measure.Summarize(waits)
}

// fast, slow and late are results of three candidates: one with everything, one with less, and one that did not finish its start.
func fast(services int) *report.Result {
	floor := samples(0.002, 0.003)
	return &report.Result{
		Candidate: "kube-ipvs", Services: services, Endpoints: 10, Machine: machine, Speeds: []float64{100, 120},
		Start: &report.Start{First: measure.Wait{Seconds: 0.5}, Last: measure.Wait{Seconds: 0.8}, Quiet: measure.Wait{Seconds: 1.1},
			Cost: measure.Cost{User: 0.6, System: 0.2}, RSS: 84.25, Probes: 100},
		Idle:     &report.Idle{Length: 30, Cost: measure.Cost{User: 0.02, System: 0.01}},
		Endpoint: &report.Changes{Samples: samples(0.004, 0.004, 0.0041, 0.0041), CPU: 0.0004, Floor: &floor},
		Service:  &report.Changes{Samples: samples(0.006, 0.006, 0.0063, 0.0063), CPU: 0.0009},
		Traffic: &report.Traffic{
			Connections: report.Paths{Service: report.Path{Requests: 4900, Length: 5, P99: 0.0021}, Direct: report.Path{Requests: 5000, Length: 5, P99: 0.002}},
			Requests:    report.Paths{Service: report.Path{Requests: 61000, Length: 5, P99: 0.0003}, Direct: report.Path{Requests: 62000, Length: 5, P99: 0.0003}},
		},
		Roll:  &report.Roll{Endpoints: 500, Writes: 25, Done: measure.Wait{Seconds: 0.01}, Asked: 900},
		Churn: &report.Churn{Changes: 1000, Length: 20, Probes: samples(0.005, 0.0055), CatchUp: measure.Wait{Seconds: 0.1}, RSS: 90},
	}
}

func slow(services int) *report.Result {
	r := &report.Result{
		Candidate: "kube-proxy-ipvs", Services: services, Endpoints: 10, Machine: machine, Began: time.Unix(1, 0), Speeds: []float64{100, 140},
		Start: &report.Start{First: measure.Wait{Seconds: 8}, Last: measure.Wait{Seconds: 80.44}, Quiet: measure.Wait{Seconds: 130},
			Cost: measure.Cost{User: 60, System: 38}, RSS: 85.5, Unanswered: 3},
		Idle:     &report.Idle{Length: 60, Cost: measure.Cost{User: 14.8}},
		Endpoint: &report.Changes{Samples: samples(4, 4, 6, 6), CPU: 5.5},
	}
	r.Churn = &report.Churn{Probes: measure.Summarize([]measure.Wait{{Seconds: 17}, {Seconds: 20, Over: true}})}
	r.Skip("roll", "no endpoint has answered yet")
	return r
}

func late(services int) *report.Result {
	over := measure.Wait{Seconds: 1200, Over: true}
	r := &report.Result{Candidate: "kube-proxy-nftables", Services: services, Endpoints: 10, Machine: machine, Began: time.Unix(2, 0), Start: &report.Start{First: over, Last: over, Quiet: over}}
	r.Skip("endpoint", "the start was not over after 20m0s")
	return r
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func TestTable(t *testing.T) {
	var out strings.Builder
	if err := report.Table(&out, []*report.Result{fast(100), slow(100), fast(1000), slow(1000), late(1000)}); err != nil {
		t.Fatal(err)
	}
	golden(t, "table.md", out.String())
}

func TestBars(t *testing.T) {
	var out strings.Builder
	if err := report.Bars(&out, []*report.Result{fast(100), slow(100), fast(1000), slow(1000), late(1000)}); err != nil {
		t.Fatal(err)
	}
	golden(t, "bars.svg", out.String())
	decoder := xml.NewDecoder(strings.NewReader(out.String()))
	for {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the picture is not XML: %v", err)
		}
	}
}

// TestREADMEQuotesTheResults: each row of the README's table stands in the table of results.
func TestREADMEQuotesTheResults(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	_, after, _ := strings.Cut(read("../../../README.md"), "\n## Against kube-proxy\n")
	section, _, _ := strings.Cut(after, "\n## ")
	results, quoted := read("../results/README.md"), 0
	for line := range strings.Lines(section) {
		if strings.HasPrefix(line, "|") {
			quoted++
			if !strings.Contains(results, line) {
				t.Errorf("results/README.md has no row %s", line)
			}
		}
	}
	if quoted < 5 {
		t.Errorf("the README quotes %d rows, want a table", quoted)
	}
}

// TestBarsOfNothing: results without one of the drawn figures are a picture of a legend.
func TestBarsOfNothing(t *testing.T) {
	var out strings.Builder
	if err := report.Bars(&out, []*report.Result{{Candidate: "a<b", Services: 1}}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "a&lt;b") || strings.Contains(out.String(), "NaN") {
		t.Errorf("the picture is %s", out.String())
	}
}
