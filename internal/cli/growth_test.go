package cli

import (
	"io"
	"math"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/iptables"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/describe"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/hostile"
	"github.com/kube-ipvs/kube-ipvs/internal/wiring"
)

// BenchmarkGrowth shows that compiling, judging conflicts and rendering cost linear in what a
// Service has: each of five things grows by a thousand times, in both modes. An exponent of 1 is
// linear, of 2 quadratic. "exp" covers the whole growth; "exp10x" covers its last tenfold, where
// the fixed cost of each Service no longer hides it. "change-ms" is one change of the largest. The
// bounds of one Service are lifted: with them, the largest would cost less.
func BenchmarkGrowth(b *testing.B) {
	for _, dimension := range []struct {
		name  string
		least int
		of    func(n int) hostile.Tenant
	}{
		{"ports", 4, func(n int) hostile.Tenant { return hostile.Tenant{Ports: n, Local: true} }},
		{"ranges", 32, func(n int) hostile.Tenant { return hostile.Tenant{Ranges: n, Endpoints: 1} }},
		{"addresses", 32, func(n int) hostile.Tenant { return hostile.Tenant{Addresses: n} }},
		{"endpoints", 50, func(n int) hostile.Tenant { return hostile.Tenant{Endpoints: n} }},
		{"claimants", 4, func(n int) hostile.Tenant { return hostile.Tenant{Claimants: n, Addresses: 1, Ports: 5} }},
	} {
		for _, mode := range []config.Mode{config.ModeIPVS, config.ModeIPTables} {
			b.Run(dimension.name+"/"+string(mode), func(b *testing.B) {
				for b.Loop() {
					small, _ := growth(b, mode, dimension.of(dimension.least))
					most, _ := growth(b, mode, dimension.of(100*dimension.least))
					large, change := growth(b, mode, dimension.of(1000*dimension.least))
					b.ReportMetric(math.Log10(large.Seconds()/small.Seconds())/3, "exp")
					b.ReportMetric(math.Log10(large.Seconds()/most.Seconds()), "exp10x")
					b.ReportMetric(float64(large.Milliseconds()), "all-ms")
					b.ReportMetric(float64(change.Microseconds())/1000, "change-ms")
				}
			})
		}
	}
}

// growth is the time from objects to rows, the best of some tries, and that of one change.
func growth(tb testing.TB, mode config.Mode, t hostile.Tenant) (all, change time.Duration) {
	tb.Helper()
	c := growing(tb, mode)
	c.ServiceFrontends, c.ServiceRows, c.ServiceRanges = math.MaxInt32, math.MaxInt32, math.MaxInt32
	all, change = time.Hour, time.Hour
	for tries, began := 0, time.Now(); tries < 3 || tries < 1000 && time.Since(began) < 20*time.Millisecond; tries++ {
		runtime.GC()
		start := time.Now()
		m, batch := everything(tb, c, t)
		all = min(all, time.Since(start))
		start = time.Now()
		families, in := model.Families(), batch.Services[0]
		m.Set(wiring.CompilerFor(wiring.Static(c), families[:])(supposedHost(c, batch)).Compile(in.ID, in.Service, in.Slices))
		change = min(change, time.Since(start))
	}
	return all, change
}

// everything goes from objects to rows.
func everything(tb testing.TB, c config.Config, t hostile.Tenant) (dataplane.Inspectable, catalog.Batch) {
	tb.Helper()
	known := catalog.New(zap.NewNop(), c.NodeName, model.FromFile)
	t.Deliver(known)
	batch := known.Take()
	families := model.Families()
	m := modeWithoutKernel(c, families[:])
	compileInto(m, c, families[:], batch, supposedHost(c, batch), io.Discard)
	kinds := describe.Kinds()
	if m.Name() == string(config.ModeIPTables) {
		kinds = iptables.Kinds()
	}
	for _, kind := range kinds {
		if err := m.WriteRows(io.Discard, kind); err != nil {
			tb.Fatal(err)
		}
	}
	return m, batch
}

// growing is a node with one address.
func growing(tb testing.TB, mode config.Mode) config.Config {
	tb.Helper()
	c := parsed(tb, []string{"--proxy-mode", string(mode)})
	c.NodeAddresses = []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	return c
}
