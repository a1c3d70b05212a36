package daemon

import (
	"context"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/announce"
	"github.com/kube-ipvs/kube-ipvs/internal/httpd"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
)

// judgeInterval is the time between two judgements of whether load balancers may use this node.
const judgeInterval = 500 * time.Millisecond

// announceNode tells the mode whether this node may announce addresses, until ctx ends.
func (d *daemon) announceNode(ctx context.Context) error {
	if d.live.now().AnnounceTable == 0 {
		return nil
	}
	tick := time.NewTicker(judgeInterval)
	defer tick.Stop()
	var last announce.Node
	for {
		if now := nodeFor(d.health().report(ctx), last); now != last {
			if err := d.loop.Adjust(ctx, func() { d.mode.announced().SetNode(now) }); err == nil {
				last = now
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// nodeFor judges a node as /healthz does, which load balancers ask. Before the first good report of this
// process the node is not judged: rows that are in place serve while an agent starts.
func nodeFor(r httpd.Report, last announce.Node) announce.Node {
	for _, c := range r.Checks {
		if c.Health && c.Reason != "" {
			if last == (announce.Node{}) {
				return last
			}
			return announce.Node{Why: "health check " + c.Name + " fails"}
		}
	}
	if !r.NodeEligible {
		return announce.Node{Why: "this node is leaving: its Node object is gone or being deleted, or has the taint of a node that will be deleted"}
	}
	return announce.Node{Serves: true}
}

// withdraw deletes the routes that announce addresses, and then serves for the lead, so that routers find
// other nodes before this agent ends. It returns early when ctx ends.
func (d *daemon) withdraw(ctx context.Context) {
	lead := d.live.now().AnnounceLead
	within, cancel := context.WithTimeout(ctx, lead)
	defer cancel()
	d.log.Info("stopping: announced addresses are withdrawn, the agent ends after the lead", zap.Duration("in", lead))
	if err := d.loop.Adjust(within, func() { d.mode.announced().Withdraw("the agent stops") }); err != nil && ctx.Err() == nil {
		d.log.Warn("the routes that announce addresses may remain: the agent could not withdraw them in time", zap.Error(err))
	}
	<-within.Done()
}

// lingering is a context that ends some time after the one that ends at the request to stop.
type lingering struct {
	last atomic.Pointer[func(context.Context)]
}

// start returns a context that ends when asked has ended and the last action has returned.
func (l *lingering) start(asked context.Context) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancel(context.WithoutCancel(asked))
	context.AfterFunc(asked, func() {
		defer end()
		if last := l.last.Load(); last != nil {
			(*last)(ctx)
		}
	})
	return ctx, end
}

// until sets the last action.
func (l *lingering) until(last func(context.Context)) { l.last.Store(&last) }

// announced returns the manager of the routes that announce addresses; of the loop.
func (m *activeMode) announced() *announce.Manager {
	if m.ipvs != nil {
		return m.ipvs.Announced()
	}
	return m.rules.Announced()
}

// announcementRepair returns how a loss that the link watch reports is repaired; nil for other events.
func announcementRepair(m *announce.Manager, e link.Event) func(context.Context) error {
	switch e.Kind {
	case link.OurAnnouncementLost:
		return func(context.Context) error { m.Lost(e.Announced); return nil }
	case link.Overrun:
		return func(ctx context.Context) error { _, err := m.Inspect(ctx, false); return err }
	}
	return nil
}
