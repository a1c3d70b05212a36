package packet

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/e2e/netns"
)

// space is the network of one machine or pod.
type space struct {
	inside *netns.Space
	name   string
	links  *netlink.Handle
}

// newSpace makes a namespace that lives until the test ends.
func newSpace(t *testing.T, name string) *space {
	t.Helper()
	inside, err := netns.New(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(inside.Close)
	s := &space{inside: inside, name: name}
	s.links, err = inside.Links()
	s.must(t, err)
	t.Cleanup(s.links.Close)
	// lo first: without it the kernel refuses destinations with EINVAL.
	s.must(t, s.links.LinkSetUp(s.link(t, "lo")))
	return s
}

// do runs f inside the namespace: sockets and processes that it makes belong there for good.
func (s *space) do(f func() error) error { return s.inside.Do(f) }

// toolTimeout bounds one program; emulated kernels are slow, hanging ones are slower.
const toolTimeout = 60 * time.Second

// try runs a program and returns what it printed on standard output; the error carries standard error.
func (s *space) try(name string, args ...string) (string, error) {
	return s.feed("", name, args...)
}

// feed is try with a standard input.
func (s *space) feed(input, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), toolTimeout)
	defer cancel()
	return s.inside.Run(ctx, input, name, args...)
}

// run is try for what has to work.
func (s *space) run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := s.try(name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// shell runs lines of shell, stopping at the first that fails.
func (s *space) shell(t *testing.T, script string) string {
	t.Helper()
	return s.run(t, "sh", "-ec", script)
}

func (s *space) must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("set up %s: %v", s.name, err)
	}
}

func (s *space) link(t *testing.T, name string) netlink.Link {
	t.Helper()
	l, err := s.links.LinkByName(name)
	s.must(t, err)
	return l
}

// sysctl sets a value below /proc/sys/net; the view of the calling thread counts.
func (s *space) sysctl(t *testing.T, name, value string) {
	t.Helper()
	s.must(t, s.do(func() error { return os.WriteFile(filepath.Join("/proc/sys/net", name), []byte(value), 0) }))
}

// address puts addresses on a link and brings it up. IPv6 addresses are usable at once: no other
// host can have them.
func (s *space) address(t *testing.T, link string, prefixes ...string) {
	t.Helper()
	l := s.link(t, link)
	for _, p := range prefixes {
		a, err := netlink.ParseAddr(p)
		s.must(t, err)
		a.Flags = unix.IFA_F_NODAD
		s.must(t, s.links.AddrAdd(l, a))
	}
	s.must(t, s.links.LinkSetUp(l))
}

// route sends a range through a link, by a gateway that is taken to be on that link.
func (s *space) route(t *testing.T, link, to, via string) {
	t.Helper()
	dst, err := netlink.ParseIPNet(to)
	s.must(t, err)
	r := &netlink.Route{LinkIndex: s.link(t, link).Attrs().Index, Dst: dst}
	if via != "" {
		r.Gw, r.Flags = netip.MustParseAddr(via).AsSlice(), int(netlink.FLAG_ONLINK)
	}
	s.must(t, s.links.RouteAdd(r))
}

// wire joins two namespaces with a veth pair.
func wire(t *testing.T, a *space, nameA string, b *space, nameB string) {
	t.Helper()
	a.must(t, netns.Wire(a.inside, nameA, b.inside, nameB))
}
