package vserver_test

import (
	"errors"
	"net"
	"net/netip"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/moby/ipvs"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"go.uber.org/zap/zaptest"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver/vservertest"
	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
)

// enterNamespace moves the test's goroutine into a network namespace of its
// own. The thread is never unlocked and so ends with the goroutine. Loopback
// has to be up: without any address the kernel calls every destination's
// address a broadcast and refuses it.
func enterNamespace(t testing.TB) {
	t.Helper()
	runtime.LockOSThread()
	ns, err := netns.New()
	if errors.Is(err, unix.EPERM) {
		t.Skip("skipped: no permission to make a network namespace")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		t.Fatalf("bring lo up: %v", err)
	}
}

// openKernel is a Handle in a fresh namespace, or a skip where there is no IPVS.
func openKernel(t testing.TB, opts vserver.Options) *vserver.Handle {
	t.Helper()
	enterNamespace(t)
	if opts.CallTimeout == 0 { // the first use of a scheduler loads its module, which takes seconds where it is emulated
		opts.CallTimeout = poll.Patience
	}
	h, err := vserver.New(zaptest.NewLogger(t), opts)
	if errors.Is(err, vserver.ErrUnsupported) {
		t.Skipf("skipped: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestKernelContract(t *testing.T) {
	vservertest.Contract(t, func(t *testing.T) vservertest.Subject {
		s := vservertest.Subject{
			Client:     openKernel(t, vserver.Options{}),
			Schedulers: vservertest.Schedulers(),
			AddMark:    addMark,
			Connect:    connect,
			Refuses:    refuses,
			PassesOver: true,
			Readers:    map[string]func(*testing.T) string{"moby/ipvs": readLibrary},
		}
		if _, err := exec.LookPath("ipvsadm"); err == nil {
			s.Readers["ipvsadm -Sn"], s.ReadsTunnels = readTool, "ipvsadm -Sn"
		}
		return s
	})
}

func openLibrary(t testing.TB) *ipvs.Handle {
	t.Helper()
	library, err := ipvs.New("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(library.Close)
	return library
}

func addMark(t *testing.T, mark uint32) {
	service := &ipvs.Service{AddressFamily: unix.AF_INET, FWMark: mark, SchedName: "rr", Netmask: ^uint32(0)}
	if err := openLibrary(t).NewService(service); err != nil {
		t.Fatal(err)
	}
}

func readTool(t *testing.T) string {
	out, err := exec.Command("ipvsadm", "-Sn").CombinedOutput()
	if err != nil {
		t.Fatalf("ipvsadm -Sn: %v: %s", err, out)
	}
	return string(out)
}

// readLibrary prints what the library reads, through keys built from its types.
func readLibrary(t *testing.T) string {
	library := openLibrary(t)
	services, err := library.GetServices()
	if err != nil {
		t.Fatal(err)
	}
	servers := map[vserver.ServerKey]vserver.Server{}
	destinations := map[vserver.DestinationKey]vserver.Destination{}
	for _, service := range services {
		key, server := fromLibrary(service)
		servers[key] = server
		found, err := library.GetDestinations(service)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range found {
			k := vserver.DestinationKey{Server: key, Addr: libraryAddr(d.Address, d.AddressFamily), Port: d.Port}
			destinations[k] = vserver.Destination{Weight: uint16(d.Weight), Forward: uint8(d.ConnectionFlags & ipvs.ConnFwdMask)}
		}
	}
	var b strings.Builder
	if err := vserver.WriteSave(&b, servers, destinations); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func fromLibrary(s *ipvs.Service) (vserver.ServerKey, vserver.Server) {
	key := vserver.ServerKey{Addr: libraryAddr(s.Address, s.AddressFamily), Port: s.Port, Protocol: netkey.Protocol(s.Protocol)}
	server := vserver.Server{Scheduler: s.SchedName, Flags: s.Flags &^ 0x2, Timeout: s.Timeout}
	if s.AddressFamily == unix.AF_INET6 {
		server.HostBits = uint8(128 - s.Netmask)
	} else {
		server.HostBits = uint8(32 - strings.Count(strconv.FormatUint(uint64(s.Netmask), 2), "1"))
	}
	return key, server
}

// libraryAddr turns the library's slice, which may hold IPv4 in 16 bytes, into
// the address of its family.
func libraryAddr(ip net.IP, family uint16) netip.Addr {
	if family == unix.AF_INET {
		ip = ip.To4()
	}
	a, _ := netip.AddrFromSlice(ip)
	return a
}
