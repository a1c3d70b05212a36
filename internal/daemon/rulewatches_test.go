package daemon

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/firewall"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// TestDialledFrontends: firewalls are judged for frontends that have a backend, and that this Service has.
func TestDialledFrontends(t *testing.T) {
	backend := []model.Backend{{Addr: netip.MustParseAddrPort("10.244.0.6:80")}, {Addr: netip.MustParseAddrPort("10.244.0.7:80"), Weight: 1}}
	key := func(port uint16) model.FrontendKey {
		return model.FrontendKey{Addr: netip.MustParseAddr("10.96.0.10"), Port: port, Protocol: model.TCP}
	}
	got := dialledFrontends(agent.ServiceInfo{
		ID: model.ServiceID{Namespace: "default", Name: "web"},
		Frontends: []model.Frontend{
			{Key: key(80), Kind: model.KindClusterIP, Backends: backend},
			{Key: key(81), Kind: model.KindClusterIP, Backends: backend[:1]},
			{Key: key(82), Kind: model.KindNodePort, Backends: backend},
		},
		Lost: []dataplane.Conflict{{Key: key(82)}},
	})
	want := []firewall.Frontend{{Service: "default/web", Kind: firewall.ClusterIP, Addr: key(80).Addr, Port: 80, Protocol: 6, Backend: backend[1].Addr}}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Errorf("frontends (-want +got):\n%s", diff)
	}
}
