package ipvs_test

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// What drains is told with its end; what is kept has none.
func TestEachDraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKernel()
		m := begin(t, k, draining(first, second, third))
		apply(t, m)
		k.busy(second, third)
		start := time.Now()
		m.Set(keeping(draining(first), third))
		apply(t, m)
		got := map[netip.AddrPort]time.Time{}
		m.EachDraining(func(d dataplane.Draining) {
			if want := (model.FrontendKey{Addr: netip.MustParseAddr(vip), Port: 80, Protocol: model.TCP}); d.Frontend != want {
				t.Errorf("frontend %v, want %v", d.Frontend, want)
			}
			got[d.Addr] = d.Until
		})
		want := map[netip.AddrPort]time.Time{netip.MustParseAddrPort(second): start.Add(30 * time.Second), netip.MustParseAddrPort(third): {}}
		if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
			t.Errorf("draining (-want +got):\n%s", diff)
		}
	})
}
