package packet

import (
	"net/netip"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
	"github.com/kube-ipvs/kube-ipvs/e2e/load"
)

// away is how long an endpoint is not ready: more than twice awayDrain, the time for which an endpoint that has left may drain.
const (
	awayDrain = 8 * time.Second
	away      = 20 * time.Second
)

// TestNotReadyAndBack: an endpoint that is not ready for longer than the drain time keeps its
// connections, because it is listed and may come back. Its destination only changes its weight and
// is never deleted. A Service that is deleted cuts.
func TestNotReadyAndBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	workers := w.workers(t, 0, 2)
	k := workers[0]
	s := service{name: "doubtful", vip: pair{v4: "10.96.0.83"}, ports: webPorts()[:1], backends: []endpoint{k.endpoint, workers[1].endpoint}}
	n := newAgent(t, w.node, "--cluster-cidr", clusters, "--drain", awayDrain.String())
	n.write(t, s)
	n.start(t)
	watch := w.node.watch(t)
	profile := load.Profile{To: netip.MustParseAddrPort(s.vip.v4 + ":80"), Sources: w.pod3.clients(t, 30, 2), Every: time.Second}
	profile.Long = 6
	held := w.pod3.load(t, profile)
	until(t, held, "connections held open", func(r load.Report) bool { return r.Long.Alive == 6 })
	profile.Long, profile.New = 0, 5
	fresh := w.pod3.load(t, profile)

	turn := func(unready bool, weight string) {
		before := n.shown(t)
		s.backends[0].unready = unready
		n.write(t, s)
		watch.wait(t, k.at(s), weight)
		n.quiet(t)
		wantWritten(t, before, n.shown(t), map[string]uint64{"destinations": 1})
	}
	turn(true, "0")
	since := held.Report()
	until(t, held, "twice the drain time to pass", func(r load.Report) bool { return r.Took > since.Took+away })
	during := held.Report()
	turn(false, "1")
	atReturn := fresh.Report().Backends[k.name]
	until(t, fresh, "new connections to it", func(r load.Report) bool { return r.Backends[k.name] > atReturn+3 })
	more(t, fresh, 10)

	got, err := fresh.Stop()
	if err != nil || got.Failures() > 0 {
		t.Errorf("new connections: %v\n%s", err, report(got))
	}
	if got := watch.weights(k.at(s)); got != "1 0 1" {
		t.Errorf("weights %s, want 1 0 1", got)
	}
	lives := held.Report()
	on := 0
	for i, c := range lives.Long.Conns {
		if c.Backend == k.name {
			on++
			if asked := during.Long.Conns[i].Answers - since.Long.Conns[i].Answers; asked < 10 {
				t.Errorf("%s answered %d times while it was not ready", c.Client, asked)
			}
		}
	}
	t.Logf("figure: %d connections held open through %s of not being ready, %d of %d live, %d new ones, %d failed",
		on, away, lives.Long.Alive, len(lives.Long.Conns), got.Started, got.Failures())
	if on == 0 || lives.Long.Alive != 6 {
		t.Errorf("want some at the endpoint, and all to live:\n%s", report(lives))
	}

	n.remove(t, s)
	watch.until(t, "the Service to be gone", func(rows map[serving]row) bool { return len(rows) == 0 })
	until(t, held, "all to be cut", func(r load.Report) bool { return r.Long.Cuts() == 6 })
	if got := held.Report().Long; got.Failed[backend.Reset]+got.Failed[backend.Timeout]+got.Failed[backend.Refused] != 6 {
		t.Errorf("cut in another way than by the network: %v", got.Failed)
	}
}
