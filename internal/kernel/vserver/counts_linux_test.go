package vserver_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver/vservertest"
)

// connect opens a connection over the loopback device of the calling thread's
// namespace. Its end is an orderly one, the client's first.
func connect(t *testing.T, to vserver.DestinationKey) (end func()) {
	t.Helper()
	listener, err := net.Listen("tcp", netip.AddrPortFrom(to.Addr, to.Port).String())
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client, err := net.Dial("tcp", netip.AddrPortFrom(to.Server.Addr, to.Server.Port).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		for _, c := range []net.Conn{client, server} {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// refuses dials a server whose destination listens. The kernel answers a packet it finds
// no destination for with "port unreachable" (ip_vs_leave).
func refuses(t *testing.T, to vserver.DestinationKey) bool {
	t.Helper()
	listener, err := net.Listen("tcp", netip.AddrPortFrom(to.Addr, to.Port).String())
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client, err := net.DialTimeout("tcp", netip.AddrPortFrom(to.Server.Addr, to.Server.Port).String(), 5*time.Second)
	if err != nil {
		return true
	}
	_ = client.Close()
	return false
}

// TestCountsBesideAnotherNamespace: the servers of another namespace make the
// kernel's list pass over some of ours, and none of them is missed.
func TestCountsBesideAnotherNamespace(t *testing.T) {
	const n = 400
	wanted := map[vserver.DestinationKey]struct{}{}
	var handles []*vserver.Handle
	for range 2 { // each in a namespace of its own; the last one is asked
		h := openKernel(t, vserver.Options{})
		defer h.Close()
		handles = append(handles, h)
		changes := servers(vserver.Add, n)
		if errs := h.WriteServers(ctx, changes); errs != nil {
			t.Fatal(errs)
		}
		var rows []vserver.DestinationChange
		for _, c := range changes {
			key := destinationKey(c.Key, "10.1.0.1:80")
			wanted[key] = struct{}{}
			rows = append(rows, vserver.DestinationChange{Op: vserver.Add, Key: key, Destination: vserver.Destination{Weight: 1}})
		}
		if errs := h.WriteDestinations(ctx, rows); errs != nil {
			t.Fatal(errs)
		}
	}
	before := handles[1].Counters().Dumps
	got, err := vservertest.CountAll(ctx, handles[1].Count(wanted))
	if err != nil || len(got) != n {
		t.Errorf("%d counts, %v; want %d", len(got), err, n)
	}
	t.Logf("figure: the list passed over %d of %d servers", handles[1].Counters().Dumps-before-1, n)
}
