package packet

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
	"github.com/kube-ipvs/kube-ipvs/e2e/load"
)

// directors are two nodes without pods, which a router chooses between for each connection, and a
// farm that routes to the pods. The pods answer by the farm, so with direct return no answer passes
// a director.
//
//	client ── router ─┬─ up0 node-a fab0 ─┬─ farm ── cni0 ── pod-1 ... pod-5
//	                  ├─ up0 node-b fab0 ─┤
//	                  └───────────────────┘ answers
type directors struct {
	a, b   director
	router *space
	client *pod
	pods   []*pod
	web    service
}

// director is a node with its agent and the way to it.
type director struct {
	*proxy
	via  pair   // its address for the router
	link string // the router's link to it
}

// The pods at the beginning, and the connections of each family that are held open.
const (
	directorPods = 4
	directorLong = 150
)

// newDirectors starts both agents with one Service at directVIP, with these annotations.
func newDirectors(t *testing.T, policy annotations) *directors {
	t.Helper()
	needIPVS(t)
	d := &directors{router: newSpace(t, "router")}
	a, b, farm := newNode(t, thisNode, 0), newNode(t, otherNode, 1), newNode(t, "farm", 2)
	for _, s := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		d.router.sysctl(t, s, "1")
	}
	for _, family := range families {
		// By the fields of the packet, as a router of another vendor. By policy 1 it would be the hash of the
		// client's socket, which is in the same kernel, and that changes with each retransmission.
		d.router.sysctl(t, fmt.Sprintf("ipv%d/fib_multipath_hash_policy", family), "3")
		d.router.sysctl(t, fmt.Sprintf("ipv%d/fib_multipath_hash_fields", family), strconv.Itoa(0x37)) // addresses, protocol, ports
	}
	d.router.sysctl(t, "ipv4/conf/all/rp_filter", "0")
	d.router.sysctl(t, "ipv4/conf/default/rp_filter", "0")
	clients := pair{"203.0.113.0/24", "2001:db8::/64"}
	d.client = &pod{space: newSpace(t, "client"), name: "client", addr: pair{"203.0.113.9", "2001:db8::9"}}
	wire(t, d.router, "out0", d.client.space, "eth0")
	d.router.address(t, "out0", "203.0.113.1/24", "2001:db8::1/64")
	d.client.address(t, "eth0", "203.0.113.9/24", "2001:db8::9/64")
	d.client.defaultRoute(t, pair{"203.0.113.1", "2001:db8::1"})
	for i, n := range []*node{a, b} {
		up := pair{fmt.Sprintf("198.51.100.%d", 16*i+1), fmt.Sprintf("2001:db8:2:%d::1", i)}
		router := pair{fmt.Sprintf("198.51.100.%d", 16*i+2), fmt.Sprintf("2001:db8:2:%d::2", i)}
		link := "to-" + n.name
		wire(t, n.space, "up0", d.router, link)
		n.address(t, "up0", up.v4+"/28", up.v6+"/64")
		d.router.address(t, link, router.v4+"/28", router.v6+"/64")
		for _, family := range families { // a route over several neighbours passes over those that are not known yet
			d.router.run(t, "ip", "neigh", "replace", up.of(family), "lladdr", n.link(t, "up0").Attrs().HardwareAddr.String(), "dev", link, "nud", "permanent")
		}
		n.reach(t, "up0", clients, router)
		fab, far := pair{fmt.Sprintf("192.168.%d.1", i), fmt.Sprintf("fd00:192:0:%d::1", i)}, pair{fmt.Sprintf("192.168.%d.2", i), fmt.Sprintf("fd00:192:0:%d::2", i)}
		n.neighbour(t, farm.space, "fab0", "to-"+n.name, fab, far)
		n.reach(t, "fab0", podRange(2), far)
		one := director{newAgent(t, n, "--cluster-cidr", clusters), up, link}
		if n == a {
			d.a = one
		} else {
			d.b = one
		}
	}
	wire(t, farm.space, "up0", d.router, "to-farm")
	farm.address(t, "up0", "198.51.100.65/28", "2001:db8:2:8::1/64")
	d.router.address(t, "to-farm", "198.51.100.66/28", "2001:db8:2:8::2/64")
	farm.reach(t, "up0", clients, pair{"198.51.100.66", "2001:db8:2:8::2"})
	for i := range directorPods + 1 {
		p := farm.newPod(t, fmt.Sprintf("pod-%d", i+1), i+1)
		serve(t, p.space, backend.Config{Name: p.name, TCP: ":8080"})
		p.ownsByTunnel(t, "tunnel")
		d.pods = append(d.pods, p)
	}
	d.web = service{
		name: "web", vip: pair{"10.96.0.20", "fd00:96::20"}, external: directVIP, annotations: policy,
		ports: []port{{"tcp", "TCP", 8080, 8080}}, backends: endpoints(d.pods[:directorPods]...),
	}
	for _, n := range []director{d.a, d.b} {
		n.writeFile(t, "nodes.yaml", list(a.object(pair{"192.168.0.1", "fd00:192::1"}), b.object(pair{"192.168.1.1", "fd00:192:0:1::1"})))
		n.write(t, d.web)
		n.start(t)
	}
	return d
}

// lead has the router send to some directors, to each as many connections as to the others.
func (d *directors) lead(t *testing.T, to ...director) {
	t.Helper()
	for _, family := range families {
		args := []string{"-" + strconv.Itoa(family), "route", "replace", directVIP.of(family)}
		for _, one := range to {
			args = append(args, "nexthop", "via", one.via.of(family), "dev", one.link)
		}
		d.router.run(t, "ip", args...)
	}
}

// hold opens the long connections of both families.
func (d *directors) hold(t *testing.T) map[int]*load.Run {
	t.Helper()
	out := map[int]*load.Run{}
	for _, family := range families {
		run := d.client.load(t, load.Profile{
			To: netip.MustParseAddrPort(hostPort(directVIP.of(family), 8080)), Sources: []netip.Addr{netip.MustParseAddr(d.client.addr.of(family))},
			Long: directorLong, Every: time.Second,
		})
		until(t, run, "connections held open", func(r load.Report) bool { return r.Long.Alive == directorLong })
		out[family] = run
	}
	return out
}

// connections is how many a node has to the Service, by family, in its connection table.
func (n *node) connections(t *testing.T) map[int]int {
	t.Helper()
	out := map[int]int{}
	for line := range strings.Lines(n.run(t, "ipvsadm", "-Lcn")) {
		switch {
		case strings.Contains(line, directVIP.v4+":8080"):
			out[4]++
		case strings.Contains(line, "["+directVIP.v6+"]:8080"):
			out[6]++
		}
	}
	return out
}

// die takes a director from the router and ends it, with all that it knows.
func (d *directors) die(t *testing.T, gone, left director) {
	t.Helper()
	d.lead(t, left)
	gone.kill(t)
	d.router.run(t, "ip", "link", "set", gone.link, "down")
}

// cut is how many of the long connections ended after each had more requests.
func cut(t *testing.T, run *load.Run) int {
	t.Helper()
	asked := run.Report().Long.Answers
	until(t, run, "further requests on each connection", func(r load.Report) bool {
		return r.Long.Answers-asked >= 2*r.Long.Alive
	})
	r, err := run.Stop()
	if err != nil {
		t.Error(err)
	}
	if r.Long.Opened != directorLong {
		t.Errorf("%d connections opened, want %d", r.Long.Opened, directorLong)
	}
	return r.Long.Opened - r.Long.Alive
}

// TestConnectionsOutliveADirector kills a director under long connections. With mh and direct return
// the other one continues all of them; without either it does not. After a backend was added, it
// continues all but those that mh gives to the new one.
func TestConnectionsOutliveADirector(t *testing.T) {
	mh := annotations{"scheduler": "mh", "forward": "tunnel"}
	for _, tt := range []struct {
		name   string
		policy annotations
		add    bool // a backend, while both directors live
		least  func(by int) int
		most   func(by int) int // connections that are cut, of those by node-a
	}{
		{"mh and a tunnel", mh, false, none, none},
		{"a backend is added", mh, true, none, func(int) int { return directorLong/directorPods + directorLong*2/100 }},
		{"nat", annotations{"scheduler": "mh"}, false, all, all},
		{"another scheduler", annotations{"scheduler": "rr", "forward": "tunnel"}, false, func(by int) int { return by / 2 }, all},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := newDirectors(t, tt.policy)
			d.lead(t, d.a, d.b)
			held := d.hold(t)
			byA, byB := d.a.connections(t), d.b.connections(t)
			if tt.add {
				d.web.backends = endpoints(d.pods...)
				for _, n := range []director{d.a, d.b} {
					n.edit(t, func() { n.write(t, d.web) })
				}
			}
			d.die(t, d.a, d.b)
			table := newTable("family", "connections", "by node-a", "by node-b", "cut")
			for _, family := range families {
				n := cut(t, held[family])
				table.row(family, directorLong, byA[family], byB[family], n)
				if byA[family] < directorLong/5 || byB[family] < directorLong/5 {
					t.Errorf("IPv%d: the router gave %d connections to node-a and %d to node-b", family, byA[family], byB[family])
				}
				if least, most := tt.least(byA[family]), tt.most(byA[family]); n < least || n > most {
					t.Errorf("IPv%d: %d of %d connections by node-a are cut, want %d to %d", family, n, byA[family], least, most)
				}
			}
			t.Logf("figure: node-a dies\n%s", table)
		})
	}
}

func none(int) int   { return 0 }
func all(by int) int { return by }

// TestPickupFollowsServices: the sysctl is on while a Service asks for it, is repaired, and gets its old value
// back from the Service's end and from cleanup.
func TestPickupFollowsServices(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	web := service{
		name: "web", vip: pair{"10.96.0.20", "fd00:96::20"}, external: directVIP, annotations: annotations{"scheduler": "mh", "forward": "dr"},
		ports: []port{{"tcp", "TCP", 8080, 8080}}, backends: endpoints(w.pod1),
	}
	const key = "ipv4/vs/sloppy_tcp"
	is := func(want string) {
		t.Helper()
		poll(t, key+" to be "+want, settleTimeout, func() error {
			if got := strings.TrimSpace(w.node.run(t, "cat", "/proc/sys/net/"+key)); got != want {
				return fmt.Errorf("it is %s", got)
			}
			return nil
		})
	}
	n.start(t)
	is("0")
	n.edit(t, func() { n.write(t, web) })
	is("1")
	if got := n.metric(t, `kube_ipvs_connection_pickup{protocol="tcp"}`); got != 1 {
		t.Errorf("the metric is %g, want 1", got)
	}
	for verb, want := range map[string]string{"check": "they continue here at 2 addresses and ports (mh with dr or tunnel)", "explain": "is picked up, with the backend that it had"} {
		args := map[string][]string{"explain": {"test/web", "--all"}}[verb]
		if out, err := n.verb(verb, args...); !strings.Contains(out, want) {
			t.Errorf("%s does not say %q: %v\n%s", verb, want, err, out)
		}
	}
	w.node.sysctl(t, key, "0")
	is("1")
	n.kill(t)
	n.start(t)
	is("1")
	web.annotations = annotations{"scheduler": "mh"}
	n.edit(t, func() { n.write(t, web) })
	is("0")
	web.annotations["forward"] = "dr"
	n.edit(t, func() { n.write(t, web) })
	is("1")
	n.kill(t)
	out, err := n.verb("cleanup")
	if err != nil || !strings.Contains(out, "net.ipv4.vs.sloppy_tcp=0: restored (it was 1)") {
		t.Errorf("cleanup: %v\n%s", err, out)
	}
	is("0")
}
