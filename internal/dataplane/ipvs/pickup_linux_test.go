package ipvs_test

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

// mhFlows is how many clients each node is asked by: each has a source port of its own.
const mhFlows = 4000

// TestOnKernelNodesAgreeUnderMH: nodes with the same backends give every client to the same backend.
// One more backend moves at most its own share and 2 % beside it, with 40 backends 3 %: the table of
// the kernel has 4,093 places. Where one node saw the backends arrive and the other was started later,
// the figure is the number of clients on which they disagree.
func TestOnKernelNodesAgreeUnderMH(t *testing.T) {
	if os.Getenv("KUBE_IPVS_WHERE") == "" {
		t.Skip("KUBE_IPVS_WHERE is not set: this test wants root and a kernel with IPVS, see e2e/README.md")
	}
	for n, beside := range map[int]float64{4: 0.02, 10: 0.02, 40: 0.03} {
		t.Run(fmt.Sprintf("backends=%d", n), func(t *testing.T) {
			table := func(node string, all ...string) []vserver.DestinationKey {
				return addedBy(t, node, with(service("web", vip, all...), func(f *model.Frontend) { f.Scheduler = scheduler.MustParse("mh") }))
			}
			few, more := someBackends(n), someBackends(n+1)
			a := clientsOf(t, table("node-a", few...))
			b := clientsOf(t, table("node-b", few...))
			if moved := differing(a, b); moved != 0 {
				t.Errorf("two nodes disagree on %d of %d clients", moved, mhFlows)
			}
			fresh := table("node-c", more...)
			c := clientsOf(t, fresh)
			share := float64(differing(a, c)) / mhFlows
			t.Logf("figure: %d backends and one more: %.1f%% of the clients move, 1/%d is %.1f%%", n, 100*share, n+1, 100/float64(n+1))
			if most := 1/float64(n) + beside; share > most {
				t.Errorf("%.1f%% of the clients move, want at most %.1f%%", 100*share, 100*most)
			}
			// A node that was there before has the first backend by address as the last that arrived.
			arrived := append(slices.Clone(fresh[1:]), fresh[0])
			reversed := slices.Clone(fresh)
			slices.Reverse(reversed)
			t.Logf("figure: %d backends: %.1f%% of the clients differ where one arrived later, %.1f%% in the reverse order",
				n+1, 100*float64(differing(c, clientsOf(t, arrived)))/mhFlows, 100*float64(differing(c, clientsOf(t, reversed)))/mhFlows)
		})
	}
}

// differing counts the clients that have another backend in two tables.
func differing(a, b map[uint16]string) (n int) {
	for _, port := range slices.Sorted(maps.Keys(a)) {
		if a[port] != b[port] {
			n++
		}
	}
	return n
}

// clientsOf adds destinations to a kernel in a namespace of its own, and returns the backend of each
// client, by its source port.
func clientsOf(t *testing.T, added []vserver.DestinationKey) (out map[uint16]string) {
	t.Helper()
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the namespace ends with the thread
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			out, err = askMany(t, added)
		}
	}()
	<-done
	if err != nil {
		t.Fatal(err)
	}
	if len(out) != mhFlows {
		t.Fatalf("%d of %d clients have a backend", len(out), mhFlows)
	}
	return out
}

// askMany sends a datagram from each source port: mh takes protocols alike, and a datagram needs no
// answer. The server is of UDP for that.
func askMany(t *testing.T, added []vserver.DestinationKey) (map[uint16]string, error) {
	server := added[0].Server
	server.Protocol = vserver.ProtocolUDP
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return nil, err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return nil, err
	}
	if err := netlink.AddrAdd(lo, &netlink.Addr{IPNet: &net.IPNet{IP: server.Addr.AsSlice(), Mask: net.CIDRMask(32, 32)}}); err != nil {
		return nil, err
	}
	h, err := vserver.New(zap.NewNop(), vserver.Options{})
	if err != nil {
		return nil, err
	}
	defer h.Close()
	batch := make([]vserver.DestinationChange, len(added))
	for i, k := range added {
		k.Server = server
		batch[i] = vserver.DestinationChange{Op: vserver.Add, Key: k, Destination: vserver.Destination{Weight: 1}}
	}
	mh := scheduler.MustParse("mh")
	for _, errs := range [][]error{
		h.WriteServers(t.Context(), []vserver.ServerChange{{Op: vserver.Add, Key: server, Server: vserver.Server{Scheduler: mh.Name(), Flags: mh.KernelFlags()}}}),
		h.WriteDestinations(t.Context(), batch),
	} {
		if errs != nil {
			return nil, errs[0]
		}
	}
	for i := range mhFlows {
		if err := datagram(netip.AddrPortFrom(server.Addr, server.Port), uint16(20000+i)); err != nil {
			return nil, err
		}
	}
	return readClients()
}

// datagram sends one from a source port of the server's own address.
func datagram(to netip.AddrPort, port uint16) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: int(port), Addr: to.Addr().As4()}); err != nil {
		return fmt.Errorf("bind port %d: %w", port, err)
	}
	// No route leads to a destination: that one was chosen is what counts.
	_ = unix.Sendto(fd, []byte("x"), 0, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
	return nil
}

// readClients reads the connection table: Pro FromIP FPrt ToIP TPrt DestIP DPrt State Expires.
func readClients() (map[uint16]string, error) {
	text, err := os.ReadFile("/proc/thread-self/net/ip_vs_conn")
	if err != nil {
		return nil, err
	}
	out := map[uint16]string{}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 7 || f[0] != "UDP" {
			continue
		}
		port, err := strconv.ParseUint(f[2], 16, 16)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		out[uint16(port)] = f[5]
	}
	return out, nil
}
