package daemon

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver/vservertest"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/telemetry"
)

var addresses = cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})

// TestServiceMetricsReader: the metrics by Service come from a handle that is opened once, and only in
// the mode that has servers.
func TestServiceMetricsReader(t *testing.T) {
	carries, opened, refused := false, 0, errors.New("no permission")
	var opens error
	r := &serviceMetricsReader{carries: func() bool { return carries }, open: func() (trafficKernel, error) {
		opened++
		return vservertest.NewLoaded(t.Context()), opens
	}}
	read := func() (servers map[model.FrontendKey]telemetry.VirtualServer, loads map[model.FrontendKey]telemetry.Load, err error) {
		servers, loads = map[model.FrontendKey]telemetry.VirtualServer{}, map[model.FrontendKey]telemetry.Load{}
		err = errors.Join(r.traffic(t.Context(), func(k model.FrontendKey, s telemetry.VirtualServer) { servers[k] = s }),
			r.loads(t.Context(), func(k model.FrontendKey, l telemetry.Load) { loads[k] = l }))
		return servers, loads, err
	}
	if _, _, err := read(); !errors.Is(err, telemetry.ErrNoServers) || opened != 0 {
		t.Errorf("in another mode: error %v, %d opened", err, opened)
	}
	carries, opens = true, refused
	if _, _, err := read(); !errors.Is(err, refused) {
		t.Errorf("error %v, want %v", err, refused)
	}
	opened, opens = 0, nil
	web := model.FrontendKey{Addr: netip.MustParseAddr("10.96.0.1"), Port: 80, Protocol: model.TCP}
	for range 2 {
		servers, loads, err := read()
		if err != nil {
			t.Fatal(err)
		}
		wantServers := map[model.FrontendKey]telemetry.VirtualServer{web: {Scheduler: "wlc",
			Carried: telemetry.Carried{Connections: 9, PacketsIn: 90, PacketsOut: 80, BytesIn: 9000, BytesOut: 80000}}}
		wantLoads := map[model.FrontendKey]telemetry.Load{web: {Active: 4, Inactive: 1, Quiet: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.2:8080")}}}
		if diff := cmp.Diff(wantServers, servers, addresses) + cmp.Diff(wantLoads, loads, addresses); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if opened != 1 {
		t.Errorf("opened %d times, want once", opened)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.traffic(ended, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
}
