package daemon

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/announce"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/iptables"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/httpd"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link/linktest"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables/nftablestest"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules/rulestest"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
	"github.com/kube-ipvs/kube-ipvs/internal/telemetry"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/build"
	"github.com/kube-ipvs/kube-ipvs/internal/wiring"
)

// A node announces as /healthz answers. Before the first good answer it is not judged.
func TestNodeIsJudgedAsLoadBalancersDo(t *testing.T) {
	good := httpd.Check{Name: "loop", Health: true, Ready: true}
	bad := httpd.Check{Name: "loop", Health: true, Ready: true, Reason: "stuck"}
	other := httpd.Check{Name: "apply", Ready: true, Reason: "failed 3 times"}
	serves, stuck := announce.Node{Serves: true}, announce.Node{Why: "health check loop fails"}
	leaving := announce.Node{Why: "this node is leaving: its Node object is gone or being deleted, or has the taint of a node that will be deleted"}
	for _, tt := range []struct {
		name       string
		check      httpd.Check
		eligible   bool
		last, want announce.Node
	}{
		{"starting", bad, false, announce.Node{}, announce.Node{}},
		{"started", good, true, announce.Node{}, serves},
		{"started while it leaves", good, false, announce.Node{}, leaving},
		{"not ready, but healthy", other, true, serves, serves},
		{"unhealthy", bad, true, serves, stuck},
		{"unhealthy while it leaves", bad, false, leaving, stuck},
		{"leaving", good, false, serves, leaving},
		{"back", good, true, leaving, serves},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := nodeFor(httpd.Report{Checks: []httpd.Check{tt.check}, NodeEligible: tt.eligible}, tt.last); got != tt.want {
				t.Errorf("node %+v, want %+v", got, tt.want)
			}
		})
	}
}

// announcer is a daemon on fakes with one announced address.
func announcer(links *linktest.Fake) *daemon {
	log, families := zap.NewNop(), []model.Family{model.IPv4}
	d := &daemon{
		log: log, served: families, known: catalog.New(log, "node-a", model.FromFile),
		live: newLiveConfig(config.Config{Announcing: config.Announcing{AnnounceTable: 100, AnnounceLead: 5 * time.Second}}),
	}
	m := iptables.New(log, iptables.Config{Families: families, AnnounceTable: 100}, iptables.Deps{
		Rules: rulestest.New(rules.Options{Owned: netfilter.OfIPTables}), Tables: nftablestest.New(), Announced: links,
	})
	d.mode = &activeMode{Inspectable: m, rules: m}
	c := config.Config{ModeChoice: config.ModeChoice{Mode: config.ModeIPTables}, Exposure: config.Exposure{AllowExternalIPs: true}}
	d.loop = agent.New(agent.Options{
		Log: log, Catalog: d.known, Mode: m, Host: links, Receivers: agent.Receivers{Observer: telemetry.New()}, NodePorts: wiring.NodePortsFor(wiring.Static(c)),
		Compiler: wiring.CompilerFor(wiring.Static(c), families), Affects: wiring.AffectsFor(wiring.Static(c), families),
	})
	web := build.Service("web", build.IPs("10.96.0.10"), build.Port("", 80))
	web.ExternalIPs = []netip.Addr{netip.MustParseAddr("203.0.113.10")}
	d.known.SetService(*web)
	d.known.SetSlice(build.Slice("web", "web-1", build.Target("", 80), build.Endpoints(build.Ready("10.244.0.5", "node-a"))))
	d.known.SetState(model.FromFile, source.Complete)
	return d
}

const announcedRoute = "ip route add blackhole 203.0.113.10/32 table 100 proto 73\n"

// A node that leaves withdraws its addresses, and a stop does so before the agent ends: it serves for the lead.
func TestStopWithdrawsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		links := linktest.New()
		d := announcer(links)
		asked, stop := context.WithCancel(t.Context())
		var linger lingering
		ctx, end := linger.start(asked)
		defer end()
		linger.until(d.withdraw)
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return d.loop.Run(ctx) })
		group.Go(func() error { return d.announceNode(ctx) })
		announced := func(when, want string) {
			t.Helper()
			synctest.Wait()
			if got := links.String(); got != want {
				t.Errorf("%s: routes %q, want %q", when, got, want)
			}
		}
		time.Sleep(5 * time.Second)
		announced("in sync", announcedRoute)
		d.known.SetNode(model.FromFile, model.Node{Name: "node-a", Leaving: true})
		time.Sleep(5 * time.Second)
		announced("the node leaves", "")
		d.known.SetNode(model.FromFile, model.Node{Name: "node-a"})
		time.Sleep(5 * time.Second)
		announced("the node stays", announcedRoute)

		stop()
		announced("asked to stop", "")
		time.Sleep(4 * time.Second)
		if announced("during the lead", ""); ctx.Err() != nil {
			t.Error("the agent ended before the lead was over")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if ctx.Err() == nil {
			t.Error("the agent has not ended after the lead")
		}
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
	})
}

// Without anything to withdraw the context ends with the request to stop.
func TestStopWithoutLead(t *testing.T) {
	asked, stop := context.WithCancel(t.Context())
	var linger lingering
	ctx, end := linger.start(asked)
	defer end()
	stop()
	<-ctx.Done()
}

// The table of the agent's own routes is refused for announcements.
func TestDetachedTableIsRefused(t *testing.T) {
	if config.DetachedTable != link.DetachedTable {
		t.Errorf("config refuses table %d, the table of detached addresses is %d", config.DetachedTable, link.DetachedTable)
	}
}
