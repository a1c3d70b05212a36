package daemon

import (
	"errors"
	"net/netip"
	"testing"

	"go.uber.org/zap/zaptest"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link/linktest"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver/vservertest"
)

// TestRefusedAPIServerIsUnbound: an address that is bound here and refuses is freed, but not one whose port a virtual server has.
func TestRefusedAPIServerIsUnbound(t *testing.T) {
	bound, served, elsewhere := netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("203.0.113.2")
	links, servers := linktest.New(), vservertest.NewFake()
	if _, err := links.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	if errs := links.Write(t.Context(), []link.Change{{Op: link.Add, Addr: bound}, {Op: link.Add, Addr: served}}); errs != nil {
		t.Fatal(errors.Join(errs...))
	}
	for _, key := range []vserver.ServerKey{{Addr: served, Port: 443, Protocol: vserver.ProtocolTCP}, {Addr: bound, Port: 80, Protocol: vserver.ProtocolTCP}} {
		if errs := servers.WriteServers(t.Context(), []vserver.ServerChange{{Op: vserver.Add, Key: key, Server: vserver.Server{Scheduler: "rr"}}}); errs != nil {
			t.Fatal(errors.Join(errs...))
		}
	}
	var lost []netip.Addr
	l := lockout{log: zaptest.NewLogger(t), links: links, servers: servers, lost: func(a netip.Addr) { lost = append(lost, a) }}
	for _, at := range []netip.AddrPort{netip.AddrPortFrom(served, 443), netip.AddrPortFrom(elsewhere, 6443), netip.AddrPortFrom(bound, 6443), netip.AddrPortFrom(bound, 6443)} {
		if err := l.free(t.Context(), at); err != nil {
			t.Errorf("%s: %v", at, err)
		}
	}
	left, err := links.List(t.Context())
	if _, is := left[served]; err != nil || len(left) != 1 || !is || len(lost) != 1 || lost[0] != bound {
		t.Errorf("left %v, error %v, told lost %v", left, err, lost)
	}
}
