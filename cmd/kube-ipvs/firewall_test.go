package main

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/events"
	"github.com/kube-ipvs/kube-ipvs/internal/firewall"
	"github.com/kube-ipvs/kube-ipvs/internal/firewall/firewalltest"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/tune"
)

// eventAPI takes Events, and knows no Service.
type eventAPI struct{ created chan *eventsv1.Event }

func (a eventAPI) ListServices(context.Context, string, metav1.ListOptions) (*corev1.ServiceList, error) {
	return &corev1.ServiceList{}, nil
}

func (a eventAPI) CreateEvent(_ context.Context, e *eventsv1.Event) error {
	a.created <- e
	return nil
}

func (a eventAPI) PatchEvent(context.Context, string, string, []byte) error { return nil }

func TestFirewallEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := eventAPI{created: make(chan *eventsv1.Event, 1)}
		r := events.New(events.Options{Node: "node-a", API: api, Log: zap.NewNop()})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		herald{r}.walled(firewall.Block{
			Cause: firewall.Cause{Table: "inet filter", Base: "input", Word: "drop"}, Hook: "input", From: []string{firewall.FromPods},
			Services: 1, Names: []string{"default/web"}, Fix: []string{firewalltest.PolicyFix},
		})
		e := <-api.created
		if e.Regarding.Kind != "Node" || e.Type != "Warning" || e.Reason != "FirewallBlocksServices" || e.Note != firewalltest.PolicyDrops+"; to let them pass: "+firewalltest.PolicyFix {
			t.Errorf("%s %s %s: %s", e.Regarding.Kind, e.Type, e.Reason, e.Note)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestFirewallCheck(t *testing.T) {
	web := func(context.Context) ([]firewall.Frontend, error) {
		return []firewall.Frontend{{Service: "default/web", Kind: firewall.ClusterIP, Addr: netip.MustParseAddr("10.96.0.10"), Port: 80, Protocol: 6}}, nil
	}
	for _, tt := range []struct {
		name        string
		k           *firewalltest.Kernel
		state       tune.State
		detail, fix string
	}{
		{"none", &firewalltest.Kernel{}, tune.OK, "none drops packets to the 1 addresses and ports of Services", ""},
		{"policy of drop", &firewalltest.Kernel{Drop: true}, tune.Warn, firewalltest.PolicyDrops, firewalltest.PolicyFix},
		{"a rule of iptables", &firewalltest.Kernel{Input: "-A INPUT -i eth0 -j ACCEPT\n-A INPUT -d 10.96.0.0/12 -j DROP\n"}, tune.OK,
			"1 addresses and ports; it cannot be said of table iptables-nft filter, chain INPUT", ""},
		{"unread", &firewalltest.Kernel{Failed: errors.New("busy")}, tune.Warn, "busy", "run as root, in the network namespace of the host"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := tune.RunChecks(t.Context(), []tune.Check{wallCheck(config.Config{Mode: config.ModeIPVS}, tt.k.Reader().Read, web)})[0]
			if diff := cmp.Diff([]string{string(tt.state), tt.detail, tt.fix}, []string{string(v.State), v.Detail, v.Fix}); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}
