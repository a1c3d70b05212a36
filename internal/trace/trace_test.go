package trace_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/capture"
	"github.com/kube-ipvs/kube-ipvs/internal/trace"
)

const (
	vip     = "10.96.0.20:80"
	web1    = "10.244.1.5:8080"
	web2    = "10.244.2.7:8080"
	client  = "203.0.113.5:40000"
	client2 = "203.0.113.5:40001"
	node    = "10.0.0.1:61000"
)

func at(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// packet is written as "in eth0 203.0.113.5:40000>10.96.0.20:80 SYN".
func packet(t *testing.T, s string) capture.Packet {
	t.Helper()
	words := strings.Fields(s)
	directions := map[string]capture.Direction{"in": capture.In, "out": capture.Out, "passing": capture.Passing}
	src, dst, ok := strings.Cut(words[2], ">")
	if !ok || directions[words[0]] == 0 {
		t.Fatalf("%q is not a packet", s)
	}
	p := capture.Packet{Direction: directions[words[0]], Link: words[1], Protocol: capture.TCP, Src: at(src), Dst: at(dst), Flags: capture.ACK}
	for _, w := range words[3:] {
		name, value, _ := strings.Cut(w, "=")
		switch name {
		case "SYN":
			p.Flags = capture.SYN
		case "RST":
			p.Flags = capture.RST | capture.ACK
		case "seq":
			if _, err := fmt.Sscan(value, &p.Seq); err != nil {
				t.Fatal(err)
			}
		case "about": // a message of ICMP
			of := packet(t, "in x "+value)
			p.Protocol, p.Refusal, p.Of = capture.ICMP, "port unreachable", &of
		default:
			t.Fatalf("%q in %q", w, s)
		}
	}
	return p
}

// lines has one line a station, and one for each reason.
func lines(connections []trace.Connection) string {
	var b strings.Builder
	for _, c := range connections {
		fmt.Fprintf(&b, "%s\n", c.Client)
		for _, s := range c.Stations {
			fmt.Fprintf(&b, " %s %s\n", s.Name, s.Text)
		}
		for _, w := range c.Why {
			fmt.Fprintf(&b, " ? %s\n", w)
		}
	}
	return b.String()
}

// origin is an entry of connection tracking: peer/backend is client's to dialled.
type origin struct{ backend, peer, client, dialled string }

func TestStations(t *testing.T) {
	target := trace.Target{VIP: at(vip), Protocol: capture.TCP, Backends: []netip.AddrPort{at(web1), at(web2)}, Serving: 2}
	for _, tt := range []struct {
		name    string
		packets []string
		origins []origin
		change  func(*trace.Target)
		want    string
	}{
		{name: "outside to a pod, source kept", packets: []string{
			"in eth0 203.0.113.5:40000>10.96.0.20:80 SYN seq=7", "out veth3 203.0.113.5:40000>10.244.1.5:8080 SYN seq=7",
			"in veth3 10.244.1.5:8080>203.0.113.5:40000", "out eth0 10.96.0.20:80>203.0.113.5:40000", "in eth0 203.0.113.5:40000>10.96.0.20:80",
		}, want: `203.0.113.5:40000
 arrived on eth0 from 203.0.113.5:40000
 chosen 10.244.1.5:8080
 left on veth3 with its source kept
 answered by 10.244.1.5:8080 on veth3
 returned on eth0 as 10.96.0.20:80
`},
		{name: "source rewritten, known by connection tracking", packets: []string{
			"in eth0 203.0.113.5:40000>10.96.0.20:80 SYN seq=7", "out flannel.1 10.0.0.1:61000>10.244.2.7:8080 SYN seq=9",
			"in flannel.1 10.244.2.7:8080>10.0.0.1:61000", "out eth0 10.96.0.20:80>203.0.113.5:40000",
		}, origins: []origin{{web2, node, client, vip}}, want: `203.0.113.5:40000
 arrived on eth0 from 203.0.113.5:40000
 chosen 10.244.2.7:8080
 left on flannel.1 with its source rewritten to 10.0.0.1:61000
 answered by 10.244.2.7:8080 on flannel.1
 returned on eth0 as 10.96.0.20:80
`},
		{name: "source rewritten, known by the sequence number", packets: []string{
			"in eth0 203.0.113.5:40000>10.96.0.20:80 SYN seq=7", "in eth0 203.0.113.5:40001>10.96.0.20:80 SYN seq=8", "out veth3 10.0.0.1:61000>10.244.1.5:8080 SYN seq=8",
		}, want: `203.0.113.5:40000
 arrived on eth0 from 203.0.113.5:40000
 ? a rule dropped it: source ranges, a Local policy without an endpoint here, a NetworkPolicy
 ? the reverse path filter dropped it, because the route back to the client uses another link
 ? the scheduler had no endpoint for it (limits reached, all at weight 0)
203.0.113.5:40001
 arrived on eth0 from 203.0.113.5:40001
 chosen 10.244.1.5:8080
 left on veth3 with its source rewritten to 10.0.0.1:61000
 ? the endpoint does not answer: it does not listen, or a NetworkPolicy drops the packet
 ? the path there or back is broken: route, tunnel, MTU, reverse path filter of its node
`},
		{name: "a pod by a bridge", packets: []string{
			"passing veth1 203.0.113.5:40000>10.96.0.20:80 SYN seq=7", "in cni0 203.0.113.5:40000>10.96.0.20:80 SYN seq=7",
			"out cni0 203.0.113.5:40000>10.244.1.5:8080 SYN seq=7", "out veth2 203.0.113.5:40000>10.244.1.5:8080 SYN seq=7", "passing veth2 10.244.1.5:8080>203.0.113.5:40000", "in cni0 10.244.1.5:8080>203.0.113.5:40000",
		}, want: `203.0.113.5:40000
 arrived on veth1, cni0 from 203.0.113.5:40000
 chosen 10.244.1.5:8080
 left on cni0, veth2 with its source kept
 answered by 10.244.1.5:8080 on veth2, cni0
 ? the answer was dropped on its way back: the policy of FORWARD, or a rule there
 ? pods on one bridge whose packets pass by the rules (net.bridge.bridge-nf-call-iptables=0)
 ? connection tracking lost the flow (net.ipv4.vs.conntrack=0, or its table is full)
`},
		{name: "a bridge that sees the source given back", packets: []string{
			"in eth0 203.0.113.5:40000>10.96.0.20:80 SYN seq=7", "out cni0 10.0.0.1:61000>10.244.1.5:8080 SYN seq=9", "out veth2 10.0.0.1:61000>10.244.1.5:8080 SYN seq=9",
			"passing veth2 10.244.1.5:8080>10.0.0.1:61000", "in cni0 10.244.1.5:8080>203.0.113.5:40000", "out eth0 10.96.0.20:80>203.0.113.5:40000",
		}, origins: []origin{{web1, node, client, vip}}, want: `203.0.113.5:40000
 arrived on eth0 from 203.0.113.5:40000
 chosen 10.244.1.5:8080
 left on cni0, veth2 with its source rewritten to 10.0.0.1:61000
 answered by 10.244.1.5:8080 on veth2, cni0
 returned on eth0 as 10.96.0.20:80
`},
		{name: "this machine itself", packets: []string{"out cni0 10.0.0.1:61000>10.244.1.5:8080 SYN seq=7", "in cni0 10.244.1.5:8080>10.0.0.1:61000"},
			origins: []origin{{web1, node, "10.96.0.20:45000", vip}}, want: `10.96.0.20:45000
 chosen 10.244.1.5:8080, dialled by this machine
 left on cni0 with its source rewritten to 10.0.0.1:61000
 answered by 10.244.1.5:8080 on cni0
`},
		{name: "other traffic of the same backend", packets: []string{"out cni0 10.0.0.1:61000>10.244.1.5:8080 SYN seq=7", "out cni0 10.0.0.1:61001>10.244.1.5:8080 SYN seq=8"},
			origins: []origin{{web1, node, client, "10.96.0.99:80"}}, want: ""},
		{name: "no listener", packets: []string{
			"in eth0 203.0.113.5:40000>10.96.0.20:80 SYN seq=7", "out veth3 203.0.113.5:40000>10.244.1.5:8080 SYN seq=7", "in veth3 10.244.1.5:8080>203.0.113.5:40000 RST", "out eth0 10.96.0.20:80>203.0.113.5:40000 RST",
		}, want: `203.0.113.5:40000
 arrived on eth0 from 203.0.113.5:40000
 chosen 10.244.1.5:8080
 left on veth3 with its source kept
 answered by 10.244.1.5:8080 on veth3, by a reset: no process listens there
 returned on eth0 as 10.96.0.20:80
`},
		{name: "refused by the rules, without endpoints", packets: []string{
			"in eth0 203.0.113.5:40000>10.96.0.20:80 SYN seq=7", "out eth0 10.96.0.20:1>203.0.113.5:1 about=203.0.113.5:40000>10.96.0.20:80", "out eth0 10.96.0.20:1>203.0.113.5:1 about=203.0.113.5:40000>10.96.0.20:80",
		}, change: func(target *trace.Target) { target.Backends, target.Serving = nil, 0 }, want: `203.0.113.5:40000
 arrived on eth0 from 203.0.113.5:40000
 refused on eth0 by 10.96.0.20: port unreachable
 ? no endpoint takes new connections
`},
		{name: "refused by a reset", packets: []string{"in eth0 203.0.113.5:40000>10.96.0.20:80 SYN seq=7", "out eth0 10.96.0.20:80>203.0.113.5:40000 RST"}, want: `203.0.113.5:40000
 arrived on eth0 from 203.0.113.5:40000
 refused on eth0 by a reset from 10.96.0.20:80
`},
		{name: "refused on the way to the endpoint", packets: []string{
			"in eth0 203.0.113.5:40000>10.96.0.20:80 SYN seq=7", "out veth3 203.0.113.5:40000>10.244.1.5:8080 SYN seq=7", "in veth3 10.244.1.5:1>203.0.113.5:1 about=203.0.113.5:40000>10.244.1.5:8080",
		}, want: `203.0.113.5:40000
 arrived on eth0 from 203.0.113.5:40000
 chosen 10.244.1.5:8080
 left on veth3 with its source kept
 refused on veth3 by 10.244.1.5: port unreachable
`},
		{name: "not served", packets: []string{"in eth0 203.0.113.5:40000>10.96.0.20:80 SYN seq=7", "out eth1 203.0.113.5:40000>10.96.0.20:80 SYN seq=7"}, want: `203.0.113.5:40000
 arrived on eth0 from 203.0.113.5:40000
 untouched on eth1, still to the service address
 ? this node does not serve the address: no virtual server, and it is not local
`},
		{name: "an endpoint of this machine", packets: []string{"in eth0 203.0.113.5:40000>10.96.0.20:80 SYN seq=7", "out eth0 10.96.0.20:80>203.0.113.5:40000"}, want: `203.0.113.5:40000
 arrived on eth0 from 203.0.113.5:40000
 returned on eth0 as 10.96.0.20:80; no endpoint was seen
`},
		{name: "one client alone", change: func(target *trace.Target) { target.From = netip.MustParseAddr("203.0.113.6") },
			packets: []string{"in eth0 203.0.113.5:40000>10.96.0.20:80 SYN seq=7", "in eth0 203.0.113.6:40000>10.96.0.20:80 SYN seq=8", "out veth3 203.0.113.6:40000>10.244.1.5:8080 SYN seq=8", "out veth3 10.0.0.1:61000>10.244.1.5:8080 SYN seq=7"},
			origins: []origin{{web1, node, client, vip}}, want: `203.0.113.6:40000
 arrived on eth0 from 203.0.113.6:40000
 chosen 10.244.1.5:8080
 left on veth3 with its source kept
 ? the endpoint does not answer: it does not listen, or a NetworkPolicy drops the packet
 ? the path there or back is broken: route, tunnel, MTU, reverse path filter of its node
`},
		{name: "without endpoints, silent", packets: []string{"in eth0 203.0.113.5:40000>10.96.0.20:80 SYN seq=7"}, change: func(target *trace.Target) { target.Serving = 0 }, want: `203.0.113.5:40000
 arrived on eth0 from 203.0.113.5:40000
 ? no endpoint takes new connections
`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			target := target
			if tt.change != nil {
				tt.change(&target)
			}
			tr := trace.New(target)
			for i, p := range tt.packets {
				tr.Add(time.Duration(i)*time.Millisecond, packet(t, p))
				for _, a := range tr.Unknown() {
					for _, o := range tt.origins {
						if a == (trace.Answer{Backend: at(o.backend), Peer: at(o.peer)}) {
							tr.Resolve(a, at(o.client), at(o.dialled))
						}
					}
				}
			}
			if diff := cmp.Diff(tt.want, lines(tr.Report(time.Hour))); diff != "" {
				t.Errorf("stations (-want +got):\n%s", diff)
			}
		})
	}
}

// Where packets to endpoints are not seen, connection tracking knows who was chosen.
func TestChosenWithoutPackets(t *testing.T) {
	tr := trace.New(trace.Target{VIP: at(vip), Protocol: capture.TCP, Backends: []netip.AddrPort{at(web1)}, Serving: 200})
	for _, p := range []string{
		"in eth0 203.0.113.5:40000>10.96.0.20:80 SYN seq=7", "out eth0 10.96.0.20:80>203.0.113.5:40000",
		"in eth0 203.0.113.5:40001>10.96.0.20:80 SYN seq=8", "out veth3 203.0.113.5:40001>10.244.1.5:8080 SYN seq=8",
		"in eth0 203.0.113.5:40002>10.96.0.20:80 SYN seq=9", "in eth0 203.0.113.5:40003>10.96.0.20:80 SYN seq=10",
	} {
		tr.Add(0, packet(t, p))
	}
	want := []netip.AddrPort{at(client), at("203.0.113.5:40002"), at("203.0.113.5:40003")}
	if diff := cmp.Diff(want, tr.Unchosen(), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Errorf("unchosen (-want +got):\n%s", diff)
	}
	tr.Choose(at(client), trace.Answer{Backend: at(web2), Peer: at(node)})
	tr.Choose(at("203.0.113.5:40002"), trace.Answer{Backend: at(web2), Peer: at("203.0.113.5:40002")})
	tr.Choose(at("203.0.113.5:40003"), trace.Answer{Backend: at(vip), Peer: at("203.0.113.5:40003")})
	tr.Choose(at("203.0.113.9:1"), trace.Answer{Backend: at(web2), Peer: at("203.0.113.9:1")}) // never seen
	wantLines := `203.0.113.5:40000
 arrived on eth0 from 203.0.113.5:40000
 chosen 10.244.2.7:8080, by connection tracking; its packets were not watched
 returned on eth0 as 10.96.0.20:80
203.0.113.5:40001
 arrived on eth0 from 203.0.113.5:40001
 chosen 10.244.1.5:8080
 left on veth3 with its source kept
 ? the endpoint does not answer: it does not listen, or a NetworkPolicy drops the packet
 ? the path there or back is broken: route, tunnel, MTU, reverse path filter of its node
203.0.113.5:40002
 arrived on eth0 from 203.0.113.5:40002
 chosen 10.244.2.7:8080, by connection tracking; its packets were not watched
 ? the endpoint does not answer: it does not listen, or a NetworkPolicy drops the packet
 ? the path there or back is broken: route, tunnel, MTU, reverse path filter of its node
203.0.113.5:40003
 arrived on eth0 from 203.0.113.5:40003
 ? a rule dropped it: source ranges, a Local policy without an endpoint here, a NetworkPolicy
 ? the reverse path filter dropped it, because the route back to the client uses another link
 ? the scheduler had no endpoint for it (limits reached, all at weight 0)
`
	if diff := cmp.Diff(wantLines, lines(tr.Report(time.Hour))); diff != "" {
		t.Errorf("stations (-want +got):\n%s", diff)
	}
}

// A connection that came no further a moment before the end is not said to be broken.
func TestConnectionsUnderWay(t *testing.T) {
	tr := trace.New(trace.Target{VIP: at(vip), Protocol: capture.TCP, Backends: []netip.AddrPort{at(web1)}, Serving: 1})
	tr.Add(time.Second, packet(t, "in eth0 203.0.113.5:40000>10.96.0.20:80 SYN"))
	for end, want := range map[time.Duration]bool{1100 * time.Millisecond: true, 5 * time.Second: false} {
		c := tr.Report(end)[0]
		if c.UnderWay != want || (len(c.Why) == 0) != want {
			t.Errorf("after %s: under way %t, why %q", end, c.UnderWay, c.Why)
		}
	}
}

// Packets that are unrelated to the target are not counted.
func TestOthersAreLeftOut(t *testing.T) {
	tr := trace.New(trace.Target{VIP: at(vip), Protocol: capture.TCP, Backends: []netip.AddrPort{at(web1)}})
	other := packet(t, "in eth0 203.0.113.5:40000>10.96.0.20:80 SYN")
	other.Protocol = capture.UDP
	quoted := packet(t, "in eth0 203.0.113.5:1>10.96.0.20:1 about=203.0.113.5:40000>10.96.0.21:80")
	for _, p := range []capture.Packet{other, quoted, packet(t, "in eth0 203.0.113.5:40000>10.96.0.20:81 SYN")} {
		if tr.Add(0, p) {
			t.Errorf("%+v is counted", p)
		}
	}
	if got := tr.Report(time.Hour); len(got) > 0 {
		t.Errorf("%+v", got)
	}
}

// A scan of ports costs no more than MostConnections.
func TestConnectionsAreBounded(t *testing.T) {
	tr := trace.New(trace.Target{VIP: at(vip), Protocol: capture.TCP, Backends: []netip.AddrPort{at(web1)}})
	const many = 5000
	for i := range many {
		p := packet(t, "in eth0 203.0.113.5:40000>10.96.0.20:80 SYN")
		p.Src = netip.AddrPortFrom(p.Src.Addr(), uint16(1000+i))
		tr.Add(0, p)
		p = packet(t, "out eth0 203.0.113.5:40000>10.244.1.5:8080 SYN")
		p.Src = netip.AddrPortFrom(p.Src.Addr(), uint16(10000+i))
		tr.Add(0, p)
	}
	if n := len(tr.Report(time.Hour)); n != trace.MostConnections {
		t.Errorf("%d connections, want %d", n, trace.MostConnections)
	}
	if want := 2*many - 5*trace.MostConnections; tr.Left() != want {
		t.Errorf("%d packets left out, want %d", tr.Left(), want)
	}
}
