package packet

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/conntrack"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/conntrack/conntracktest"
)

// redialPort is the source port of clients that have but one.
const redialPort = 45678

// deadEndpoint is an endpoint that never answers: the node sends its packets to nowhere.
var deadEndpoint = pair{"10.244.7.7", "fd00:10:244:7::7"}

// before is a node with an agent, and its table of flows.
type before struct {
	*proxy
	w     *world
	table *conntracktest.Kernel
}

func (w *world) before(t *testing.T, flags ...string) *before {
	t.Helper()
	b := &before{proxy: newAgent(t, w.node, append([]string{"--cluster-cidr", clusters}, flags...)...), w: w}
	b.must(t, b.do(func() (err error) { b.table, err = conntracktest.Open(); return err }))
	t.Cleanup(b.table.Close)
	for _, p := range []*pod{w.pod1, w.remote1, w.remote2} {
		p.lines(t)
	}
	// The other node finds the outside by another way, which leads past this one: an answer to an address that was not
	// rewritten is lost.
	w.remote1.shell(t, fmt.Sprintf("ip route add blackhole %s/32; ip -6 route add blackhole %s/128", w.outside.addr.v4, w.outside.addr.v6))
	return b
}

// lines answers each line of a TCP connection with the name of the pod.
func (p *pod) lines(t *testing.T) {
	t.Helper()
	for _, addr := range p.addr.all() {
		var l net.Listener
		p.must(t, p.do(func() (err error) {
			l, err = net.Listen("tcp", hostPort(addr, 9090))
			return err
		}))
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer conn.Close()
					for in := bufio.NewScanner(conn); in.Scan(); {
						fmt.Fprintln(conn, p.name)
					}
				}()
			}
		}()
	}
}

// call is a connection that a client asked for.
type call struct {
	name string
	done chan struct{}
	conn net.Conn
	in   *bufio.Reader
	err  error
}

// dial connects from one fixed port. The kernel sends the SYN again after 1, 3, 7, 15 and 31 s.
func (p *pod) dial(t *testing.T, to string, from int) *call {
	t.Helper()
	c := &call{name: fmt.Sprintf("%s to %s", p.name, to), done: make(chan struct{})}
	dialled := netip.MustParseAddrPort(to)
	source := netip.AddrPortFrom(p.source(dialled.Addr().String()), uint16(from))
	if !source.Addr().IsValid() { // the host leaves it to the kernel
		source = netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(from))
		if dialled.Addr().Is6() {
			source = netip.AddrPortFrom(netip.IPv6Unspecified(), uint16(from))
		}
	}
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(source), Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1) })
	}}
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	go func() {
		defer close(c.done)
		defer cancel()
		if c.err = p.do(func() (err error) { c.conn, err = d.DialContext(ctx, "tcp", to); return err }); c.err == nil {
			c.in = bufio.NewReader(c.conn)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-c.done
		if c.conn != nil {
			c.conn.Close()
		}
	})
	return c
}

// answered requires the connection, and an answer from the named backend.
func (c *call) answered(t *testing.T, by string) {
	t.Helper()
	<-c.done
	if c.err != nil {
		t.Errorf("%s: %v", c.name, c.err)
		return
	}
	_ = c.conn.SetDeadline(time.Now().Add(patience))
	_, err := fmt.Fprintln(c.conn, "?")
	line := ""
	if err == nil {
		line, err = c.in.ReadString('\n')
	}
	if err != nil || strings.TrimSpace(line) != by {
		t.Errorf("%s: answered %q, %v, want %s", c.name, line, err, by)
	}
}

// underWay waits until the table has an unanswered flow from the fixed port to a key, which goes where it should not.
func (b *before) underWay(t *testing.T, vip string, n int, answers func(netip.Addr) bool) {
	t.Helper()
	poll(t, fmt.Sprintf("%d connections to %s under way", n, vip), settleTimeout, func() error {
		flows, err := b.table.Flows()
		found := 0
		for _, f := range flows {
			if f.Protocol == conntrack.ProtocolTCP && f.Dialled.Addr().String() == vip && !f.Replied && answers(f.Answers.Addr()) {
				found++
			}
		}
		if err == nil && found < n {
			err = fmt.Errorf("%d of them:\n%v", found, flows)
		}
		return err
	})
}

// TestDialledBefore: a client with a fixed port that dials before the Service is there, or an
// endpoint that is dead, is connected by a later SYN. An established connection continues.
func TestDialledBefore(t *testing.T) {
	t.Parallel()
	newWorld(t).before(t).dialled(t)
}

func TestIPTablesDialledBefore(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) { iptablesWorld(t).before(t, inIPTables(kind)...).dialled(t) })
}

func (b *before) dialled(t *testing.T) {
	ports := []port{{"lines", "TCP", 80, 9090}}
	old := service{name: "old", vip: pair{"10.96.0.95", "fd00:96::95"}, ports: ports, backends: endpoints(b.w.remote2)}
	b.write(t, old)
	b.start(t)
	clients := []*pod{b.w.pod3, b.w.host(), b.w.outside}
	var established []*call
	for _, family := range families {
		for _, c := range clients {
			established = append(established, c.dial(t, hostPort(old.vip.of(family), 80), redialPort-1))
		}
	}
	healthy := func(what string) {
		t.Helper()
		t.Log(what)
		for _, c := range established {
			c.answered(t, b.w.remote2.name)
		}
	}
	healthy("before")

	late := service{name: "late", vip: pair{"10.96.0.96", "fd00:96::96"}, ports: ports, backends: endpoints(b.w.remote1)}
	b.connects(t, late, clients, func(vip netip.Addr) func(netip.Addr) bool {
		return func(a netip.Addr) bool { return a == vip }
	})
	healthy("with a new Service")

	dead := service{name: "dead", vip: pair{"10.96.0.97", "fd00:96::97"}, ports: ports, backends: []endpoint{
		{addr: deadEndpoint.v4, node: otherNode}, {addr: deadEndpoint.v6, node: otherNode},
	}}
	b.edit(t, func() { b.write(t, dead) })
	dead.backends = endpoints(b.w.remote1)
	b.connects(t, dead, clients, func(netip.Addr) func(netip.Addr) bool {
		return func(a netip.Addr) bool { return a.String() == deadEndpoint.v4 || a.String() == deadEndpoint.v6 }
	})

	old.backends = endpoints(b.w.remote1) // connections drain, in ipvs mode, or stay
	b.edit(t, func() { b.write(t, old) })
	healthy("without their endpoint")
}

// connects dials a Service from everywhere, writes it when the node has seen all of them, and wants them connected.
func (b *before) connects(t *testing.T, s service, clients []*pod, leads func(vip netip.Addr) func(netip.Addr) bool) {
	t.Helper()
	var calls []*call
	for _, family := range families {
		for _, c := range clients {
			calls = append(calls, c.dial(t, hostPort(s.vip.of(family), 80), redialPort))
		}
		b.underWay(t, s.vip.of(family), len(clients), leads(netip.MustParseAddr(s.vip.of(family))))
	}
	b.edit(t, func() { b.write(t, s) })
	for _, c := range calls {
		c.answered(t, b.w.remote1.name)
	}
}

// TestIPTablesUDPFollowsThePolicy: the policy becomes Local. A client outside that never changes
// its port is then answered by an endpoint of this node, and a client of this node by the same
// endpoint as before.
func TestIPTablesUDPFollowsThePolicy(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) { iptablesWorld(t).before(t, inIPTables(kind)...).policy(t) })
}

// TestUDPFollowsThePolicy is the same of clients outside in ipvs mode.
func TestUDPFollowsThePolicy(t *testing.T) {
	t.Parallel()
	newWorld(t).before(t).policy(t)
}

func (b *before) policy(t *testing.T) {
	w := b.w
	for _, p := range []*pod{w.pod1, w.remote1} {
		p.echo(t)
	}
	s := service{
		name: "policy", vip: pair{"10.96.0.98", "fd00:96::98"}, lb: pair{"198.18.3.9", "2001:db8:3::9"},
		ports: []port{{"udp", "UDP", 53, 8080}}, backends: endpoints(w.remote1),
	}
	b.write(t, s)
	b.start(t)
	var outside, near []*talker
	for _, family := range families {
		outside = append(outside, w.outside.talk(t, hostPort(s.lb.of(family), 53), 20))
		near = append(near, w.pod3.talk(t, hostPort(s.lb.of(family), 53), 20))
	}
	for _, k := range append(outside, near...) {
		k.await(t, w.remote1.name, 3)
	}
	s.externalLocal, s.backends = true, endpoints(w.remote1, w.pod1)
	b.edit(t, func() { b.write(t, s) })
	for _, k := range outside {
		k.await(t, w.pod1.name, 3)
	}
	if b.mode(t) == "iptables" {
		for _, k := range near {
			k.await(t, w.remote1.name, 3)
		}
	}
}
