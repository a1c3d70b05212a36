package plan_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/plan"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/build"
)

// TestRelays: node ports on loopback go to the cluster IP, or to endpoints where a policy leaves the
// cluster IP other ones. They are refused where the Service has none.
func TestRelays(t *testing.T) {
	onNode := webSlice("a", ready(a1, "here"), ready(a2, "far"))
	const cluster, here1, far2 = "127.0.0.1:30080/tcp -> 10.96.0.1:80", a1 + ":8080", a2 + ":8080"
	svc := func(opts ...func(*model.Service)) *model.Service { return web(append(opts, nodePorts(30080))...) }
	weightless := webSlice("a", ready(a1, "here"))
	weightless.Weight = new(uint16)
	for _, tt := range []struct {
		name   string
		svc    *model.Service
		slices []model.Slice
		want   []string
	}{
		{"the cluster IP", svc(), []model.Slice{onNode}, []string{cluster}},
		{"no node port", web(), []model.Slice{onNode}, nil},
		{"no endpoint", svc(), nil, []string{"127.0.0.1:30080/tcp ->", "note: 10.96.0.1:80/tcp: no endpoints: no backends"}},
		{"weight 0", svc(), []model.Slice{weightless}, []string{"127.0.0.1:30080/tcp ->"}},
		{"external policy Local", svc(externalLocal()), []model.Slice{onNode}, []string{"127.0.0.1:30080/tcp -> " + here1}},
		{"external policy Local, none here", svc(externalLocal()), []model.Slice{webSlice("a", ready(a2, "far"))},
			[]string{"127.0.0.1:30080/tcp ->", "note: IPv4 port 80/tcp from outside: externalTrafficPolicy is Local and no endpoint on this node is ready: no backends"}},
		{"internal policy Local", svc(build.InternalLocal()), []model.Slice{onNode}, []string{"127.0.0.1:30080/tcp -> " + here1 + " " + far2}},
		{"both families", svc(build.IPs("fd00:96::1")), []model.Slice{onNode, webSlice("b", ready("fd00::1", "here"))},
			[]string{cluster, "[::1]:30080/tcp -> [fd00:96::1]:80"}},
		{"UDP", web(build.PortOver(model.UDP, "http", 80), nodePorts(0, 30080)), []model.Slice{build.Slice("web", "a", build.TargetOver(model.UDP, "http", 8080), build.Endpoints(ready(a1, "here")))},
			[]string{"127.0.0.1:30080/udp -> 10.96.0.1:80", "note: 10.96.0.1:80/tcp: no EndpointSlice has a port named \"http\" over tcp: no backends"}},
		{"SCTP", web(build.PortOver(model.SCTP, "s", 80), nodePorts(0, 30080)), []model.Slice{onNode, build.Slice("web", "b", build.TargetOver(model.SCTP, "s", 8080), build.Endpoints(ready(a1, "here")))},
			[]string{"note: node port 30080/sctp is not served on loopback: only TCP and UDP are relayed"}},
		{"twice", web(build.Port("b", 81), nodePorts(30080, 30080)), []model.Slice{onNode, build.Slice("web", "b", build.Target("b", 8081), build.Endpoints(ready(a1, "here")))},
			[]string{cluster, "note: node port 30080/tcp is listed twice: port \"b\" is not served there"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := here
			o.Relayed = []netip.Addr{addr("127.0.0.1"), addr("::1")}
			p := plan.New(o).Compile(tt.svc.ID, tt.svc, tt.slices)
			var got []string
			for _, r := range p.Relays {
				got = append(got, r.Key.String()+" ->"+addrList(r.Targets))
			}
			for _, n := range p.Notes {
				got = append(got, "note: "+n.Text)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("relays and notes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRelaysAreLimited: they count among the frontends that one Service may have, and have its affinity.
func TestRelaysAreLimited(t *testing.T) {
	o := here
	o.Relayed, o.MaxFrontends = []netip.Addr{addr("127.0.0.1")}, 3
	svc := web(build.Port("b", 81), nodePorts(30080, 30081), build.Affinity(time.Minute))
	p := plan.New(o).Compile(svc.ID, svc, nil)
	if len(p.Relays) != 1 || p.Relays[0].Affinity != time.Minute || p.Beyond.Frontends != 1 {
		t.Errorf("relays %v, %d beyond the limit", p.Relays, p.Beyond.Frontends)
	}
}

func TestRelayedAddresses(t *testing.T) {
	v4, v6 := addr("127.0.0.1"), addr("::1")
	both := model.Families()
	for _, tt := range []struct {
		name     string
		s        plan.NodePortSelection
		families []model.Family
		want     []netip.Addr
	}{
		{"the keyword", plan.NodePortSelection{Localhost: true, Primary: true}, both[:], []netip.Addr{v4, v6}},
		{"the keyword on a node of one family", plan.NodePortSelection{Localhost: true}, both[:1], []netip.Addr{v4}},
		{"nothing", plan.NodePortSelection{}, both[:], nil},
		{"all", plan.NodePortSelection{All: true}, both[:], nil},
		{"all addresses of IPv4", plan.NodePortSelection{CIDRs: nets("0.0.0.0/0")}, both[:], nil},
		{"a loopback network", plan.NodePortSelection{CIDRs: nets("127.0.0.0/8")}, both[:], []netip.Addr{v4}},
		{"a loopback network without the address", plan.NodePortSelection{CIDRs: nets("127.0.1.0/24")}, both[:], nil},
		{"the loopback address of IPv6", plan.NodePortSelection{CIDRs: nets("192.0.2.0/24", "::1/128")}, both[:], []netip.Addr{v6}},
	} {
		if diff := cmp.Diff(tt.want, tt.s.Relayed(tt.families), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}
