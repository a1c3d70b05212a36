package inspect_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// namer is a reader that knows names.
type namer struct {
	reader
	known    []agent.Known
	draining []dataplane.Draining
	// cut is why looking ends after the first Service.
	cut error
}

func (n namer) Services(context.Context) ([]model.ServiceID, error) {
	return make([]model.ServiceID, len(n.known)), n.err
}

func (n namer) Look(_ context.Context, _ []model.ServiceID, visit func(agent.Known)) error {
	for _, k := range n.known {
		visit(k)
		if n.cut != nil {
			return n.cut
		}
	}
	return nil
}

func (n namer) Draining(context.Context) ([]dataplane.Draining, error) { return n.draining, n.err }

func frontend(text string) model.FrontendKey {
	ap := netip.MustParseAddrPort(text)
	return model.FrontendKey{Addr: ap.Addr(), Port: ap.Port(), Protocol: model.UDP}
}

var sampleNames = namer{
	known: []agent.Known{
		{ID: model.ServiceID{Namespace: "kube-system", Name: "dns"}, Frontends: []model.Frontend{
			{Key: frontend("10.96.0.2:53"), PortName: "dns", Kind: model.KindClusterIP}, {Key: frontend("192.0.2.1:30053"), Kind: model.KindNodePort}}},
		{ID: model.ServiceID{Namespace: "shop", Name: "late"}, Frontends: []model.Frontend{{Key: frontend("10.96.0.2:53"), Kind: model.KindExternalIP}},
			Lost: []dataplane.Conflict{{Key: frontend("10.96.0.2:53")}}},
		{ID: model.ServiceID{Namespace: "shop", Name: "skipped"}, Skipped: "it is headless"},
	},
	draining: []dataplane.Draining{{Frontend: frontend("10.96.0.2:53"), Addr: netip.MustParseAddrPort("10.0.0.1:53"), Until: time.Unix(1000, 0).UTC()}},
}

func TestNamesTravel(t *testing.T) {
	c := inspect.NewClient(serve(t, sampleNames))
	names, err := c.Names(t.Context())
	want := []inspect.Name{
		{Addr: netip.MustParseAddr("10.96.0.2"), Port: 53, Protocol: model.UDP, Namespace: "kube-system", Service: "dns", PortName: "dns", Kind: "ClusterIP"},
		{Addr: netip.MustParseAddr("192.0.2.1"), Port: 30053, Protocol: model.UDP, Namespace: "kube-system", Service: "dns", Kind: "NodePort"},
	}
	same := cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})
	if diff := cmp.Diff(want, names, same); err != nil || diff != "" {
		t.Errorf("error %v, names (-want +got):\n%s", err, diff)
	}
	draining, err := c.Draining(t.Context())
	wantDraining := []inspect.Draining{{Addr: netip.MustParseAddr("10.96.0.2"), Port: 53, Protocol: model.UDP, Endpoint: netip.MustParseAddrPort("10.0.0.1:53"), Until: time.Unix(1000, 0).UTC()}}
	if diff := cmp.Diff(wantDraining, draining, same); err != nil || diff != "" {
		t.Errorf("error %v, draining (-want +got):\n%s", err, diff)
	}
}

// Half of the names are not taken for all of them.
func TestNamesThatAreCutOff(t *testing.T) {
	cut := sampleNames
	cut.cut = context.DeadlineExceeded
	if names, err := inspect.NewClient(serve(t, cut)).Names(t.Context()); err == nil {
		t.Errorf("%d names and no error", len(names))
	}
	stuck := sampleNames
	stuck.err = errors.New("deadline")
	c := inspect.NewClient(serve(t, stuck))
	for what, ask := range map[string]func() error{
		"names":    func() error { _, err := c.Names(t.Context()); return err },
		"draining": func() error { _, err := c.Draining(t.Context()); return err },
	} {
		if err := ask(); err == nil || !strings.Contains(err.Error(), "the loop is busy or stuck") {
			t.Errorf("%s: error %v", what, err)
		}
	}
}
