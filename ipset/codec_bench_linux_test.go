package ipset

import (
	"fmt"
	"net/netip"
	"testing"
)

// benchMembers are different entries of the longest kind that kube-ipvs writes often.
func benchMembers(n int) []Entry {
	all := make([]Entry, n)
	for i := range all {
		a := netip.AddrFrom4([4]byte{10, 244, byte(i >> 8), byte(i)})
		all[i] = IPPortIP(a, TCP, 8080, a)
	}
	return all
}

// BenchmarkEncode packs entries into a buffer that is used again: the cost is that of each entry.
func BenchmarkEncode(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprintf("entries=%d", n), func(b *testing.B) {
			entries := benchMembers(n)
			m := message{b: make([]byte, 0, n*80)}
			b.ReportAllocs()
			for b.Loop() {
				m.b = m.b[:0]
				for i, e := range entries {
					m.entry(e, uint32(i+1))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/entry")
		})
	}
}

// BenchmarkDecode reads the entries of a list.
func BenchmarkDecode(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprintf("entries=%d", n), func(b *testing.B) {
			var m message
			for _, e := range benchMembers(n) {
				m.entry(e, 0)
			}
			entries := make([]Entry, 0, n)
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if entries, err = decodeEntries(entries[:0], HashIPPortIP, m.b); err != nil || len(entries) != n {
					b.Fatalf("%d entries, %v", len(entries), err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/entry")
		})
	}
}

// BenchmarkValidate checks entries before they are packed.
func BenchmarkValidate(b *testing.B) {
	set := Set{Name: "bench", Type: HashIPPortIP, Family: IPv4}
	changes := make([]Change, 0, 1000)
	for _, e := range benchMembers(cap(changes)) {
		changes = append(changes, AddEntry(e))
	}
	b.ReportAllocs()
	for b.Loop() {
		w := writer{set: set, changes: changes}
		if rows := w.admit(); len(rows) != len(changes) {
			b.Fatal(w.errs)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(changes)), "ns/entry")
}
