package link_test

import (
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"go.uber.org/zap/zaptest"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
)

// TestKernelKeepsContract runs the contract in fresh network namespaces: with the
// real link type where the kernel has it, and always with a bridge in its place.
// A bridge without ports is as good a place for addresses as a dummy link, so
// that all but the creation itself is tested everywhere.
func TestKernelKeepsContract(t *testing.T) {
	for _, kind := range []string{"dummy", "bridge"} {
		t.Run(kind, func(t *testing.T) {
			for name, test := range contract {
				t.Run(name, func(t *testing.T) { test(t, kernelWorld(t, kind)) })
			}
		})
	}
}

// kernelWorld returns a handle in a fresh network namespace, or skips.
func kernelWorld(t testing.TB, kind string) world {
	t.Helper()
	enterNamespace(t)
	n := newNeighbour(t, kind)
	h, err := link.New(zaptest.NewLogger(t), link.Options{Timeout: poll.Patience}.WithKind(kind))
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(h.Close)
	return world{h, n}
}

// enterNamespace moves the test to a network namespace that ends with it. The
// thread is never given back, so nothing else can land in that namespace.
func enterNamespace(t testing.TB) {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("no network namespace of its own: %v", err)
	}
}

// neighbour is another process on the node, with a socket of its own.
type neighbour struct {
	t    testing.TB
	nl   *netlink.Handle
	kind string
}

func newNeighbour(t testing.TB, kind string) *neighbour {
	t.Helper()
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatalf("open a second socket: %v", err)
	}
	t.Cleanup(h.Close)
	if err := h.SetSocketTimeout(5 * time.Second); err != nil {
		t.Fatalf("set the time-out of the second socket: %v", err)
	}
	probe := &netlink.GenericLink{LinkAttrs: attrs("probe0"), LinkType: kind}
	if err := h.LinkAdd(probe); err != nil {
		t.Skipf("this kernel cannot make a link of type %s: %v", kind, err)
	}
	n := &neighbour{t: t, nl: h, kind: kind}
	n.must("delete the probe link", h.LinkDel(probe))
	n.must("set lo up", n.nl.LinkSetUp(n.link("lo"))) // as on every machine
	return n
}

func attrs(name string) netlink.LinkAttrs {
	a := netlink.NewLinkAttrs()
	a.Name = name
	return a
}

func (n *neighbour) must(doing string, err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatalf("%s: %v", doing, err)
	}
}

func (n *neighbour) link(name string) netlink.Link {
	n.t.Helper()
	l, err := n.nl.LinkByName(name)
	n.must("find "+name, err)
	return l
}

func hostAddr(a netip.Addr) *netlink.Addr {
	return &netlink.Addr{
		IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())},
		Flags: unix.IFA_F_NODAD,
	}
}

func (n *neighbour) LoseAddress(a netip.Addr) {
	n.t.Helper()
	n.must("delete "+a.String(), n.nl.AddrDel(n.link(link.DefaultName), hostAddr(a)))
}

func (n *neighbour) LoseLink() {
	n.t.Helper()
	n.must("delete our link", n.nl.LinkDel(n.link(link.DefaultName)))
}

func (n *neighbour) Occupy(string) {
	n.t.Helper()
	// A pair of links needs nothing but the two names, on every kernel.
	pair := &netlink.Veth{LinkAttrs: attrs(link.DefaultName), PeerName: "peer0"}
	n.must("take our name", n.nl.LinkAdd(pair))
}

func (n *neighbour) AddElsewhere(a netip.Addr, name string) {
	n.t.Helper()
	n.must("add "+a.String(), n.nl.AddrAdd(n.anyLink(name), hostAddr(a)))
}

// anyLink returns the link of that name, a new one if there is none.
func (n *neighbour) anyLink(name string) netlink.Link {
	n.t.Helper()
	if l, err := n.nl.LinkByName(name); err == nil {
		return l
	}
	n.must("make "+name, n.nl.LinkAdd(&netlink.GenericLink{LinkAttrs: attrs(name), LinkType: n.kind}))
	return n.link(name)
}

// SetGateways installs one multipath default route a family.
func (n *neighbour) SetGateways(hops ...netip.Addr) {
	n.t.Helper()
	l := n.anyLink("uplink0")
	n.must("set uplink0 up", n.nl.LinkSetUp(l))
	for _, all := range []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")} {
		r := &netlink.Route{Dst: ipNet(all)}
		_ = n.nl.RouteDel(r) // none is fine
		for _, hop := range hops {
			if hop.Is4() == all.Addr().Is4() {
				r.MultiPath = append(r.MultiPath, &netlink.NexthopInfo{LinkIndex: l.Attrs().Index, Gw: hop.AsSlice(), Flags: int(netlink.FLAG_ONLINK)})
			}
		}
		if r.MultiPath != nil {
			n.must("add a default route", n.nl.RouteAdd(r))
		}
	}
}

// localRoute is a route of ours, or of another protocol.
func (n *neighbour) localRoute(p netip.Prefix, protocol int) *netlink.Route {
	n.t.Helper()
	return &netlink.Route{
		Dst: ipNet(p), LinkIndex: n.link("lo").Attrs().Index, Table: unix.RT_TABLE_LOCAL,
		Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST, Protocol: netlink.RouteProtocol(protocol),
	}
}

func (n *neighbour) LoseRoute(p netip.Prefix) {
	n.t.Helper()
	n.must("delete "+p.String(), n.nl.RouteDel(n.localRoute(p, link.RouteProtocol)))
}

func (n *neighbour) AddRouteByHand(p netip.Prefix) {
	n.t.Helper()
	n.must("add "+p.String(), n.nl.RouteAdd(n.localRoute(p, unix.RTPROT_STATIC)))
}

func (n *neighbour) RemoveRouteByHand(p netip.Prefix) {
	n.t.Helper()
	n.must("delete "+p.String(), n.nl.RouteDel(n.localRoute(p, unix.RTPROT_STATIC)))
}

// announcement is a route that drops packets, of ours or of another protocol.
func announcement(a link.Announcement, protocol int) *netlink.Route {
	return &netlink.Route{
		Dst: ipNet(netip.PrefixFrom(a.Addr, a.Addr.BitLen())), Table: int(a.Table), Type: unix.RTN_BLACKHOLE, Protocol: netlink.RouteProtocol(protocol),
	}
}

func (n *neighbour) LoseAnnouncement(a link.Announcement) {
	n.t.Helper()
	n.must("delete "+a.String(), n.nl.RouteDel(announcement(a, link.RouteProtocol)))
}

func (n *neighbour) AnnounceByHand(a link.Announcement) {
	n.t.Helper()
	n.must("add "+a.String(), n.nl.RouteAdd(announcement(a, unix.RTPROT_STATIC)))
}

func (n *neighbour) RemoveAnnouncedByHand(a link.Announcement) {
	n.t.Helper()
	n.must("delete "+a.String(), n.nl.RouteDel(announcement(a, unix.RTPROT_STATIC)))
}

// LeadTo adds a rule of IPv4 for each priority.
func (n *neighbour) LeadTo(table uint32, priorities ...uint32) {
	n.t.Helper()
	for _, priority := range priorities {
		rule := netlink.NewRule()
		rule.Family, rule.Table, rule.Priority = unix.AF_INET, int(table), int(priority)
		n.must("add a rule", n.nl.RuleAdd(rule))
	}
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func (n *neighbour) RemoveElsewhere(a netip.Addr) {
	n.t.Helper()
	n.must("delete "+a.String(), n.nl.AddrDel(n.link("uplink0"), hostAddr(a)))
}

func (n *neighbour) AddByHand(a netip.Addr) {
	n.t.Helper()
	n.must("add "+a.String(), n.nl.AddrAdd(n.link(link.DefaultName), hostAddr(a)))
}

// disableIPv6 switches IPv6 off on our link.
func (n *neighbour) disableIPv6() {
	n.t.Helper()
	n.disableIPv6On(link.DefaultName)
}

func (n *neighbour) disableIPv6On(name string) {
	n.t.Helper()
	key := "/proc/sys/net/ipv6/conf/" + name + "/disable_ipv6"
	n.must("disable IPv6", os.WriteFile(key, []byte("1"), 0o644))
}

// churn takes addresses off our link and puts them back until it is stopped.
func (n *neighbour) churn(addrs []netip.Addr) (stop func()) {
	n.t.Helper()
	ours, over, ended := n.link(link.DefaultName), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ; i++ {
			select {
			case <-over:
				return
			default:
				a := hostAddr(addrs[i%len(addrs)])
				_ = n.nl.AddrDel(ours, a)
				_ = n.nl.AddrAdd(ours, a)
			}
		}
	}()
	return func() { close(over); <-ended }
}
