package daemon

import (
	"context"
	"testing"
	"testing/synctest"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-ipvs/kube-ipvs/internal/events"
	"github.com/kube-ipvs/kube-ipvs/internal/firewall"
	"github.com/kube-ipvs/kube-ipvs/internal/firewall/firewalltest"
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
		eventReporter{r}.firewallBlocks(firewall.Block{
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
