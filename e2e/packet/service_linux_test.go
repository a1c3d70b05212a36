package packet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

// web is a Service with an endpoint on each of three pods; which are served on two ports.
func (w *world) web(t *testing.T) service {
	t.Helper()
	backends := []*pod{w.pod1, w.pod2, w.remote1}
	for _, p := range backends {
		p.serve(t, 8080)
	}
	return service{name: "web", vip: pair{"10.96.0.20", "fd00:96::20"}, ports: webPorts(), backends: endpoints(backends...)}
}

func TestRequestsSpreadEvenly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web := w.web(t)
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	n.write(t, web)
	n.start(t)
	table := newTable("client", "proto", "family", "answers by backend")
	for c, share := range map[*pod]int{w.outside: 33, w.host(): 10} {
		for _, proto := range append([]backend.Proto{backend.HTTP}, protos...) {
			for _, family := range families {
				got := c.ask(proto, web.vip.of(family), 80, 3*share)
				table.row(c.name, proto, family, got.Backends)
				for _, p := range []*pod{w.pod1, w.pod2, w.remote1} {
					// A source port that comes up again within the time-out of its UDP entry goes where it went before.
					if count := got.Backends[p.name]; count < share-2 || count > share+2 {
						t.Errorf("%s, %s, IPv%d: %d answers by %s, want %d\n%s", c.name, proto, family, count, p.name, share, text(got))
					}
				}
			}
		}
	}
	t.Logf("answers\n%s", table)
}

func TestPortsAndServicesAreKeptApart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pod1.serve(t, 8080)
	w.pod1.serve(t, 8081)
	w.pod2.serve(t, 8080)
	twoPorts := service{name: "two-ports", vip: pair{"10.96.0.30", "fd00:96::30"}, ports: []port{
		{"a-tcp", "TCP", 80, 8080}, {"b-tcp", "TCP", 81, 8081}, {"a-udp", "UDP", 80, 8081}, {"b-udp", "UDP", 81, 8080},
	}, backends: endpoints(w.pod1)}
	other := service{name: "other", vip: pair{"10.96.0.31", "fd00:96::31"}, ports: webPorts(), backends: endpoints(w.pod2)}
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	n.write(t, twoPorts, other)
	n.start(t)
	for _, tt := range []struct {
		to    service
		proto backend.Proto
		port  int
		want  string
	}{
		{twoPorts, backend.TCP, 80, "pod-1"},
		{twoPorts, backend.TCP, 81, "pod-1:8081"},
		{twoPorts, backend.UDP, 80, "pod-1:8081"},
		{twoPorts, backend.UDP, 81, "pod-1"},
		{other, backend.TCP, 80, "pod-2"},
		{other, backend.UDP, 80, "pod-2"},
	} {
		for _, family := range families {
			t.Run(fmt.Sprintf("%s %s %d IPv%d", tt.to.name, tt.proto, tt.port, family), func(t *testing.T) {
				got := w.outside.ask(tt.proto, tt.to.vip.of(family), tt.port, 4)
				if got.Backends[tt.want] != 4 {
					t.Errorf("want 4 answers by %s\n%s", tt.want, text(got))
				}
			})
		}
	}
}

// TestWhatIsNotServedIsRefused: a client must learn at once that an address is not served, and a
// daemon of the host is no Service.
func TestWhatIsNotServedIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pod1.serve(t, 8080)
	serve(t, w.node.space, backend.Config{Name: "daemon", TCP: ":2222", UDP: ":2222"})
	near := service{name: "near", vip: pair{"10.96.0.10", "fd00:96::10"}, ports: webPorts(), backends: endpoints(w.pod1)}
	empty := service{name: "empty", vip: pair{"10.96.0.40", "fd00:96::40"}, ports: webPorts()}
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	n.write(t, near, empty)
	n.start(t)
	table := newTable("what", "client", "proto", "family", "outcome")
	for _, tt := range []struct {
		what string
		to   pair
		port int
		want backend.Failure // empty: the daemon answers
	}{
		{"Service without endpoints", empty.vip, 80, backend.Refused},
		{"port that the Service has not", near.vip, 81, backend.Refused},
		{"daemon through a VIP", near.vip, 2222, backend.Refused},
		{"daemon through a VIP without endpoints", empty.vip, 2222, backend.Refused},
		{"daemon on the node's address", cniAddr, 2222, ""},
	} {
		for _, c := range []*pod{w.pod2, w.visitor, w.outside, w.host()} {
			for _, proto := range []backend.Proto{backend.TCP, backend.UDP} {
				for _, family := range families {
					got := c.askFor(silence, proto, tt.to.of(family), tt.port, 1)
					outcome := fmt.Sprint(slices.Collect(maps.Keys(got.Backends)), slices.Collect(maps.Keys(got.Failed)))
					table.row(tt.what, c.name, proto, family, outcome)
					want := tt.want
					if want != "" && tt.port == 80 && c.name == "host" && proto == backend.UDP {
						want = backend.Denied // the kernel tells the sender itself, by EPERM, that IPVS dropped its datagram
					}
					if want == "" && got.OK != 1 || want != "" && got.Failed[want] != 1 {
						t.Errorf("%s, from %s by %s, IPv%d: want %q\n%s", tt.what, c.name, proto, family, want, text(got))
					}
				}
			}
		}
	}
	t.Logf("outcomes\n%s", table)
}

func TestVIPAnswersPing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	empty := service{name: "empty", vip: pair{"10.96.0.40", "fd00:96::40"}, ports: webPorts()}
	n.write(t, empty)
	n.start(t)
	for _, c := range []*pod{w.pod2, w.visitor, w.outside, w.host()} {
		for _, family := range families {
			if _, err := c.try("ping", "-n", "-c1", "-W10", empty.vip.of(family)); err != nil {
				t.Errorf("from %s: %v", c.name, err)
			}
		}
	}
}

func TestAffinityKeepsAClientOnOneBackend(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web := w.web(t)
	web.affinity = 600
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	n.write(t, web)
	n.start(t)
	if got := w.node.run(t, "ipvsadm", "-Sn"); strings.Count(got, "-p 600") != 6 {
		t.Errorf("six virtual servers with -p 600 wanted:\n%s", got)
	}
	table := newTable("client", "proto", "family", "answers by backend")
	for _, c := range []*pod{w.pod3, w.visitor, w.outside, w.host()} {
		for _, proto := range protos {
			for _, family := range families {
				got := c.ask(proto, web.vip.of(family), 80, 9)
				table.row(c.name, proto, family, got.Backends)
				if got.OK != 9 || len(got.Backends) != 1 {
					t.Errorf("%s by %s, IPv%d: want 9 answers by one backend\n%s", c.name, proto, family, text(got))
				}
			}
		}
	}
	t.Logf("9 requests each\n%s", table)

	web.affinity = 0
	n.edit(t, func() { n.write(t, web) })
	if got := w.outside.ask(backend.TCP, web.vip.v4, 80, 9); len(got.Backends) != 3 {
		t.Errorf("without affinity: want answers by three backends\n%s", text(got))
	}
}

// TestEverySchedulerCarriesTraffic goes from one algorithm to the next with the same node: each is changed in place.
func TestEverySchedulerCarriesTraffic(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web := w.web(t)
	table := newTable("scheduler", "as ipvsadm shows it", "tcp4", "udp6", "sctp4")
	for _, name := range scheduler.Names() {
		t.Run(name, func(t *testing.T) {
			if err := w.lacks(name); err != nil && name != scheduler.Default {
				t.Skipf("this kernel has no %s: %v", name, err)
			}
			n := newAgent(t, w.node, "--cluster-cidr", clusters, "--ipvs-scheduler", name)
			n.write(t, web)
			n.start(t)
			shown := strings.TrimPrefix(serverLine(t, w, "TCP  "+web.vip.v4+":80"), "TCP  "+web.vip.v4+":80 ")
			flags := map[string]string{"mh": " (mh-fallback,mh-port)", "sh": " (sh-fallback)"} // else what drains gets new ones
			if want := name + flags[name]; shown != want {
				t.Errorf("ipvsadm shows %q, want %q", shown, want)
			}
			tcp := w.outside.ask(backend.TCP, web.vip.v4, 80, 6)
			udp := w.pod3.ask(backend.UDP, web.vip.v6, 80, 6)
			sctp := w.host().ask(backend.SCTP, web.vip.v4, 80, 6)
			table.row(name, shown, tcp.Backends, udp.Backends, sctp.Backends)
			for _, got := range []*backend.Tally{tcp, udp, sctp} {
				if got.OK != 6 {
					t.Error(text(got))
				}
			}
		})
	}
	t.Logf("six requests each\n%s", table)
}

// serverLine is the line of ipvsadm -Ln for one virtual server.
func serverLine(t *testing.T, w *world, prefix string) string {
	t.Helper()
	for line := range strings.Lines(w.node.run(t, "ipvsadm", "-Ln")) {
		if strings.HasPrefix(line, prefix) {
			return strings.TrimSpace(line)
		}
	}
	t.Errorf("ipvsadm shows no %s", prefix)
	return ""
}
