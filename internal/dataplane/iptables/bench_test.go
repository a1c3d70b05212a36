package iptables_test

import (
	"fmt"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// BenchmarkRender turns a change of one endpoint into chains and entries and compares them with those there were, without a write. The
// other Services are not looked at.
func BenchmarkRender(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprintf("services=%d", n), func(b *testing.B) {
			m := filled(b, &silentRules{}, many(n))
			variants := []model.ServicePlan{tenEndpoints(7, 1), tenEndpoints(7, 0)}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if conflicts := m.Set(variants[i%2]); len(conflicts) != 0 {
					b.Fatal(conflicts)
				}
			}
		})
	}
}
