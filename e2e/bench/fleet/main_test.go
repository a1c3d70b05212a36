package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/fleet/herd"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/fleet/paper"
	"github.com/kube-ipvs/kube-ipvs/e2e/kube/binaries"
)

func TestWhatFlagsRefuse(t *testing.T) {
	for _, args := range []string{"-n 1", "-n x", "-k 10,1", "-k 0", "-nodes 5 -k 10", "-endpoints 101", "-kinds strange", "-rate 0", "more"} {
		if _, err := parse(strings.Fields(args), &bytes.Buffer{}); err == nil {
			t.Errorf("%q was taken", args)
		}
	}
	if o, err := parse([]string{"-n", "10 20", "-k", "1,2"}, &bytes.Buffer{}); err != nil || len(o.services) != 2 || o.agents[1] != 2 {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestConclude(t *testing.T) {
	r := result{Services: 100, IdleDown: 3, Steps: []step{
		{Agents: 0, ChangeCPU: 0.001, RSS: 300},
		{Agents: 10, Added: 10, ListDown: 5, ListCPU: 1, ChangeCPU: 0.002, ChangeDown: 7, RSS: 400, Heap: 20},
		{Agents: 30, Added: 20, ListDown: 6, ListCPU: 2, ChangeCPU: 0.004, ChangeDown: 8, RSS: 600, Heap: 20},
	}}
	r.conclude()
	want := paper.Cost{Services: 100, ListBytes: 6, ListCPU: 0.1, EventBytes: 8, EventCPU: 0.0001, ChangeCPU: 0.001, IdleBytes: 3}
	got, rounded := r.Cost, want
	for _, pair := range [][2]float64{{got.ListCPU, want.ListCPU}, {got.EventCPU, want.EventCPU}, {got.ChangeCPU, want.ChangeCPU}, {r.RSSFit.Each, 10}} {
		if d := pair[0] - pair[1]; d > 1e-9 || d < -1e-9 {
			t.Errorf("%v, want %v", pair[0], pair[1])
		}
	}
	rounded.ListCPU, rounded.EventCPU, rounded.ChangeCPU = got.ListCPU, got.EventCPU, got.ChangeCPU
	if got != rounded || r.HeapFit.Each < 19.9 || r.HeapFit.Each > 20.1 {
		t.Errorf("%+v, want %+v; heap %+v", got, want, r.HeapFit)
	}
}

func TestConcludeWithoutALine(t *testing.T) {
	r := result{Steps: []step{{Agents: 1, Added: 1, ListCPU: 2}, {Agents: 5, Added: 4, ListCPU: 1}}}
	r.conclude()
	if r.Cost.ListCPU != 0.25 {
		t.Errorf("a list costs %v where the line falls, want that of the last step, 0.25", r.Cost.ListCPU)
	}
}

func TestForecastsOfWhatWasMeasured(t *testing.T) {
	got := forecasts([]*result{
		{Kind: "b", Cost: paper.Cost{Services: 10, ListBytes: 100}},
		{Kind: "a", Cost: paper.Cost{Services: 30, ListBytes: 300}},
		{Kind: "a", Cost: paper.Cost{Services: 10, ListBytes: 100}},
	}, []int{7}, []int{1, 2})
	want := []struct {
		kind             string
		services, stored float64
	}{{"a", 10, 700}, {"a", 30, 2100}, {"a", 60, 4200}, {"b", 10, 700}, {"b", 20, 1400}}
	if len(got) != 2*len(want) {
		t.Fatalf("%d forecasts, want %d", len(got), 2*len(want))
	}
	for i, w := range want {
		f := got[2*i]
		if d := f.StormBytes - w.stored; f.Kind != w.kind || f.Services != w.services || d > 1e-6 || d < -1e-6 || f.Rate != 1 || got[2*i+1].Rate != 2 {
			t.Errorf("forecast %d: %+v, want %+v", i, f, w)
		}
	}
}

func TestReportOfFiles(t *testing.T) {
	text, err := json.Marshal(document{Results: []*result{{Kind: "a", Services: 10, Cost: paper.Cost{Services: 10}, Steps: []step{{Agents: 3, Added: 3, ListDown: 1234}}}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "one.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-fleet", "70", "-rates", "9", "report", file}, &out, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| a | 10 | 3 | 1.23 kB |", "| a | 10 | 70 | 9 | 630 |", "| a | 20 | 70 | 9 |"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

func TestSize(t *testing.T) {
	for bytes, want := range map[float64]string{0: "0 B", 999: "999 B", 3030: "3.03 kB", -2.5e6: "-2.5 MB", 1.5e12: "1.5e+03 GB"} {
		if got := size(bytes); got != want {
			t.Errorf("%v is %q, want %q", bytes, got, want)
		}
	}
}

// TestSmallFleet is the whole of it, with few agents: that everything is counted, not how much it is.
func TestSmallFleet(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an API server: make bench WHAT=fleet does so, too")
	}
	if _, err := binaries.Find(); errors.Is(err, binaries.ErrNotBuilt) {
		t.Skip("needs kube-apiserver and etcd: go run ./e2e/kube/build makes them once: ", err)
	} else if err != nil {
		t.Fatal(err)
	}
	var out, log bytes.Buffer
	args := "-json -n 20 -k 1,2 -nodes 4 -window 500ms -windows 1 -idle 100ms -limit 5m"
	if err := run(t.Context(), strings.Fields(args), &out, &log); err != nil {
		t.Fatalf("%v\n%s", err, &log)
	}
	var got document
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Results) != 2 || len(got.Forecasts) == 0 {
		t.Fatalf("%d results and %d forecasts", len(got.Results), len(got.Forecasts))
	}
	for _, r := range got.Results {
		check(t, r)
	}
}

func check(t *testing.T, r *result) {
	t.Helper()
	last := r.Steps[len(r.Steps)-1]
	// 20 Services of 10 endpoints are 40 kB at least, one slice 1 kB.
	if last.Agents != 2 || last.ListDown < 40e3 || last.ChangeDown < 1e3 || last.ChangeUp <= 0 || last.RSS <= 0 {
		t.Errorf("%s: %+v", r.Kind, last)
	}
	// Each agent is told of each change once; that of the server's own leases and Services is not ours.
	if want := float64(last.Agents * last.Changes); r.Changed.Events["endpointslices"] < want {
		t.Errorf("%s: %v, want %v events", r.Kind, r.Changed.Events, want)
	}
	if r.PlainDown <= 0 || r.BeatDown <= 0 {
		t.Errorf("%s: a plain list has %v bytes, a beat %v", r.Kind, r.PlainDown, r.BeatDown)
	}
	if r.Cut == nil || r.Restart == nil {
		t.Fatalf("%s: there was no storm", r.Kind)
	}
	resumed := r.Cut.Asked["watch endpointslices"]
	if resumed != last.Agents || r.Cut.Asked["list by watch endpointslices"] != 0 || len(r.Cut.InSync) != last.Agents {
		t.Errorf("%s: after a cut %v, want watches that go on", r.Kind, r.Cut.Asked)
	}
	// A server that has forgotten a version asks for a new list; whether it has is its affair.
	if again := r.Restart.Asked["list by watch endpointslices"] + r.Restart.Asked["watch endpointslices"]; again < last.Agents || len(r.Restart.InSync) != last.Agents || r.Restart.Down < 20e3 {
		t.Errorf("%s: after a restart %+v, want lists, or watches that go on", r.Kind, r.Restart)
	}
	if r.Kind == herd.Agent && len(r.Timeouts) == 0 {
		t.Error("no watch asked for a life")
	}
}
