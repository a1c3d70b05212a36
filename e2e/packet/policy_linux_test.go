package packet

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
	"github.com/kube-ipvs/kube-ipvs/e2e/load"
)

// TestWeightsHaveThreeSources: the weight of a Node goes before that of its slice, and that before the Service's.
func TestWeightsHaveThreeSources(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node.annotations = annotations{"weight": "40"}
	s := service{
		name: "weighed", vip: pair{v4: "10.96.0.61"}, ports: webPorts()[:1], annotations: annotations{"scheduler": "wrr", "weight": "10"},
		backends: []endpoint{
			{addr: w.pod1.addr.v4, node: thisNode, weight: "20"},
			{addr: w.remote1.addr.v4, node: otherNode, weight: "30"},
			{addr: w.remote2.addr.v4, node: otherNode},
		},
	}
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	n.writeFile(t, "nodes.yaml", w.nodes())
	n.write(t, s)
	n.start(t)
	watch := w.node.watch(t)
	weights := func(near, far, none string) {
		t.Helper()
		for p, weight := range map[*pod]string{w.pod1: near, w.remote1: far, w.remote2: none} {
			watch.wait(t, destination(s, backend.TCP, p, 4), weight)
		}
	}
	weights("40", "30", "10")
	w.node.annotations = nil
	n.writeFile(t, "nodes.yaml", w.nodes())
	weights("20", "30", "10")
	w.node.annotations = annotations{"weight": "0"}
	n.writeFile(t, "nodes.yaml", w.nodes())
	weights("0", "30", "10")
	s.annotations = annotations{"scheduler": "wrr"}
	n.write(t, s)
	weights("0", "30", "1")
}

// TestPolicyChangesInPlace: a change of an annotation changes servers and destinations in place,
// and open connections stay on them.
func TestPolicyChangesInPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := service{name: "tuned", vip: pair{v4: "10.96.0.62"}, ports: webPorts()[:2], annotations: annotations{"scheduler": "wlc", "weight": "2"}}
	workers := w.workers(t, 0, 3)
	var destinations []serving
	for _, k := range workers {
		s.backends = append(s.backends, k.endpoint)
		udp := k.at(s)
		udp.proto = "UDP"
		destinations = append(destinations, k.at(s), udp)
	}
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	n.write(t, s)
	n.start(t)
	watch := w.node.watch(t)
	open := map[string]held{}
	for range workers { // one at each: the one with the fewest connections is next
		h := w.pod3.hold(t, backend.TCP, s.vip.v4)
		open[h.name] = h
	}
	for i := range 12 { // so that each destination of UDP has scheduled something
		if got := w.pod3.ask(backend.UDP, s.vip.v4, 80, 1); got.OK != 1 {
			t.Errorf("datagram %d: %s", i, text(got))
		}
	}
	for _, tt := range []struct {
		name        string
		annotations annotations
		flags       string // flags of the server of UDP, as ipvsadm prints them
		want        row    // of each destination, without its counts
	}{
		{"a weight", annotations{"weight": "5"}, "", row{weight: 5}},
		{"another weight", annotations{"weight": "2"}, "", row{weight: 2}},
		{"one packet", annotations{"weight": "2", "one-packet": "true"}, " -o", row{weight: 2}},
		{"no more", annotations{"weight": "2", "one-packet": "false"}, "", row{weight: 2}},
		{"at most 100 connections", annotations{"weight": "2", "max-connections": "100"}, "", row{weight: 2, upper: 100}},
		{"again from 80 on", annotations{"weight": "2", "max-connections": "100,80"}, "", row{weight: 2, upper: 100, lower: 80}},
		{"as many as want", annotations{"weight": "2"}, "", row{weight: 2}},
		// No backend is new here, so the weight is there at once. With slow start it is a hundred
		// times the annotated one, so that it can rise in steps.
		{"slow start", annotations{"weight": "3", "slow-start": "2s"}, "", row{weight: 300}},
		{"and without", annotations{"weight": "2"}, "", row{weight: 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s.annotations = tt.annotations
			s.annotations["scheduler"] = "wlc"
			n.write(t, s)
			n.shows(t, "-A -u "+s.vip.v4+":80 -s wlc"+tt.flags)
			watch.until(t, "all destinations to be so", func(rows map[serving]row) bool {
				return !slices.ContainsFunc(destinations, func(d serving) bool {
					is := rows[d]
					return is.weight != tt.want.weight || is.upper != tt.want.upper || is.lower != tt.want.lower
				})
			})
			for name, h := range open {
				if by := h.ask(t); by != name {
					t.Errorf("the connection of %s was answered by %s", name, by)
				}
			}
		})
	}
	if len(open) != len(workers) {
		t.Errorf("connections were held at %d backends, want %d", len(open), len(workers))
	}
	for _, d := range destinations {
		watch.unbroken(t, d, "2 5 2 300 2")
	}
}

// shows waits until ipvsadm -Sn prints a line.
func (n *node) shows(t *testing.T, line string) {
	t.Helper()
	poll(t, "ipvsadm to print "+line, settleTimeout, func() error {
		out := n.run(t, "ipvsadm", "-Sn")
		for l := range strings.Lines(out) {
			if strings.TrimSpace(l) == line {
				return nil
			}
		}
		return fmt.Errorf("it prints\n%s", out)
	})
}

// TestOnePacket: every datagram of one socket is scheduled separately. The backends do not answer:
// the source of a reply would not be rewritten to the address of the Service.
func TestOnePacket(t *testing.T) {
	t.Parallel()
	const sent = 10_000
	w := newWorld(t)
	sinks := w.sinks(t, 4)
	s := service{name: "datagrams", vip: pair{v4: "10.96.0.63"}, ports: sinkPorts(), annotations: annotations{"one-packet": "true"}}
	for _, k := range sinks {
		s.backends = append(s.backends, k.endpoint)
	}
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	n.write(t, s)
	n.start(t)
	n.shows(t, "-A -u "+s.vip.v4+":80 -s rr -o")
	fd := w.pod3.datagrams(t, netip.AddrPortFrom(w.pod3.source(s.vip.v4), scatterPort))
	defer unix.Close(fd)
	w.pod3.must(t, unix.Connect(fd, sockaddr(netip.MustParseAddrPort(s.vip.v4+":80"))))
	start := time.Now()
	for i := range sent {
		if _, err := unix.Write(fd, []byte("?")); err != nil {
			t.Fatalf("datagram %d: %v", i, err)
		}
	}
	each, total := arrived(t, sinks, sent)
	t.Logf("figure: of %d datagrams of one socket %v arrived, %s", sent, each, time.Since(start).Round(time.Millisecond))
	for i, n := range each {
		if share := float64(n) / float64(total); share < 0.25*0.95 || share > 0.25*1.05 {
			t.Errorf("%s got %d of %d datagrams, want a quarter within 5%%", sinks[i].name, n, total)
		}
	}
}

// TestMaxConnections: a backend that has as many connections as it may have gets no new ones, and
// a client for which no backend may is refused. Connections that have ended count as long as the kernel
// keeps them, 10 s after a reset. When the kernel drops one of them, new ones are accepted if
// fewer than the lower number are left. Without a lower number, that is fewer than three quarters
// of the upper number. See ip_vs_bind_dest and ip_vs_unbind_dest in
// net/netfilter/ipvs/ip_vs_conn.c.
func TestMaxConnections(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	workers := w.workers(t, 0, 2)
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	n.start(t)
	watch := w.node.watch(t)
	for i, tt := range []struct {
		name, limit string
		groups      []int // connections held by each of some clients, half of them at each backend
		admits      []bool
	}{
		{"three quarters of 3 from on", "3", []int{2, 4}, []bool{true}},
		{"less than 2 from 4 on", "4,2", []int{4, 2, 2}, []bool{false, true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := service{
				name: fmt.Sprintf("limited-%d", i), vip: pair{v4: fmt.Sprintf("10.96.0.6%d", 4+i)}, ports: webPorts()[:1],
				annotations: annotations{"max-connections": tt.limit},
			}
			for _, k := range workers {
				s.backends = append(s.backends, k.endpoint)
			}
			n.write(t, s)
			each := func(active int) {
				t.Helper()
				watch.until(t, fmt.Sprintf("%d connections at each backend and none remembered", active), func(rows map[serving]row) bool {
					return !slices.ContainsFunc(workers, func(k *worker) bool {
						r, there := rows[k.at(s)]
						return !there || r.active != active || r.inactive != 0
					})
				})
			}
			each(0)
			var groups []*load.Run
			active := 0
			for _, size := range tt.groups {
				groups = append(groups, w.pod3.load(t, load.Profile{
					To: netip.MustParseAddrPort(s.vip.v4 + ":80"), Sources: []netip.Addr{w.pod3.source(s.vip.v4)},
					Long: size, Every: time.Second, Reset: true,
				}))
				active += size / len(workers)
				each(active)
			}
			admits(t, w.pod3, s, "when all are full", false)
			for g, admit := range tt.admits {
				if r, err := groups[g].Stop(); err != nil || r.Long.Alive != tt.groups[g] {
					t.Errorf("connections held open: %v\n%s", err, report(r))
				}
				active -= tt.groups[g] / len(workers)
				each(active)
				admits(t, w.pod3, s, fmt.Sprintf("with %d left at each", active), admit)
			}
		})
	}
}

// admits asks once, and wants an answer or none.
func admits(t *testing.T, p *pod, s service, when string, want bool) {
	t.Helper()
	limit := patience
	if !want {
		limit = silence
	}
	got := p.askFor(limit, backend.TCP, s.vip.v4, 80, 1)
	t.Logf("figure: limit %s, %s: one more is answered %d times, fails %v", s.annotations["max-connections"], when, got.OK, got.Failed)
	if (got.OK == 1) != want {
		t.Errorf("limit %s, %s: want one more to be admitted: %t\n%s", s.annotations["max-connections"], when, want, text(got))
	}
}

// TestSkip: a Service that is to be passed over has no virtual server and no address on the node, from the start or from now on, and
// gets both back.
func TestSkip(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pod1.serve(t, 8080)
	skipped := service{
		name: "skipped", vip: pair{"10.96.0.66", "fd00:96::66"}, ports: webPorts()[:2], backends: endpoints(w.pod1),
		annotations: annotations{"skip": "true"},
	}
	other := skipped
	other.name, other.vip, other.annotations = "other", pair{"10.96.0.67", "fd00:96::67"}, nil
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	n.write(t, skipped, other)
	n.start(t)
	has := func(want bool) {
		t.Helper()
		poll(t, fmt.Sprintf("servers and addresses of the Service: %t", want), settleTimeout, func() error { return n.carries(t, skipped, want) })
		outcome := by(w.pod1)
		if !want {
			outcome = dropped // by the route to the swallowing link: no host here has the address
		}
		put(t, []any{"skip", "client"}, slices.Concat(
			ask(fmt.Sprint(!want), w.outside, skipped.vip, 80, outcome), ask("other", w.outside, other.vip, 80, by(w.pod1)),
		))
	}
	has(false)
	skipped.annotations = annotations{"skip": "false"}
	n.write(t, skipped)
	has(true)
	skipped.annotations = annotations{"skip": "true"}
	n.write(t, skipped)
	has(false)
	skipped.annotations = nil
	n.write(t, skipped)
	has(true)
}

// carries fails unless a Service has all of its virtual servers and addresses, or none of either.
func (n *node) carries(t *testing.T, s service, want bool) error {
	t.Helper()
	servers := n.run(t, "ipvsadm", "-Sn")
	addresses := n.run(t, "ip", "-o", "addr", "show", "dev", "kube-ipvs0")
	for _, vip := range s.vip.all() {
		for _, flag := range []string{"-t", "-u"} {
			if strings.Contains(servers, "-A "+flag+" "+hostPort(vip, 80)+" ") != want {
				return fmt.Errorf("servers are\n%s", servers)
			}
		}
		if strings.Contains(addresses, " "+vip+"/") != want {
			return fmt.Errorf("addresses are\n%s", addresses)
		}
	}
	return nil
}

// mistakes are annotations that cannot be followed, and a part of what is said of each.
var mistakes = []struct{ key, value, why string }{
	{"scheduler", "round-robin", `unknown scheduler "round-robin"`},
	{"scheduler", "rr,wrr", `unknown scheduler "rr,wrr"`},
	{"scheduler", "", "empty: the scheduler of the node is used"},
	{"scheduler-flags", "sh-port", "it needs kube-ipvs.io/scheduler, the scheduler that the flags are for"},
	{"weight", "-1", `"-1" is not a whole number from 0 to 65535`},
	{"weight", "65536", `"65536" is not a whole number from 0 to 65535`},
	{"weight", "1.5", `"1.5" is not a whole number from 0 to 65535`},
	{"weight", "", `"" is not a whole number from 0 to 65535`},
	{"one-packet", "yes", `"yes" is not true or false`},
	{"one-packet", "1", `"1" is not true or false`},
	{"skip", "TRUE", `"TRUE" is not true or false`},
	{"skip", "node-1", `"node-1" is not true or false`},
	{"drain", "30", `"30" is not a duration from 0s to 1h`},
	{"drain", "forever", `"forever" is not a duration from 0s to 1h`},
	{"slow-start", "999ms", `"999ms" is not 0s or a duration from 1s to 1h`},
	{"slow-start", "true", `"true" is not 0s or a duration from 1s to 1h`},
	{"max-connections", "800,1000", `"800,1000" is not a number of connections`},
	{"max-connections", "many", `"many" is not a number of connections`},
	{"forward", "ipip", `"ipip" is not nat, dr or tunnel`},
	{"schedular", "rr", "unknown annotation"},
}

// TestBadAnnotationsCostNothingElse: a Service whose annotation cannot be followed is served as if it had none, and the plan has the reason.
func TestBadAnnotationsCostNothingElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pod1.serve(t, 8080)
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	var questions []*question
	for i, m := range mistakes {
		s := service{
			name: fmt.Sprintf("mistaken-%02d", i), vip: pair{v4: fmt.Sprintf("10.96.2.%d", i+1)}, ports: webPorts()[:2],
			backends: endpoints(w.pod1), annotations: annotations{m.key: m.value},
		}
		n.write(t, s)
		questions = append(questions, ask(m.key+"="+m.value, w.outside, s.vip, 80, by(w.pod1))...)
	}
	n.start(t)
	put(t, []any{"annotation", "client"}, questions)
	said := n.run(t, "sh", append([]string{"-ec", `"$@" 2>&1 >/dev/null`, "sh", program(), "plan"}, n.flags...)...)
	t.Logf("the plan says\n%s", said)
	for i, m := range mistakes {
		want := fmt.Sprintf("test/mistaken-%02d: metadata.annotations[kube-ipvs.io/%s]: %s", i, m.key, m.why)
		if !strings.Contains(said, want) {
			t.Errorf("the plan does not say %q", want)
		}
	}
}
