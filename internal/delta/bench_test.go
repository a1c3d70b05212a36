package delta_test

import (
	"cmp"
	"fmt"
	"net/netip"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/delta"
)

// BenchmarkTracker takes one row through its life, desired, pending and applied, beside rows that are in place: the cost of a change does
// not follow their number.
func BenchmarkTracker(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprintf("rows=%d", n), func(b *testing.B) {
			t := delta.NewTracker[int](intEqual)
			for i := range n {
				t.SetDesired(i, 0)
				t.SetActual(i, 0)
			}
			b.ReportAllocs()
			for i := 1; b.Loop(); i++ {
				t.SetDesired(7, i)
				changes := t.Updates(cmp.Compare[int], delta.Pass{})
				if len(changes) != 1 {
					b.Fatalf("%d changes, want 1", len(changes))
				}
				t.Applied(changes[0])
			}
		})
	}
}

// wide is as large as the key of a destination.
type wide struct{ server, backend netip.AddrPort }

func compareWide(a, b wide) int {
	return cmp.Or(a.server.Compare(b.server), a.backend.Compare(b.backend))
}

// BenchmarkUpdates lists what is to be written of a part of a first start.
func BenchmarkUpdates(b *testing.B) {
	for _, n := range []int{10, 1_000, 7_000} {
		b.Run(fmt.Sprintf("rows=%d", n), func(b *testing.B) {
			t := delta.NewTracker[wide](intEqual)
			for i := range n {
				at := func(upper, i int) netip.AddrPort {
					return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(upper), byte(i >> 8), byte(i)}), 80)
				}
				t.SetDesired(wide{at(96, i/10), at(244, i)}, i)
			}
			b.ReportAllocs()
			for b.Loop() {
				if changes := t.Updates(compareWide, delta.Pass{}); len(changes) != n {
					b.Fatalf("%d changes, want %d", len(changes), n)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/row")
		})
	}
}

// BenchmarkTrackerLoad believes what was read, which all rows agree with: the cost is that of each row.
func BenchmarkTrackerLoad(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprintf("rows=%d", n), func(b *testing.B) {
			t := delta.NewTracker[int](func(a, b int) bool { return a == b })
			read := map[int]int{}
			for i := range n {
				t.SetDesired(i, i)
				t.SetActual(i, i)
				read[i] = i
			}
			b.ReportAllocs()
			for b.Loop() {
				if drifted := t.Load(read); drifted != 0 {
					b.Fatalf("%d rows drifted", drifted)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/row")
		})
	}
}

// BenchmarkClaims has one owner of ten keys change one of them beside other owners.
func BenchmarkClaims(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprintf("owners=%d", n), func(b *testing.B) {
			c := delta.NewClaims[int, int, int](cmp.Compare[int])
			for owner := range n {
				c.Set(owner, tenKeys(owner, 0))
			}
			sets := []map[int]int{tenKeys(7, 1), tenKeys(7, 0)}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if touched := c.Set(7, sets[i%2]); len(touched) != 11 {
					b.Fatalf("%d keys were touched, want nine, the old and the new one", len(touched))
				}
			}
		})
	}
}

// tenKeys are an owner's, of which one varies.
func tenKeys(owner, variant int) map[int]int {
	keys := map[int]int{owner*100 + 10 + variant: owner}
	for i := range 9 {
		keys[owner*100+i] = owner
	}
	return keys
}
