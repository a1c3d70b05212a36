package report_test

import (
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/cell"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/report"
)

var update = flag.Bool("update", false, "rewrite the expectations in testdata; look at the diff")

// machine of the cells of tests.
var machine = cell.Machine{Where: "vm", Kernel: "6.1.0", CPU: "QEMU Virtual CPU", CPUs: 2, Memory: 3072, IPTables: "iptables v1.8.9 (nf_tables)"}

// fast, slow and late are cells of three candidates: one with everything, the baseline, and one that never finished to start.
func fast(services int) *cell.Cell {
	return &cell.Cell{
		Candidate: "kube-ipvs", Services: services, Endpoints: 10, Machine: machine, LaunchesBy: "the kernel's process events",
		Before: &cell.Calibration{Spins: 100}, After: &cell.Calibration{Spins: 120},
		Start: &cell.Start{
			First: cell.Wait{Seconds: 0.5}, Server: &cell.Wait{Seconds: 0.4}, Last: cell.Wait{Seconds: 0.8}, Quiet: cell.Wait{Seconds: 1.1},
			Cost: cell.Cost{User: 0.6, System: 0.2, Launches: 12}, Memory: cell.Memory{RSS: 84.25}, Probes: 100,
		},
		Counted: &cell.Counted{Programmed: &cell.Wait{Seconds: 0.9}, Last: cell.Wait{Seconds: 0.9}, Quiet: cell.Wait{Seconds: 1.2},
			Traffic: cell.Traffic{"NETLINK_GENERIC": {Messages: 1100, Bytes: 110_000, FromMessages: 40, FromBytes: 4000}, "NETLINK_ROUTE": {Messages: 7, Bytes: 5000, FromMessages: 2, FromBytes: 200}},
			Writing: map[string]cell.Seconds{"sets": 0.05, "ipvs": 0.25, "rules": 0.1}},
		Unasked:  &cell.Unasked{Quiet: cell.Wait{Seconds: 0.9}, Writing: map[string]cell.Seconds{"sets": 0.05, "ipvs": 0.3, "rules": 0.1}},
		Limit:    &cell.Limit{Runs: 3, Tables: []cell.Written{{Name: "sets", Wall: 0.04}, {Name: "ipvs", Wall: 0.2}}, Sum: cell.Written{Rows: 11 * services, Wall: 0.24, Rooms: 0.3}},
		Kernel:   &cell.Kernel{Servers: services + 1, Destinations: 10 * services, Rules: 21},
		Idle:     &cell.Idle{Length: 30, Cost: cell.Cost{User: 0.02, System: 0.01}, Drift: &cell.Drift{Back: cell.Wait{Seconds: 14}, Period: ptr(30), Length: ptr(14), Cost: &cell.Cost{User: 0.1, System: 0.04}}},
		Endpoint: changes(0.004, 0.0041, 0.0004), Service: changes(0.006, 0.0063, 0.0009),
		Churn: &cell.Churn{
			Changes: 1000, Length: 20, Probes: cell.Summarize([]cell.Wait{{Seconds: 0.005}, {Seconds: 0.012}}),
			CatchUp: cell.Wait{Seconds: 0.1}, Each: cell.Cost{User: 0.0003}, Memory: cell.Memory{RSS: 90, Peak: 101.5},
		},
		Soak:    soaked(90, 91),
		Roll:    &cell.Roll{Endpoints: 500, Writes: 25, Done: cell.Wait{Seconds: 0.01}, Asked: 900, Cost: cell.Cost{User: 0.05}},
		Packets: &cell.Packets{Rate: cell.NewSpeed([]float64{3000, 2900}), RateDirect: cell.NewSpeed([]float64{3500, 3400}), Request: cell.NewSpeed([]float64{9000, 20000}), RequestDirect: cell.NewSpeed([]float64{10000})},
		Netlink: &cell.Netlink{Change: cell.Traffic{"NETLINK_GENERIC": {Messages: 2, Bytes: 200, FromMessages: 2, FromBytes: 80}}, Service: cell.Traffic{}, Idle: cell.Traffic{}, Length: 30},
	}
}

// soaked is an hour's worth of changes in which memory goes from one size to another.
func soaked(from, to float64) *cell.Soak {
	s := &cell.Soak{Wanted: 180_000, Changes: 180_000, Length: 900}
	for i := range 90 {
		s.Memory = append(s.Memory, cell.Held{At: cell.Seconds(10 * i), RSS: from + (to-from)*float64(i)/89})
	}
	return s
}

func ptr(s cell.Seconds) *cell.Seconds { return &s }

func slow(services int) *cell.Cell {
	c := &cell.Cell{
		Candidate: "kube-proxy-ipvs", Services: services, Endpoints: 10, Machine: machine, LaunchesBy: "the kernel's process events", Began: time.Unix(1, 0),
		Start: &cell.Start{
			First: cell.Wait{Seconds: 8}, Last: cell.Wait{Seconds: 80.44}, Quiet: cell.Wait{Seconds: 130},
			Cost: cell.Cost{User: 60, System: 38, Launches: 2489}, Memory: cell.Memory{RSS: 85.5},
		},
		Kernel:   &cell.Kernel{Servers: services + 1, Destinations: 10 * services, Rules: 34},
		Idle:     &cell.Idle{Length: 60, Cost: cell.Cost{User: 14.8, Launches: 212}},
		Endpoint: changes(4, 6, 5.5), Service: changes(8, 8.2, 11.7),
		Churn: &cell.Churn{Changes: 900, Length: 20, Probes: cell.Summarize([]cell.Wait{{Seconds: 17}, {Seconds: 20, Over: true}}), CatchUp: cell.Wait{Seconds: 1200, Over: true}},
	}
	c.Before, c.After = &cell.Calibration{Spins: 100}, &cell.Calibration{Spins: 140}
	c.Counted = &cell.Counted{Programmed: &cell.Wait{Seconds: 129}, Quiet: cell.Wait{Seconds: 140}, Traffic: cell.Traffic{"NETLINK_GENERIC": {Messages: 5000, Bytes: 900_000}}, Dropped: 3}
	c.Skip("netlink", "the kernel has no nlmon")
	return c
}

func late(services int) *cell.Cell {
	c := &cell.Cell{
		Candidate: "kube-proxy-nftables", Services: services, Endpoints: 10, Machine: machine, Began: time.Unix(2, 0),
		Start: &cell.Start{First: cell.Wait{Seconds: 1200, Over: true}, Last: cell.Wait{Seconds: 1200, Over: true}, Quiet: cell.Wait{Seconds: 1200, Over: true}},
	}
	for _, part := range []string{"idle", "endpoint", "service"} {
		c.Skip(part, "the start was not over after 20m0s")
	}
	return c
}

// changes are four samples with a median of about p50, and the CPU time of each.
func changes(p50, later, cpu cell.Seconds) *cell.Changes {
	return &cell.Changes{
		Samples: cell.Summarize([]cell.Wait{{Seconds: p50}, {Seconds: p50}, {Seconds: later}, {Seconds: later}}),
		Each:    cell.Cost{User: cpu * 3 / 4, System: cpu / 4, Launches: float64(cpu) * 10},
		CPU:     cpu, Launches: math.Floor(float64(cpu) * 10), Length: 0.5,
	}
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
	if err := report.Table(&out, []*cell.Cell{fast(100), slow(100), fast(1000), slow(1000), late(1000)}); err != nil {
		t.Fatal(err)
	}
	golden(t, "table.md", out.String())
}

func TestBrief(t *testing.T) {
	var out strings.Builder
	if err := report.Brief(&out, []*cell.Cell{fast(100), fast(1000), slow(1000), late(1000)}); err != nil {
		t.Fatal(err)
	}
	golden(t, "brief.md", out.String())
}

// TestREADMEHasTheFigures: the tables that people read are those of the cells that are kept.
func TestREADMEHasTheFigures(t *testing.T) {
	cells, err := cell.Decode(read(t, "../results/bench.json"))
	if err != nil {
		t.Fatal(err)
	}
	var brief, all, bars strings.Builder
	if err := errors.Join(report.Brief(&brief, cells), report.Table(&all, cells), report.Goals(&all, cells), report.Bars(&bars, cells)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"../../../README.md": brief.String(), "../results/README.md": all.String(), "../results/bench.svg": bars.String()} {
		if !strings.Contains(string(read(t, name)), want) {
			t.Errorf("%s is not of the cells in bench.json: bench report makes it", name)
		}
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestGoals has all verdicts: goals that are met, missed and open, noisy figures, and cells that are missing.
func TestGoals(t *testing.T) {
	var out strings.Builder
	few, many := fast(100), fast(10_000)
	many.Endpoint = changes(0.006, 0.0061, 0.0004)
	peer := slow(10_000)
	peer.Packets = &cell.Packets{Rate: cell.NewSpeed([]float64{3100, 2900}), Request: cell.NewSpeed([]float64{9000})}
	if err := report.Goals(&out, []*cell.Cell{few, slow(100), fast(1000), slow(1000), late(1000), many, peer}); err != nil {
		t.Fatal(err)
	}
	golden(t, "goals.md", out.String())
}

// TestGoalsOfNothing judges nothing, and says so in each line.
func TestGoalsOfNothing(t *testing.T) {
	var out strings.Builder
	if err := report.Goals(&out, []*cell.Cell{{Candidate: "other", Services: 1}}); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if strings.Contains(line, ": ") && strings.HasPrefix(line, "| ") && !strings.Contains(line, "not measured") {
			t.Errorf("a verdict on nothing: %s", line)
		}
	}
}

// TestTableWithoutTheBaseline has figures and no ratios.
func TestTableWithoutTheBaseline(t *testing.T) {
	var out strings.Builder
	if err := report.Table(&out, []*cell.Cell{fast(100)}); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "|") && strings.Contains(line, "(") || strings.Contains(line, report.Baseline) {
			t.Errorf("a ratio to nothing: %s", line)
		}
	}
}

func TestBars(t *testing.T) {
	var out strings.Builder
	if err := report.Bars(&out, []*cell.Cell{fast(100), slow(100), fast(1000), slow(1000), late(1000)}); err != nil {
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

// TestBarsOfNothing: cells without one of the drawn figures are a picture of a legend.
func TestBarsOfNothing(t *testing.T) {
	var out strings.Builder
	if err := report.Bars(&out, []*cell.Cell{{Candidate: "a<b", Services: 1}}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "a&lt;b") || strings.Contains(out.String(), "NaN") {
		t.Errorf("the picture is %s", out.String())
	}
}
