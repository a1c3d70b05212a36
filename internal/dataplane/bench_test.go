package dataplane_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// BenchmarkFrontends changes one endpoint of one Service beside others: owners of addresses are settled for its own keys only.
func BenchmarkFrontends(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprintf("services=%d", n), func(b *testing.B) {
			f := dataplane.NewFrontends()
			for i := range n {
				f.Set(numbered(i, 1))
			}
			variants := []model.ServicePlan{numbered(7, 2), numbered(7, 1)}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if changes, conflicts := f.Set(variants[i%2]); len(changes) != 1 || len(conflicts) != 0 {
					b.Fatalf("%d changes, conflicts %v", len(changes), conflicts)
				}
			}
		})
	}
}

// BenchmarkContestedFrontend has an old Service come and go whose address a young one wants too.
func BenchmarkContestedFrontend(b *testing.B) {
	f := dataplane.NewFrontends()
	f.Set(plan("young", 2, 2))
	variants := []model.ServicePlan{plan("old", 1, 1), gone("old")}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if changes, _ := f.Set(variants[i%2]); len(changes) != 1 {
			b.Fatalf("%d changes, want 1", len(changes))
		}
	}
}

// numbered is Service i on an address of its own.
func numbered(i int, backend byte) model.ServicePlan {
	p := plan(fmt.Sprint("svc", i), 1, backend)
	p.Frontends[0].Key.Addr = netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)})
	return p
}
