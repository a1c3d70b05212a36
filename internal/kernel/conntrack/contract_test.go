package conntrack_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/conntrack"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/conntrack/conntracktest"
	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
)

// world is a table, a way to sweep it, and a separate handle that fills and reads it.
type world struct {
	sweeper interface {
		Sweep(context.Context, []conntrack.Order) (conntrack.Outcome, error)
		Close()
	}
	table interface {
		Add(...conntracktest.Flow) error
		Flows() ([]conntracktest.Flow, error)
	}
}

// contract is what every world has to keep.
var contract = map[string]func(*testing.T, world){
	"answers that may go on":             testKeep,
	"no flow may continue":               testKeepNone,
	"a key without a Service any more":   testUnserved,
	"IPv6":                               testIPv6,
	"nothing else is touched":            testExact,
	"one tuple in two zones":             testZones,
	"other protocols":                    testProtocols,
	"few keys among many flows":          testFewKeys,
	"many keys":                          testManyKeys,
	"both families":                      testBothFamilies,
	"the last order for a key counts":    testLastOrder,
	"keys that no packet has":            testOddKeys,
	"no orders":                          testNoOrders,
	"more stale flows than a batch":      testManyStale,
	"swept twice":                        testTwice,
	"a context that is over":             testContextOver,
	"closed":                             testClosed,
	"a masqueraded flow":                 testMasqueraded,
	"an answer from another port is not": testOtherPortAnswers,
	"answers that came late":             testLateAnswers,
	"late answers among many keys":       testLateAnswersOfMany,
	"connections go on":                  testConnections,
	"connections of many keys":           testConnectionsOfMany,
	"untranslated connections":           testUntranslated,
	"clients of this node":               testNear,
}

func TestFakeKeepsContract(t *testing.T) {
	for name, test := range contract {
		t.Run(name, func(t *testing.T) {
			f := conntracktest.New()
			test(t, world{f, f})
		})
	}
}

var dns, dns6 = key("10.96.0.10:53"), key("[fd00:96::a]:53")

func key(dialled string) conntrack.Key {
	a := netip.MustParseAddrPort(dialled)
	return conntrack.Key{Addr: a.Addr(), Port: a.Port(), Protocol: conntrack.ProtocolUDP}
}

func keep(k conntrack.Key, who ...string) conntrack.Order {
	o := conntrack.Order{Key: k}
	for _, w := range who {
		o.Keep = append(o.Keep, netip.MustParseAddrPort(w))
	}
	slices.SortFunc(o.Keep, netip.AddrPort.Compare)
	return o
}

func unserved(k conntrack.Key) conntrack.Order { return conntrack.Order{Key: k, Unserved: true} }

// from is a flow to a key; without an answering address it was never rewritten.
func from(k conntrack.Key, client string, answers ...string) conntracktest.Flow {
	who := netip.AddrPortFrom(k.Addr, k.Port)
	if len(answers) > 0 {
		who = netip.MustParseAddrPort(answers[0])
	}
	return conntracktest.To(k, netip.MustParseAddrPort(client), who)
}

func (w world) add(t *testing.T, flows ...conntracktest.Flow) {
	t.Helper()
	if err := w.table.Add(flows...); err != nil {
		t.Fatal(err)
	}
}

// sweep carries out orders and wants so many flows deleted.
func (w world) sweep(t *testing.T, deleted int, orders ...conntrack.Order) conntrack.Outcome {
	t.Helper()
	out, err := w.sweeper.Sweep(t.Context(), orders)
	if err != nil {
		t.Fatalf("Sweep: %v", err)
	}
	if out.Deleted != deleted || out.Stale < deleted || out.Seen < out.Stale {
		t.Errorf("Sweep = %+v, want %d deleted", out, deleted)
	}
	return out
}

func (w world) want(t *testing.T, flows ...conntracktest.Flow) {
	t.Helper()
	got, err := w.table.Flows()
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(flows, conntracktest.Flow.Compare)
	if diff := cmp.Diff(lines(flows), lines(got)); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func lines(flows []conntracktest.Flow) []string {
	out := []string{}
	for _, f := range flows {
		out = append(out, f.String())
	}
	return out
}

func testKeep(t *testing.T, w world) {
	stays := []conntracktest.Flow{
		from(dns, "10.244.0.1:4001", "10.244.1.1:5353"),
		from(dns, "10.244.0.2:4001", "10.244.1.2:5353"),
	}
	w.add(t, stays...)
	w.add(t, from(dns, "10.244.0.1:4002", "10.244.9.9:5353"), from(dns, "10.244.0.1:4003"))
	w.sweep(t, 2, keep(dns, "10.244.1.2:5353", "10.244.1.1:5353"))
	w.want(t, stays...)
}

func testKeepNone(t *testing.T, w world) {
	w.add(t, from(dns, "10.244.0.1:4001", "10.244.1.1:5353"), from(dns, "10.244.0.1:4002"))
	w.sweep(t, 2, keep(dns))
	w.want(t)
}

func testUnserved(t *testing.T, w world) {
	never := from(dns, "10.244.0.1:4002")
	w.add(t, from(dns, "10.244.0.1:4001", "10.244.1.1:5353"), never)
	o := unserved(dns)
	o.Keep = keep(dns, "10.244.1.1:5353").Keep // not read
	w.sweep(t, 1, o)
	w.want(t, never)
}

func testIPv6(t *testing.T, w world) {
	good, never := from(dns6, "[fd00:10:244::1]:4001", "[fd00:10:244:1::1]:5353"), from(dns6, "[fd00:10:244::1]:4003")
	w.add(t, good, never, from(dns6, "[fd00:10:244::1]:4002", "[fd00:10:244:9::9]:5353"))
	w.sweep(t, 2, keep(dns6, "[fd00:10:244:1::1]:5353"))
	w.want(t, good)
	w.add(t, never)
	w.sweep(t, 1, unserved(dns6))
	w.want(t, never)
}

// testExact: flows that share all but one thing with a stale one.
func testExact(t *testing.T, w world) {
	tcp := dns
	tcp.Protocol = conntrack.ProtocolTCP
	stays := []conntracktest.Flow{
		from(key("10.96.0.10:54"), "10.244.0.1:4002", "10.244.9.9:5353"),
		from(key("10.96.0.11:53"), "10.244.0.1:4003", "10.244.9.9:5353"),
		from(key("[fd00:96::a]:53"), "[fd00:10:244::1]:4001", "[fd00:10:244:9::9]:5353"),
		from(tcp, "10.244.0.1:4001", "10.244.9.9:5353"),
		from(key("10.244.9.9:5353"), "10.244.0.1:4004"), // directly to the answering address
		from(key("10.244.0.1:4005"), "10.96.0.10:53"),   // the other way round
		from(key("10.244.0.1:4006"), "10.244.9.9:5353"), // and answered by it
		from(key("192.0.2.1:53"), "10.96.0.10:54"),      // the key's address as a client
	}
	w.add(t, stays...)
	w.add(t, from(dns, "10.244.0.1:4001", "10.244.9.9:5353"))
	w.sweep(t, 1, keep(dns, "10.244.1.1:5353"))
	w.want(t, stays...)
}

func testZones(t *testing.T, w world) {
	good, stale := from(dns, "10.244.0.1:4001", "10.244.1.1:5353"), from(dns, "10.244.0.1:4001", "10.244.9.9:5353")
	good.Zone = 7
	turned, other := good, stale
	turned.Zone, other.Zone = 0, 7
	other.Client = netip.MustParseAddrPort("10.244.0.2:4001")
	other.Towards = other.Client
	turned.Client, turned.Towards = other.Client, other.Client
	// The first client's is stale in no zone and good in zone 7, the second one's the other way round.
	w.add(t, good, stale, turned, other)
	w.sweep(t, 2, keep(dns, "10.244.1.1:5353"))
	w.want(t, good, turned)
}

func testProtocols(t *testing.T, w world) {
	for _, p := range []netkey.Protocol{conntrack.ProtocolTCP, conntrack.ProtocolSCTP} {
		k, other := dns, key("10.96.0.10:54")
		k.Protocol, other.Protocol = p, p
		stays := from(other, "10.244.0.1:4002", "10.244.9.9:5353")
		w.add(t, stays, from(k, "10.244.0.1:4001", "10.244.9.9:5353"))
		w.sweep(t, 1, keep(k, "10.244.1.1:5353"))
		w.want(t, stays)
		w.sweep(t, 1, keep(other))
	}
}

func testFewKeys(t *testing.T, w world) {
	foreign := slices.Collect(conntracktest.Foreign(4, 1000))
	w.add(t, foreign...)
	w.add(t, from(dns, "10.244.0.1:4001", "10.244.9.9:5353"))
	if out := w.sweep(t, 1, keep(dns), keep(key("10.96.0.11:53"))); out.Seen > 10 || out.Whole != 0 {
		t.Errorf("Sweep = %+v: the kernel is to give those that were asked for", out)
	}
	w.want(t, foreign...)
}

func testManyKeys(t *testing.T, w world) {
	foreign := slices.Concat(slices.Collect(conntracktest.Foreign(4, 500)), slices.Collect(conntracktest.Foreign(6, 500)))
	w.add(t, foreign...)
	var orders []conntrack.Order
	for i := range 300 {
		k := key(fmt.Sprintf("10.96.1.%d:%d", i%100, 53+i/50))
		client := fmt.Sprintf("10.244.0.1:%d", 4000+i)
		good := from(k, client, "10.244.1.1:5353")
		w.add(t, good, from(k, client[:len(client)-4]+"5"+client[len(client)-3:], "10.244.9.9:5353"))
		foreign = append(foreign, good)
		orders = append(orders, keep(k, "10.244.1.1:5353"))
	}
	if out := w.sweep(t, 300, orders...); out.Whole != 1 || out.Seen < 1100 || out.Seen >= 1600 {
		t.Errorf("Sweep = %+v, want one dump of one family", out)
	}
	w.want(t, foreign...)
}

func testBothFamilies(t *testing.T, w world) {
	var orders []conntrack.Order
	for i := range 20 {
		for _, k := range []conntrack.Key{key(fmt.Sprintf("10.96.1.1:%d", 53+i)), key(fmt.Sprintf("[fd00:96::1]:%d", 53+i))} {
			orders = append(orders, keep(k))
			w.add(t, from(k, map[bool]string{true: "10.244.0.1:4001", false: "[fd00:10:244::1]:4001"}[k.Addr.Is4()]))
		}
	}
	w.sweep(t, 4, orders[0], orders[1], orders[2], orders[3])
	if out := w.sweep(t, 36, orders...); out.Whole != 2 {
		t.Errorf("Sweep = %+v, want two dumps", out)
	}
	w.want(t)
}

func testLastOrder(t *testing.T, w world) {
	good := from(dns, "10.244.0.1:4001", "10.244.1.1:5353")
	w.add(t, good)
	w.sweep(t, 0, unserved(dns), keep(dns, "10.244.1.1:5353"))
	w.want(t, good)
	w.sweep(t, 1, keep(dns, "10.244.1.1:5353"), unserved(dns))
	w.want(t)
}

func testOddKeys(t *testing.T, w world) {
	good := from(dns, "10.244.0.1:4001", "10.244.1.1:5353")
	w.add(t, good)
	w.sweep(t, 0, keep(conntrack.Key{}), keep(conntrack.Key{Addr: dns.Addr}), keep(key("[::ffff:10.96.0.10]:53")),
		keep(conntrack.Key{Addr: netip.MustParseAddr("fe80::1%eth0"), Port: 53, Protocol: 17}), keep(conntrack.Key{Addr: dns.Addr, Port: 53, Protocol: 255}))
	w.want(t, good)
}

func testNoOrders(t *testing.T, w world) {
	good := from(dns, "10.244.0.1:4001")
	w.add(t, good)
	if out := w.sweep(t, 0); out != (conntrack.Outcome{}) {
		t.Errorf("Sweep of nothing = %+v", out)
	}
	w.want(t, good)
}

func testManyStale(t *testing.T, w world) {
	var orders []conntrack.Order
	for i := range 17 {
		orders = append(orders, keep(key(fmt.Sprintf("10.96.1.1:%d", 54+i))))
	}
	fill := func() {
		for i := range 3000 {
			w.add(t, from(dns, fmt.Sprintf("10.244.%d.%d:4001", i/250, i%250), "10.244.99.9:5353"))
		}
	}
	fill()
	w.sweep(t, 3000, keep(dns))
	w.want(t)
	fill()
	w.sweep(t, 3000, append(orders, keep(dns))...)
	w.want(t)
}

func testTwice(t *testing.T, w world) {
	w.add(t, from(dns, "10.244.0.1:4001", "10.244.9.9:5353"))
	w.sweep(t, 1, keep(dns))
	w.sweep(t, 0, keep(dns))
	w.add(t, from(dns, "10.244.0.1:4001", "10.244.9.9:5353"))
	w.sweep(t, 1, keep(dns))
	w.want(t)
}

func testContextOver(t *testing.T, w world) {
	good := from(dns, "10.244.0.1:4001", "10.244.9.9:5353")
	w.add(t, good)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.sweeper.Sweep(over, []conntrack.Order{keep(dns)}); err == nil {
		t.Error("a sweep whose context is over has to say so")
	}
	w.want(t, good)
	w.sweep(t, 1, keep(dns))
}

func testClosed(t *testing.T, w world) {
	good := from(dns, "10.244.0.1:4001", "10.244.9.9:5353")
	w.add(t, good)
	w.sweeper.Close()
	w.sweeper.Close()
	if _, err := w.sweeper.Sweep(t.Context(), []conntrack.Order{keep(dns)}); err == nil {
		t.Error("a closed handle has to say so")
	}
	w.want(t, good)
}

// testMasqueraded: whom the answers go to does not matter.
func testMasqueraded(t *testing.T, w world) {
	good, stale := from(dns, "203.0.113.9:4001", "10.244.1.1:5353"), from(dns, "203.0.113.9:4002", "10.244.9.9:5353")
	good.Towards, stale.Towards = netip.MustParseAddrPort("192.168.0.1:4001"), netip.MustParseAddrPort("192.168.0.1:40002")
	w.add(t, good, stale)
	w.sweep(t, 1, keep(dns, "10.244.1.1:5353"))
	w.want(t, good)
}

func testOtherPortAnswers(t *testing.T, w world) {
	w.add(t, from(dns, "10.244.0.1:4001", "10.244.1.1:5354"))
	w.sweep(t, 1, keep(dns, "10.244.1.1:5353"))
	w.want(t)
}

// late is a flow that an answer began which came when its flow was gone.
func late(backend, client string) conntracktest.Flow { return from(key(client), backend) }

// testLateAnswers: only flows that keep a client from a fresh backend are deleted.
func testLateAnswers(t *testing.T, w world) {
	answered, rewritten, tcp := late("10.244.1.1:5353", "10.244.0.1:4002"), late("10.244.1.1:5353", "10.244.0.1:4003"), late("10.244.1.1:5353", "10.244.0.1:4004")
	answered.Replied = true
	rewritten.Towards = netip.MustParseAddrPort("192.168.0.1:4003")
	tcp.Protocol = conntrack.ProtocolTCP
	stays := []conntracktest.Flow{
		answered, rewritten, tcp,
		late("10.244.1.2:5353", "10.244.0.1:4001"), // from an address that is not fresh
		late("10.244.1.1:5354", "10.244.0.1:4001"), // from another port
		late("10.244.0.1:4001", "10.244.1.3:5353"), // the other way round
		late("[fd00:10:244:1::2]:5353", "[fd00:10:244::1]:4001"),
	}
	w.add(t, stays...)
	w.add(t, late("10.244.1.1:5353", "10.244.0.1:4001"), late("[fd00:10:244:1::1]:5353", "[fd00:10:244::1]:4001"))
	o, o6 := keep(dns, "10.244.1.1:5353", "10.244.1.2:5353"), keep(dns6, "[fd00:10:244:1::1]:5353", "[fd00:10:244:1::2]:5353")
	o.Fresh, o6.Fresh = o.Keep[:1], o6.Keep[:1]
	if out := w.sweep(t, 2, o, o6); out.Whole != 0 {
		t.Errorf("Sweep = %+v: the kernel is to give those that were asked for", out)
	}
	w.want(t, stays...)
}

func testLateAnswersOfMany(t *testing.T, w world) {
	stays := slices.Collect(conntracktest.Foreign(4, 100))
	w.add(t, stays...)
	var orders []conntrack.Order
	for i := range 20 {
		backend := fmt.Sprintf("10.244.1.%d:%d", 1+i%2, 5000+i)
		o := keep(key(fmt.Sprintf("10.96.1.1:%d", 53+i)), backend)
		o.Fresh = o.Keep
		orders = append(orders, o)
		w.add(t, late(backend, "10.244.0.1:4001"))
	}
	w.sweep(t, 1, orders[0])
	w.sweep(t, 19, orders...)
	w.want(t, stays...)
}

func of(protocol netkey.Protocol, k conntrack.Key) conntrack.Key {
	k.Protocol = protocol
	return k
}

// answered is a flow whose client had an answer; reset one whose connection was reset.
func answered(f conntracktest.Flow) conntracktest.Flow {
	f.Replied = true
	return f
}

func reset(f conntracktest.Flow) conntracktest.Flow {
	f.Replied, f.Reset = true, true
	return f
}

// testConnections: of the flows that Keep does not name, those alone go that carry no
// connection.
func testConnections(t *testing.T, w world) {
	for _, p := range []netkey.Protocol{conntrack.ProtocolTCP, conntrack.ProtocolSCTP} {
		for _, k := range []conntrack.Key{of(p, dns), of(p, dns6)} {
			alive, gone, client := "10.244.1.1:5353", "10.244.9.9:5353", "10.244.0.1:%d"
			if !k.Addr.Is4() {
				alive, gone, client = "[fd00:10:244:1::1]:5353", "[fd00:10:244:9::9]:5353", "[fd00:10:244::1]:%d"
			}
			at := func(port int, who ...string) conntracktest.Flow { return from(k, fmt.Sprintf(client, port), who...) }
			stays := []conntracktest.Flow{
				at(4001, alive), answered(at(4002, alive)), reset(at(4003, alive)), // of one that is named
				answered(at(4004, gone)), answered(at(4005)), // connections, wherever they go
			}
			w.add(t, stays...)
			w.add(t, at(4006), at(4007, gone), reset(at(4008, gone)))
			o := keep(k, alive)
			o.Connections = true
			w.sweep(t, 3, o)
			w.want(t, stays...)
			o.Connections = false
			w.sweep(t, 2, o)
			o.Keep = nil
			w.sweep(t, 3, o)
		}
	}
}

func testConnectionsOfMany(t *testing.T, w world) {
	stays := slices.Collect(conntracktest.Foreign(4, 100))
	var orders []conntrack.Order
	for i := range 20 {
		k := of(conntrack.ProtocolTCP, key(fmt.Sprintf("10.96.1.1:%d", 53+i)))
		o := keep(k, "10.244.1.1:5353")
		o.Connections = true
		orders = append(orders, o)
		client := func(port int) string { return fmt.Sprintf("10.244.0.%d:%d", 1+i, port) }
		stays = append(stays, answered(from(k, client(4001), "10.244.9.9:5353")))
		w.add(t, from(k, client(4002), "10.244.9.9:5353"), from(k, client(4003)))
	}
	w.add(t, stays...)
	w.sweep(t, 40, orders...)
	w.want(t, stays...)
}

func testUntranslated(t *testing.T, w world) {
	k := of(conntrack.ProtocolTCP, dns)
	masqueraded := from(k, "10.244.0.1:4001") // its source was rewritten, and where it goes was not
	masqueraded.Towards = netip.MustParseAddrPort("192.168.0.1:40001")
	stays := []conntracktest.Flow{
		from(k, "10.244.0.1:4002", "10.244.9.9:5353"), answered(from(k, "10.244.0.1:4003", "10.244.9.9:5353")),
		answered(from(k, "10.244.0.1:4004")), from(of(conntrack.ProtocolTCP, key("10.96.0.10:54")), "10.244.0.1:4005"),
	}
	w.add(t, stays...)
	w.add(t, masqueraded, from(k, "10.244.0.1:4006"), reset(from(k, "10.244.0.1:4007")))
	w.sweep(t, 3, conntrack.Order{Key: k, Untranslated: true})
	w.want(t, stays...)
}

// testNear: an endpoint goes on answering some clients, and not others.
func testNear(t *testing.T, w world) {
	stays := []conntracktest.Flow{
		from(dns, "10.244.0.1:4001", "10.244.1.1:5353"), from(dns, "203.0.113.9:4001", "10.244.1.1:5353"),
		from(dns, "10.244.0.1:4002", "10.244.9.9:5353"), from(dns, "192.168.0.1:4001", "10.244.9.9:5353"),
	}
	w.add(t, stays...)
	w.add(t, from(dns, "203.0.113.9:4002", "10.244.9.9:5353"), from(dns, "10.244.0.1:4003", "10.244.8.8:5353"))
	o := keep(dns, "10.244.1.1:5353")
	o.Near = keep(dns, "10.244.9.9:5353").Keep
	o.From = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/24"), netip.MustParsePrefix("192.168.0.1/32")}
	w.sweep(t, 2, o)
	w.want(t, stays...)
}
