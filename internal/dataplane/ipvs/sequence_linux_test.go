package ipvs_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

// A hundred nodes on one kernel, each in a network namespace of its own, add five
// destinations in their order, and each has one client under rr. Without an order of each
// node's own one backend would get all of them.
func TestOnKernelNodesBeginAtDifferentDestinations(t *testing.T) {
	if os.Getenv("KUBE_IPVS_WHERE") == "" {
		t.Skip("KUBE_IPVS_WHERE is not set: this test wants root and a kernel with IPVS, see e2e/README.md")
	}
	const nodes, backends = 100, 5
	got := map[netip.Addr]int{}
	for node := range nodes {
		added := addedBy(t, fmt.Sprintf("node-%d", node), service("web", vip, someBackends(backends)...))
		to, err := firstOnKernel(t, added)
		if err != nil {
			t.Fatalf("node-%d: %v", node, err)
		}
		got[to]++
	}
	most := 0
	for addr, n := range got {
		most = max(most, n)
		t.Logf("%-12s %2d of %d connections", addr, n, nodes)
	}
	if share := float64(most*backends) / nodes; share >= 1.6 {
		t.Errorf("one backend has %d of %d connections, %.2f times the mean", most, nodes, share)
	}
}

// firstOnKernel adds destinations in a new network namespace, and returns the one that the first
// connection is given to. No host answers it.
func firstOnKernel(t *testing.T, added []vserver.DestinationKey) (to netip.Addr, err error) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the namespace ends with the thread
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			to, err = connectOnce(t, added)
		}
	}()
	<-done
	return to, err
}

func connectOnce(t *testing.T, added []vserver.DestinationKey) (netip.Addr, error) {
	server := added[0].Server
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return netip.Addr{}, err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return netip.Addr{}, err
	}
	if err := netlink.AddrAdd(lo, &netlink.Addr{IPNet: &net.IPNet{IP: server.Addr.AsSlice(), Mask: net.CIDRMask(32, 32)}}); err != nil {
		return netip.Addr{}, err
	}
	h, err := vserver.New(zap.NewNop(), vserver.Options{})
	if err != nil {
		return netip.Addr{}, err
	}
	defer h.Close()
	batch, wanted := make([]vserver.DestinationChange, len(added)), map[vserver.DestinationKey]struct{}{}
	for i, k := range added {
		batch[i], wanted[k] = vserver.DestinationChange{Op: vserver.Add, Key: k, Destination: vserver.Destination{Weight: 1}}, struct{}{}
	}
	for _, errs := range [][]error{
		h.WriteServers(t.Context(), []vserver.ServerChange{{Op: vserver.Add, Key: server, Server: vserver.Server{Scheduler: "rr"}}}),
		h.WriteDestinations(t.Context(), batch),
	} {
		if errs != nil {
			return netip.Addr{}, errs[0]
		}
	}
	if err := sendSYN(netip.AddrPortFrom(server.Addr, server.Port)); err != nil {
		return netip.Addr{}, err
	}
	for counting := h.Count(wanted); ; {
		found, over, err := counting.Next(t.Context())
		if err != nil {
			return netip.Addr{}, err
		}
		for k, c := range found {
			if !c.Idle() {
				return k.Addr, nil
			}
		}
		if over {
			return netip.Addr{}, fmt.Errorf("no destination of %s has a connection: %v", server, found)
		}
	}
}

// sendSYN begins a connection and waits for no answer. The kernel has chosen a destination
// when it returns, however slow the machine is: a dialer with a short patience may lose it
// before it has sent anything.
func sendSYN(to netip.AddrPort) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	switch err := unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}); err {
	case nil, unix.EINPROGRESS, unix.ENETUNREACH, unix.EHOSTUNREACH:
		return nil // no route leads to a destination: that one was chosen is what counts
	default:
		return fmt.Errorf("connect to %s: %w", to, err)
	}
}
