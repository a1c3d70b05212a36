package conntrack_test

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/conntrack"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/conntrack/conntracktest"
)

const maxFile = "/proc/sys/net/netfilter/nf_conntrack_max"

// makeRoom makes sure that so many flows fit into the kernel, which has one limit
// for all namespaces and lets only the first one change it.
func makeRoom(t testing.TB, flows int) {
	t.Helper()
	text, err := os.ReadFile(maxFile)
	if err != nil {
		t.Skip(err)
	}
	have, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if have >= flows {
		return
	}
	if err := os.WriteFile(maxFile, []byte(strconv.Itoa(flows)), 0); err != nil {
		t.Skipf("%d flows are wanted and %d are the limit: %v", flows, have, err)
	}
	t.Cleanup(func() {
		done := make(chan error)
		go func() { done <- os.WriteFile(maxFile, text, 0) }() // not on a thread that went elsewhere
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// usage is what the process has taken so far.
type usage struct {
	mallocs uint64 // pieces of memory
	bytes   uint64
	peak    int // most resident memory, in KiB, since resetPeak
}

func used(t testing.TB) usage {
	t.Helper()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{m.Mallocs, m.TotalAlloc, residentPeak(t)}
}

func residentPeak(t testing.TB) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	var kib int
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal(err)
	}
	return kib
}

// resetPeak makes the peak begin with what is resident now.
func resetPeak(t testing.TB) {
	t.Helper()
	runtime.GC()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		t.Logf("the peak of memory is that of the whole run: %v", err)
	}
}

// TestForeignFlows: beside very many flows of others a sweep finds its own, leaves
// them alone and needs next to no memory.
func TestForeignFlows(t *testing.T) {
	const foreign, foreign6, own = 40_000, 10_000, 500
	makeRoom(t, foreign+foreign6+10_000)
	h, k := kernel(t, conntrack.Options{Rate: 1 << 30})
	w := world{h, k}
	start := time.Now()
	for family, n := range map[int]int{4: foreign, 6: foreign6} {
		if err := k.AddAll(conntracktest.Foreign(family, n)); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("figure: %d flows made in %s", foreign+foreign6, time.Since(start).Round(time.Millisecond))
	for name, orders := range map[string][]conntrack.Order{
		"filtered": {keep(dns)}, "whole": manyOrders(), "filtered IPv6": {keep(dns6)},
	} {
		for i := range own {
			if orders[0].Key == dns6 {
				w.add(t, from(dns6, fmt.Sprintf("[fd00:10:244::%x]:4001", i+1)))
			} else {
				w.add(t, from(dns, fmt.Sprintf("10.244.%d.%d:4001", i/250, i%250), "10.244.99.9:5353"))
			}
		}
		resetPeak(t)
		before := used(t)
		start := time.Now()
		out := w.sweep(t, own, orders...)
		took, after := time.Since(start), used(t)
		pieces, bytes, peak := after.mallocs-before.mallocs, after.bytes-before.bytes, after.peak-before.peak
		t.Logf("figure: %s: %+v in %s, %d pieces and %d KiB of memory, peak %d KiB higher", name, out, took.Round(time.Microsecond), pieces, bytes>>10, peak)
		if bytes > 4<<20 || pieces > foreign/4 || peak > 8<<10 {
			t.Errorf("%s: memory is taken for flows of others", name)
		}
		if few := len(orders) == 1; few && out.Seen != own || !few && out.Seen != own+foreign {
			t.Errorf("%s: %d flows were read", name, out.Seen)
		}
	}
	if n, err := conntracktest.Count(); err != nil || n != foreign+foreign6 {
		t.Errorf("%d flows are left, %v, want the %d of others", n, err, foreign+foreign6)
	}
}

// TestTableThatChanges: flows come and go under the dump; a flow that was there before and
// stays is seen, and nothing else goes.
func TestTableThatChanges(t *testing.T) {
	const foreign = 20_000
	makeRoom(t, foreign+20_000)
	h, k := kernel(t, conntrack.Options{})
	w := world{h, k}
	if err := k.AddAll(conntracktest.Foreign(4, foreign)); err != nil {
		t.Fatal(err)
	}
	others := otherProcess(t)
	var stop atomic.Bool
	var running sync.WaitGroup
	changes := 0
	running.Go(func() {
		for ; !stop.Load(); changes++ {
			var passing []conntracktest.Flow
			for i := range 100 {
				client := fmt.Sprintf("10.245.%d.%d:%d", changes%200, i, 5000+i)
				passing = append(passing, from(key("10.97.0.1:53"), client), from(key("10.97.0.2:53"), client, "10.244.1.1:53"))
			}
			if err := others.Add(passing...); err != nil {
				t.Errorf("add: %v", err)
				return
			}
			if err := others.Remove(passing...); err != nil {
				t.Errorf("another process removed a flow: %v", err)
				return
			}
		}
	})
	for round := range 4 {
		for i := range 1000 {
			w.add(t, from(dns, fmt.Sprintf("10.244.%d.%d:4001", i/250, i%250), "10.244.99.9:5353"))
		}
		orders := manyOrders()
		if round%2 == 1 {
			orders = orders[:1]
		}
		w.sweep(t, 1000, orders...)
	}
	stop.Store(true)
	running.Wait()
	if n, err := conntracktest.Count(); err != nil || n != foreign {
		t.Errorf("%d flows are left, %v, want %d", n, err, foreign)
	}
	t.Logf("figure: %d flows came and went meanwhile", changes*200)
}

// BenchmarkSweep sweeps beside 100,000 flows of others: one key, the most ports that
// are asked for one by one, and more. The time that counts is that of the processor.
func BenchmarkSweep(b *testing.B) {
	const foreign = 100_000
	makeRoom(b, foreign+10_000)
	enterNamespace(b)
	if err := otherProcess(b).AddAll(conntracktest.Foreign(4, foreign)); err != nil {
		b.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		opts conntrack.Options
		keys int
	}{
		{"one key", conntrack.Options{}, 1},
		{"4 ports", conntrack.Options{}, conntrack.FilteredPorts},
		{"5 ports", conntrack.Options{Rate: 1 << 30}, conntrack.FilteredPorts + 1},
		{"5 ports paced", conntrack.Options{}, conntrack.FilteredPorts + 1},
	} {
		h, err := conntrack.New(zap.NewNop(), tt.opts) // here, as a benchmark of its own has a thread of its own
		if err != nil {
			b.Fatal(err)
		}
		b.Run(tt.name, func(b *testing.B) {
			orders := manyOrders()[:tt.keys]
			b.ReportAllocs()
			before := processorTime(b)
			var out conntrack.Outcome
			for b.Loop() {
				if out, err = h.Sweep(b.Context(), orders); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(processorTime(b)-before)/float64(b.N)/1e6, "cpu-ms/op")
			b.ReportMetric(float64(out.Seen), "flows/op")
		})
		h.Close()
	}
}

// processorTime is what the process has used.
func processorTime(b *testing.B) time.Duration {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
