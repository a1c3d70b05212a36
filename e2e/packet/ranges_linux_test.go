package packet

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
)

// deniedAddr is a second address of the machine outside, which no range holds unless a test sets one.
var deniedAddr = pair{"203.0.113.66", "2001:db8::66"}

// only is a range for each family with one address in it.
func only(addrs ...pair) []string {
	var out []string
	for _, a := range addrs {
		out = append(out, a.v4+"/32", a.v6+"/128")
	}
	return out
}

// addDenied gives the machine outside its second address.
func (w *world) addDenied(t *testing.T) *pod {
	t.Helper()
	w.outside.address(t, "eth0", deniedAddr.v4+"/24", deniedAddr.v6+"/64")
	return &pod{space: w.outside.space, name: "denied", addr: deniedAddr}
}

// TestSourceRanges asks load-balancer addresses under different ranges from everywhere.
func TestSourceRanges(t *testing.T) {
	t.Parallel()
	newWorld(t).sourceRanges(t)
}

// sourceRanges asks in whatever mode the agent runs.
func (w *world) sourceRanges(t *testing.T, flags ...string) {
	t.Helper()
	denied := w.addDenied(t)
	w.pod1.serve(t, 8080)
	var services []service
	var questions []*question
	everybody := []*pod{w.outside, denied, w.pod2, w.pod3, w.host()}
	for i, tt := range []struct {
		name             string
		ranges           []string
		local            bool
		admits4, admits6 []*pod
	}{
		{"one address", only(w.outside.addr), false, everybody[:1], everybody[:1]},
		{"one pod", only(w.pod2.addr), false, everybody[2:3], everybody[2:3]},
		{"one pod, policy Local", only(w.pod2.addr), true, everybody[2:3], everybody[2:3]},
		{"this node", only(fabAddr), false, everybody[4:], everybody[4:]},
		{"this node, policy Local", only(fabAddr), true, everybody[4:], everybody[4:]},
		{"overlapping ranges", []string{
			"203.0.113.66/32", "203.0.113.64/26", "203.0.113.0/25", "2001:db8::66/128", "2001:db8::/120", "2001:db8::/112",
		}, false, everybody[:2], everybody[:2]},
		// The host asks from the very address that it dials, and that proves nothing about the host.
		{"the load balancer's own addresses", []string{"198.18.0.0/15", "2001:db8:f::/48"}, false, nil, nil},
		{"the load balancer's own addresses, policy Local", []string{"198.18.0.0/15", "2001:db8:f::/48"}, true, nil, nil},
		{"no client here", []string{"198.51.100.0/24", "2001:db8:51::/48"}, false, nil, nil},
		{"no range at all", nil, false, everybody, everybody},
		{"everybody, by one of the ranges", []string{"198.51.100.0/24", "0.0.0.0/0", "::/0"}, false, everybody, everybody},
		{"everybody of one family", []string{"198.51.100.0/24", "::/0"}, false, nil, everybody},
	} {
		s := numberedService(i + 1)
		s.ranges, s.externalLocal, s.backends = tt.ranges, tt.local, endpoints(w.pod1)
		services = append(services, s)
		for _, c := range everybody {
			questions = append(questions, ask(tt.name, c, pair{v4: s.lb.v4}, 80, admitted(c, tt.admits4, w.pod1))...)
			questions = append(questions, ask(tt.name, c, pair{v6: s.lb.v6}, 80, admitted(c, tt.admits6, w.pod1))...)
		}
		questions = append(questions, ask(tt.name+": NodePort is not filtered", denied, extAddr, s.nodePort, by(w.pod1))...)
		questions = append(questions, ask(tt.name+": external IP is not filtered", denied, s.external, 80, by(w.pod1))...)
	}
	n := newAgent(t, w.node, append([]string{"--detect-local-mode", "NodeCIDR"}, flags...)...)
	n.writeFile(t, "node.yaml", w.node.manifest())
	n.write(t, services...)
	n.start(t)
	put(t, []any{"ranges", "client"}, questions)
}

// admitted requires an answer for a client of the list, and silence for others.
func admitted(c *pod, admits []*pod, backend *pod) outcome {
	for _, p := range admits {
		if p.name == c.name {
			return by(backend)
		}
	}
	return dropped
}

// TestSourceRangesOfTwoServicesDoNotMix: two Services share one address, each with a port and ranges of its own.
func TestSourceRangesOfTwoServicesDoNotMix(t *testing.T) {
	t.Parallel()
	newWorld(t).rangesDoNotMix(t)
}

func (w *world) rangesDoNotMix(t *testing.T, flags ...string) {
	t.Helper()
	denied := w.addDenied(t)
	w.pod1.serve(t, 8080)
	w.pod2.serve(t, 8080)
	one, other := numberedService(1), numberedService(2)
	one.ranges, one.backends = only(w.outside.addr), endpoints(w.pod1)
	other.ranges, other.backends, other.lb = only(deniedAddr), endpoints(w.pod2), one.lb
	other.ports = []port{{"tcp", "TCP", 81, 8080}, {"udp", "UDP", 81, 8080}}
	n := newAgent(t, w.node, append([]string{"--cluster-cidr", clusters}, flags...)...)
	n.write(t, one, other)
	n.start(t)
	put(t, []any{"Service", "client"}, slices.Concat(
		ask("one", w.outside, one.lb, 80, by(w.pod1)), ask("one", denied, one.lb, 80, dropped),
		ask("other", w.outside, one.lb, 81, dropped), ask("other", denied, one.lb, 81, by(w.pod2)),
	))
}

// The load of TestChangingSourceRangesLeavesNoGap: each of 25 Services changes its ranges 40 times.
const (
	rewrites = 40
	sharing  = 25
)

// TestChangingSourceRangesLeavesNoGap changes ranges a thousand times. Meanwhile a client outside
// of all ranges sends requests as fast as it can, from a new port each time. A client that is
// always inside a range sends them steadily.
func TestChangingSourceRangesLeavesNoGap(t *testing.T) {
	w := newWorld(t)
	denied := w.addDenied(t)
	w.pod1.serve(t, 8080)
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	n.writeFile(t, "all.yaml", w.changed(0))
	n.start(t)
	var probers []*prober
	var ss streams
	for _, proto := range []backend.Proto{backend.TCP, backend.UDP} {
		for _, addr := range numberedService(1).lb.all() {
			probers = append(probers, denied.probe(t, proto, addr, 80, sharing))
			ss = append(ss, w.outside.stream(t, proto, addr))
		}
	}
	for i := range rewrites {
		n.edit(t, func() { n.writeFile(t, "all.yaml", w.changed(i+1)) })
	}
	table := newTable("prober", "asked", "a second", "answered")
	for _, p := range probers {
		p.end()
		table.row(p.name, p.asked, int(p.rate()), p.answered.Load())
		if got := p.answered.Load(); got > 0 {
			t.Errorf("%s: %d answers, want none", p.name, got)
		}
		if p.asked < rewrites {
			t.Errorf("%s: asked %d times during %d rewrites: that proves nothing", p.name, p.asked, rewrites)
		}
	}
	t.Logf("%d changes of ranges\n%s", rewrites*sharing, table)
	ss.check(t)
	put(t, []any{"after", "client"}, slices.Concat(
		ask("the last change", w.outside, numberedService(1).lb, 80, by(w.pod1)), ask("the last change", denied, numberedService(1).lb, 80, dropped)))
}

// changed are Services on the ports from 80 up of one address, with the ranges of one rewrite.
// There are one to five ranges, and the first always contains the admitted client, with another
// mask each time.
func (w *world) changed(rewrite int) []byte {
	var items []object
	for i := range sharing {
		s := service{
			name: fmt.Sprintf("changing-%d", i), vip: pair{fmt.Sprintf("10.96.2.%d", i+1), fmt.Sprintf("fd00:96::2:%x", i+1)},
			lb: numberedService(1).lb, ports: []port{{"tcp", "TCP", 80 + i, 8080}, {"udp", "UDP", 80 + i, 8080}}, backends: endpoints(w.pod1),
		}
		n := rewrite + i
		s.ranges = []string{fmt.Sprintf("203.0.113.0/%d", 26+n%3), fmt.Sprintf("2001:db8::/%d", 122+n%3)}
		for r := range n % 5 {
			s.ranges = append(s.ranges, fmt.Sprintf("198.51.%d.0/%d", (n*7+r)%250, 24+r), fmt.Sprintf("2001:db8:%x::/%d", n*7+r+1, 48+r))
		}
		items = append(items, s.items()...)
	}
	return list(items...)
}
