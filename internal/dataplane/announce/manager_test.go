package announce_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/announce"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link/linktest"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

const (
	vip  = "203.0.113.10"
	vip6 = "2001:db8::10"
)

// node is a manager with a kernel.
type node struct {
	*announce.Manager
	t     *testing.T
	links *linktest.Fake
	// missing are the frontends whose rows are not in place.
	missing map[model.FrontendKey]bool
}

// newNode begins a process on a kernel.
func newNode(t *testing.T, links *linktest.Fake, table uint32) *node {
	n := &node{t: t, links: links, missing: map[model.FrontendKey]bool{}}
	n.Manager = announce.New(announce.Options{
		Log: zap.NewNop(), Kernel: links, Table: table, InPlace: func(k model.FrontendKey) bool { return !n.missing[k] },
	})
	n.load()
	return n
}

// serving is a node that serves, with table 100.
func serving(t *testing.T) *node {
	n := newNode(t, linktest.New(), 100)
	n.SetNode(announce.Node{Serves: true})
	return n
}

func (n *node) load() {
	n.t.Helper()
	if _, err := n.Load(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
}

// apply writes what is pending, as the last stage of a pipeline.
func (n *node) apply() delta.Outcome {
	p := delta.Pass{Orphans: true, Retry: true}
	return n.Rows.ApplyUpdates(n.t.Context(), p).Plus(n.Rows.ApplyDeletes(n.t.Context(), p))
}

// routes applies, and compares the routes in the kernel.
func (n *node) routes(want ...string) {
	n.t.Helper()
	n.apply()
	var got []string
	for line := range strings.Lines(n.links.String()) {
		got = append(got, strings.TrimSpace(line))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		n.t.Errorf("routes (-want +got):\n%s", diff)
	}
}

func route(addr string) string {
	if strings.Contains(addr, ":") {
		return "ip route add blackhole " + addr + "/128 table 100 proto 73"
	}
	return "ip route add blackhole " + addr + "/32 table 100 proto 73"
}

// says compares what is reported of an address.
func (n *node) says(addr, want string) {
	n.t.Helper()
	got := "nothing"
	if a := n.Announcement(netip.MustParseAddr(addr)); a != nil {
		got = a.String()
	}
	if got != want {
		n.t.Errorf("%s: %q, want %q", addr, got, want)
	}
}

// frontend is one with a backend.
func frontend(addr string, port uint16, change ...func(*model.Frontend)) *model.Frontend {
	f := &model.Frontend{
		Key:  model.FrontendKey{Addr: netip.MustParseAddr(addr), Port: port, Protocol: model.TCP},
		Kind: model.KindLoadBalancer, Backends: []model.Backend{{Addr: netip.MustParseAddrPort("10.0.0.1:80"), Weight: 1}},
	}
	for _, c := range change {
		c(f)
	}
	return f
}

func kind(k model.Kind) func(*model.Frontend) { return func(f *model.Frontend) { f.Kind = k } }
func local(f *model.Frontend)                 { f.Local = true }
func terminating(f *model.Frontend)           { f.Terminating = true }
func empty(f *model.Frontend)                 { f.Backends = nil }
func drained(f *model.Frontend)               { f.Backends[0].Weight = 0 }

func (n *node) set(all ...*model.Frontend) {
	for _, f := range all {
		n.OnChange(dataplane.Change{Key: f.Key, New: f})
	}
}

func (n *node) gone(f *model.Frontend) { n.OnChange(dataplane.Change{Key: f.Key, Old: f}) }

// One route for each address of a load balancer and each external IP that this node serves.
func TestWhatIsAnnounced(t *testing.T) {
	for _, tt := range []struct {
		name string
		of   []*model.Frontend
		want string
	}{
		{"a load-balancer address", []*model.Frontend{frontend(vip, 80)}, "announced in table 100"},
		{"an external IP", []*model.Frontend{frontend(vip, 80, kind(model.KindExternalIP))}, "announced in table 100"},
		{"a cluster IP", []*model.Frontend{frontend(vip, 80, kind(model.KindClusterIP))}, "nothing"},
		{"a node port", []*model.Frontend{frontend(vip, 80, kind(model.KindNodePort))}, "nothing"},
		{"a detour", []*model.Frontend{frontend(vip, 80, kind(model.KindDetour))}, "nothing"},
		{"policy Local with an endpoint here", []*model.Frontend{frontend(vip, 80, local)}, "announced in table 100"},
		{"policy Local without", []*model.Frontend{frontend(vip, 80, local, empty)}, "not announced: no local endpoint"},
		{"policy Local, the last one terminates", []*model.Frontend{frontend(vip, 80, local, terminating)}, "not announced: its endpoints on this node terminate"},
		{"no endpoint anywhere", []*model.Frontend{frontend(vip, 80, empty)}, "not announced: no endpoint"},
		{"all drained", []*model.Frontend{frontend(vip, 80, drained)}, "not announced: all of its endpoints have weight 0"},
		{"one port of two", []*model.Frontend{frontend(vip, 80, empty), frontend(vip, 443)}, "announced in table 100"},
		{"no port of two", []*model.Frontend{frontend(vip, 80, empty), frontend(vip, 443, drained)}, "not announced: all of its endpoints have weight 0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := serving(t)
			n.set(tt.of...)
			if strings.HasPrefix(tt.want, "announced") {
				n.routes(route(vip))
			} else {
				n.routes()
			}
			n.says(vip, tt.want)
		})
	}
}

// The route follows the last frontend of its address.
func TestRouteFollowsFrontends(t *testing.T) {
	n := serving(t)
	http, https, six := frontend(vip, 80), frontend(vip, 443), frontend(vip6, 80)
	n.set(http, https, six)
	n.routes(route(vip), route(vip6))
	n.gone(http)
	n.routes(route(vip), route(vip6))
	n.gone(https)
	n.routes(route(vip6))
	n.says(vip, "nothing")
	n.set(frontend(vip6, 80, local, empty))
	n.routes()
	n.set(six)
	n.routes(route(vip6))
	n.set(frontend(vip6, 80, kind(model.KindClusterIP)))
	n.routes()
}

// An address waits for the rows of a frontend that takes connections.
func TestRouteWaitsForRows(t *testing.T) {
	n := serving(t)
	http, https := frontend(vip, 80), frontend(vip, 443, empty)
	n.missing[http.Key] = true
	n.set(http, https)
	n.routes()
	n.says(vip, "not announced: its route is not in the kernel yet")
	n.missing[http.Key] = false
	n.routes(route(vip))
	n.missing[http.Key] = true // lost, and repaired soon
	n.routes(route(vip))
}

// An address that a machine or a pod has is never announced.
func TestAddressOfAMachine(t *testing.T) {
	n := serving(t)
	n.set(frontend(vip, 80))
	n.routes(route(vip))
	n.SetHost(model.Host{Nodes: map[netip.Addr]string{netip.MustParseAddr(vip): "worker-2"}})
	n.says(vip, `announced in table 100 until the route is deleted: it is an address of node "worker-2"`)
	n.routes()
	n.says(vip, `not announced: it is an address of node "worker-2"`)
	n.SetHost(model.Host{})
	n.routes(route(vip))
}

// A node that load balancers are not to use announces nothing; one that stops never again.
func TestNodeThatLeaves(t *testing.T) {
	n := serving(t)
	n.set(frontend(vip, 80), frontend(vip6, 80))
	n.routes(route(vip), route(vip6))
	n.SetNode(announce.Node{Why: "this node is leaving"})
	n.routes()
	n.says(vip, "not announced: this node is leaving")
	n.set(frontend("203.0.113.11", 80))
	n.routes()
	n.SetNode(announce.Node{Serves: true})
	n.routes(route(vip), route("203.0.113.11"), route(vip6))
	n.Withdraw("the agent stops")
	n.SetNode(announce.Node{Serves: true})
	n.routes()
	n.says(vip, "not announced: the agent stops")
}

// Routes of a process that died stay until the next one knows more; it adds none before.
func TestStartKeepsRoutes(t *testing.T) {
	n := serving(t)
	n.set(frontend(vip, 80), frontend("203.0.113.11", 80))
	n.apply()
	for _, loadedFirst := range []bool{true, false} {
		next := newNode(t, n.links, 100)
		next.set(frontend(vip, 80), frontend("203.0.113.12", 80), frontend("203.0.113.13", 80, empty))
		if !loadedFirst {
			next.load()
		}
		if next.says(vip, "announced in table 100"); next.Rows.Counts().Updates != 0 {
			t.Errorf("rows wait before the node is judged: %+v", next.Rows.Counts())
		}
		next.says("203.0.113.12", "not announced: this node is not ready yet")
		next.routes(route(vip)) // no Service has 203.0.113.11 any more
	}
	next := newNode(t, n.links, 100)
	next.set(frontend(vip, 80), frontend("203.0.113.12", 80))
	next.SetNode(announce.Node{Serves: true})
	next.routes(route(vip), route("203.0.113.12"))
}

// Another table, or none, takes the routes of the old one with it.
func TestTableChanges(t *testing.T) {
	n := serving(t)
	n.set(frontend(vip, 80))
	n.apply()
	next := newNode(t, n.links, 200)
	next.SetNode(announce.Node{Serves: true})
	next.set(frontend(vip, 80))
	next.routes("ip route add blackhole 203.0.113.10/32 table 200 proto 73")
	off := newNode(t, n.links, 0)
	off.SetNode(announce.Node{Serves: true})
	off.set(frontend(vip, 80))
	off.routes()
	off.says(vip, "nothing")
}

// A route of another program is neither taken over nor deleted; that of the agent comes when it is gone.
func TestForeignRoute(t *testing.T) {
	n := serving(t)
	theirs := link.Announcement{Table: 100, Addr: netip.MustParseAddr(vip)}
	n.links.AnnounceByHand(theirs)
	n.set(frontend(vip, 80))
	if o := n.apply(); o.Failed != 1 || !strings.Contains(o.Err().Error(), "another program") {
		t.Errorf("outcome %+v, %v", o, o.Err())
	}
	n.says(vip, "not announced: its route is not in the kernel yet")
	n.gone(frontend(vip, 80))
	n.apply()
	n.set(frontend(vip, 80))
	if o := n.apply(); o.Failed != 1 {
		t.Errorf("the foreign route is gone: %+v", o)
	}
	n.links.RemoveAnnouncedByHand(theirs)
	n.routes(route(vip))
}

// A loss is repaired, by the event or by an audit.
func TestLostRoute(t *testing.T) {
	n := serving(t)
	n.set(frontend(vip, 80))
	n.apply()
	row := link.Announcement{Table: 100, Addr: netip.MustParseAddr(vip)}
	n.links.LoseAnnouncement(row)
	n.Lost(row)
	n.routes(route(vip))
	n.links.LoseAnnouncement(row)
	if drift, err := n.Inspect(t.Context(), false); drift != 1 || err != nil {
		t.Errorf("drift %d, %v", drift, err)
	}
	n.routes(route(vip))
}

// An audit reads a table without routes only in a full round.
func TestAuditOfNothing(t *testing.T) {
	n := serving(t)
	n.links.FailAlways(linktest.ListAnnounced, link.ErrBusy)
	if _, err := n.Inspect(t.Context(), false); err != nil {
		t.Error(err)
	}
	if _, err := n.Inspect(t.Context(), true); err == nil {
		t.Error("a full round has not read")
	}
}

// Packets of this machine must not follow the routes, which drop them.
func TestTableThatIsInUse(t *testing.T) {
	n := serving(t)
	n.set(frontend(vip, 80))
	n.routes(route(vip))
	n.links.LeadTo(100, 32000)
	n.load()
	n.routes()
	n.says(vip, "not announced: the routing rule with priority 32000 leads to table 100, whose routes drop packets")
	n.links.LeadTo(100)
	n.load()
	n.routes(route(vip))
}

// A write that fails stays pending, as the command that an operator would type.
func TestFailedWrite(t *testing.T) {
	n := serving(t)
	n.set(frontend(vip, 80))
	n.links.FailNth(linktest.WriteAnnounced, 1, link.ErrBusy)
	if o := n.apply(); o.Failed != 1 {
		t.Errorf("outcome %+v", o)
	}
	if p := n.Pending(10); len(p.Rows) != 1 || p.Rows[0].Text() != route(vip) || !p.Rows[0].Failed {
		t.Errorf("pending %+v", p)
	}
	n.routes(route(vip))
	n.gone(frontend(vip, 80))
	if p := n.Pending(10); len(p.Rows) != 1 || p.Rows[0].Text() != strings.Replace(route(vip), "add", "del", 1) {
		t.Errorf("pending %+v", p)
	}
}

// Another mode that runs has the same routes: they are left to it.
func TestRoutesOfAnotherMode(t *testing.T) {
	n := serving(t)
	n.set(frontend(vip, 80))
	n.apply()
	left := announce.New(announce.Options{Log: zap.NewNop(), Kernel: n.links, Table: 100, Left: func() bool { return true }})
	if _, err := left.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	left.Rows.ApplyDeletes(t.Context(), delta.Pass{Orphans: true})
	n.routes(route(vip))
}
