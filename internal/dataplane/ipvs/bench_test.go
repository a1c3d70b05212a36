package ipvs_test

import (
	"fmt"
	"testing"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// BenchmarkRender turns a change of one endpoint into rows and compares them with those there were, without a kernel. Once with one
// Service of a growing number of endpoints, all of which are rendered, and once beside others, which are not looked at.
func BenchmarkRender(b *testing.B) {
	for _, endpoints := range []int{10, 100, 1_000} {
		b.Run(fmt.Sprintf("endpoints=%d", endpoints), func(b *testing.B) { benchRender(b, 1, endpoints) })
	}
	for _, services := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprintf("services=%d", services), func(b *testing.B) { benchRender(b, services, 10) })
	}
}

func benchRender(b *testing.B, services, endpoints int) {
	k := newKernel()
	m := ipvs.New(zap.NewNop(), config(), k.deps())
	for i := 1; i < services; i++ {
		m.Set(tenEndpoints(i, 0))
	}
	variants := []model.ServicePlan{withEndpoints(endpoints, 1), withEndpoints(endpoints, 0)}
	m.Set(variants[1])
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if conflicts := m.Set(variants[i%2]); len(conflicts) != 0 {
			b.Fatal(conflicts)
		}
	}
}

// withEndpoints is Service 0 with so many endpoints, ten at a time, of which one varies.
func withEndpoints(n, variant int) model.ServicePlan {
	p := tenEndpoints(0, variant)
	for i := 10; i < n; i += 10 {
		p.Frontends[0].Backends = append(p.Frontends[0].Backends, tenEndpoints(i, 0).Frontends[0].Backends...)
	}
	return p
}
