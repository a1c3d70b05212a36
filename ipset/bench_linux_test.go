package ipset_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// benchEntries is the size of the bulk ways; ns/entry is what to compare.
const benchEntries = 10_000

// BenchmarkFill compares four ways to fill a set in one run on one kernel. They are elements in
// batches, one message for each element, the tool reading a file, and one start of the tool for
// each entry.
func BenchmarkFill(b *testing.B) {
	for _, way := range []struct {
		name    string
		entries int
		fill    func(context.Context, testing.TB, *ipset.Handle, []ipset.Change) error
	}{
		{"batch", benchEntries, fillBatch},
		{"single", benchEntries, fillSingle},
		{"restore", benchEntries, fillRestore},
		{"exec", 100, fillExec},
	} {
		b.Run(way.name, func(b *testing.B) {
			h := openKernel(b)
			changes := manyChanges(way.entries)
			if err := h.Create(b.Context(), benchSet); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				b.StopTimer()
				if err := h.Flush(b.Context(), benchSet.Name); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				if err := way.fill(b.Context(), b, h, changes); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(changes)), "ns/entry")
		})
	}
}

var benchSet = ipset.Set{Name: "bench", Type: ipset.HashIPPort, Family: ipset.IPv6}

func fillBatch(ctx context.Context, _ testing.TB, h *ipset.Handle, changes []ipset.Change) error {
	return errors.Join(h.Write(ctx, benchSet, changes)...)
}

func fillSingle(ctx context.Context, _ testing.TB, h *ipset.Handle, changes []ipset.Change) error {
	entries := make([]ipset.Entry, len(changes))
	for i, c := range changes {
		entries[i] = c.Entry
	}
	return h.Add(ctx, benchSet.Name, entries...)
}

func fillRestore(_ context.Context, t testing.TB, _ *ipset.Handle, changes []ipset.Change) error {
	var text strings.Builder
	for _, c := range changes {
		fmt.Fprintln(&text, c.Entry.SaveLine(benchSet.Name))
	}
	tool(t, text.String(), "restore")
	return nil
}

func fillExec(_ context.Context, t testing.TB, _ *ipset.Handle, changes []ipset.Change) error {
	for _, c := range changes {
		tool(t, "", "add", benchSet.Name, c.Entry.String())
	}
	return nil
}

// BenchmarkSets compares the ways to write a few entries to each of several sets, as a part of a
// start does: a call for each set, and one for all.
func BenchmarkSets(b *testing.B) {
	const sets, entries = 8, 20
	var batches []ipset.Batch
	for i := range sets {
		set := benchSet
		set.Name = fmt.Sprint("bench", i)
		batches = append(batches, ipset.Batch{Set: set, Changes: manyChanges(entries)})
	}
	for _, way := range []struct {
		name  string
		write func(*testing.B, *ipset.Handle) error
	}{
		{"each", func(b *testing.B, h *ipset.Handle) (err error) {
			for _, one := range batches {
				err = errors.Join(err, errors.Join(h.Write(b.Context(), one.Set, one.Changes)...))
			}
			return err
		}},
		{"together", func(b *testing.B, h *ipset.Handle) (err error) {
			for _, errs := range h.WriteAll(b.Context(), batches...) {
				err = errors.Join(err, errors.Join(errs...))
			}
			return err
		}},
	} {
		b.Run(way.name, func(b *testing.B) {
			h := openKernel(b)
			for _, one := range batches {
				if err := h.Create(b.Context(), one.Set); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() { // entries that exist are written like those that do not
				if err := way.write(b, h); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*sets), "ns/set")
		})
	}
}

func BenchmarkList(b *testing.B) {
	h := openKernel(b)
	if err := h.Create(b.Context(), benchSet); err != nil {
		b.Fatal(err)
	}
	if err := fillBatch(b.Context(), b, h, manyChanges(benchEntries)); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, entries, err := h.List(b.Context(), benchSet.Name); err != nil || len(entries) != benchEntries {
			b.Fatal(len(entries), err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*benchEntries), "ns/entry")
}
