package inspect_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// An address that another Service has is not named twice.
func TestNames(t *testing.T) {
	frontend := func(text string) model.FrontendKey {
		ap := netip.MustParseAddrPort(text)
		return model.FrontendKey{Addr: ap.Addr(), Port: ap.Port(), Protocol: model.UDP}
	}
	known := []agent.ServiceInfo{
		{ID: model.ServiceID{Namespace: "kube-system", Name: "dns"}, Frontends: []model.Frontend{
			{Key: frontend("10.96.0.2:53"), PortName: "dns", Kind: model.KindClusterIP}, {Key: frontend("192.0.2.1:30053"), Kind: model.KindNodePort}}},
		{ID: model.ServiceID{Namespace: "shop", Name: "late"}, Frontends: []model.Frontend{{Key: frontend("10.96.0.2:53"), Kind: model.KindExternalIP}},
			Lost: []dataplane.Conflict{{Key: frontend("10.96.0.2:53")}}},
		{ID: model.ServiceID{Namespace: "shop", Name: "skipped"}, Skipped: "it is headless"},
	}
	names, err := client(t, &lists{known: known}).Names(t.Context(), inspect.Filter{})
	want := []inspect.Name{
		{Addr: netip.MustParseAddr("10.96.0.2"), Port: 53, Protocol: model.UDP, Namespace: "kube-system", Service: "dns", PortName: "dns", Kind: "ClusterIP"},
		{Addr: netip.MustParseAddr("192.0.2.1"), Port: 30053, Protocol: model.UDP, Namespace: "kube-system", Service: "dns", Kind: "NodePort"},
	}
	if diff := cmp.Diff(want, names.Items, cmpopts.EquateComparable(netip.Addr{})); err != nil || diff != "" {
		t.Errorf("error %v, names (-want +got):\n%s", err, diff)
	}
}
