package nft_test

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
)

// raiseLoopback lets the namespace of the calling thread send packets to itself.
func raiseLoopback(t *testing.T) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		t.Fatal(err)
	}
	ifr.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr); err != nil {
		t.Fatal(err)
	}
}

// answer listens at a port of loopback, in the namespace of the calling thread, and answers with its
// name.
func answer(t *testing.T, name string) uint16 {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, name)
			_ = c.Close()
		}
	}()
	return netip.MustParseAddrPort(l.Addr().String()).Port()
}

// dial returns the name of the server that answers at an address, or "nothing".
func dial(t *testing.T, to netip.AddrPort) string {
	t.Helper()
	c, err := net.DialTimeout("tcp4", to.String(), poll.Patience)
	if err != nil {
		return "nothing"
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(poll.Patience))
	b, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestPackets sends packets through maps of destinations and verdicts, past a chain of another
// program that would translate them.
func TestPackets(t *testing.T) {
	h := openKernel(t)
	defer h.Close()
	if !hasTool() {
		t.Skip("skipped: nft is not installed")
	}
	raiseLoopback(t)
	first, second, foreign := answer(t, "first"), answer(t, "second"), answer(t, "foreign")
	loopback := netip.MustParseAddr("127.0.0.1")
	service, refused, kept := netip.MustParseAddrPort("127.0.0.2:80"), netip.MustParseAddrPort("127.0.0.2:81"), netip.AddrPortFrom(loopback, first)
	tool(t, fmt.Sprintf("table ip other {\n chain out {\n type nat hook output priority -100;\n ip daddr 127.0.0.0/8 tcp dport != %d dnat to 127.0.0.1:%d\n }\n}\n", foreign, foreign), "-f", "-")
	before := tool(t, "", "list", "table", "ip", "other")
	if got := dial(t, kept); got != "foreign" {
		t.Fatalf("without our rules %s answers, want the other program's server", got)
	}

	by := nft.By(nft.DestinationAddr, nft.Protocol, nft.DestinationPort)
	detours, decisions, own := nft.Set{Shape: nft.AddrPort, Data: nft.Destinations}, nft.Set{Shape: nft.AddrPort, Data: nft.Verdicts}, nft.Set{Shape: nft.AddrPort}
	k := func(name string) nft.Key { return nft.Key{Family: nft.IPv4, Name: name} }
	at := func(a netip.AddrPort) nft.Element {
		return nft.Element{Addr: a.Addr(), Protocol: nft.TCP, Port: a.Port()}
	}
	detour, refuse := at(service), at(refused)
	detour.To, refuse.Verdict = netip.AddrPortFrom(loopback, second), nft.Goto("refuse")
	o := h.Apply(t.Context(), nft.Pass{
		Tables: []nft.TableChange{{Op: nft.Add, Family: nft.IPv4}},
		Sets: []nft.SetChange{
			{Op: nft.Add, Key: k("detours"), Set: detours}, {Op: nft.Add, Key: k("decisions"), Set: decisions}, {Op: nft.Add, Key: k("own"), Set: own},
		},
		Chains: []nft.ChainChange{
			{Op: nft.Add, Key: k("nat-OUTPUT"), Chain: nft.Chain{Base: nft.NATOutput, Rules: []nft.Rule{
				nft.NewRule(nft.DestinationMap{Key: by, Map: "detours"}),
				nft.NewRule(nft.MatchSet{Key: by, Set: "own"}, nft.KeepDestination{}),
			}}},
			{Op: nft.Add, Key: k("mangle-OUTPUT"), Chain: nft.Chain{Base: nft.MangleOutput, Rules: []nft.Rule{nft.NewRule(nft.VerdictMap{Key: by, Map: "decisions"})}}},
			{Op: nft.Add, Key: k("refuse"), Chain: nft.Chain{Rules: []nft.Rule{nft.NewRule(nft.Reject{})}}},
		},
		Elements: []nft.ElementChange{
			{Op: nft.Add, Key: k("detours"), Set: detours, Element: detour}, {Op: nft.Add, Key: k("decisions"), Set: decisions, Element: refuse},
			{Op: nft.Add, Key: k("own"), Set: own, Element: at(kept)},
		},
	})
	if err := o.Err(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what string
		to   netip.AddrPort
		want string
	}{
		{"a map of destinations", service, "second"},
		{"a map of verdicts", refused, "nothing"},
		{"a destination that is kept", kept, "first"},
		{"an address that is not ours", netip.AddrPortFrom(loopback, second), "foreign"},
	} {
		if got := dial(t, c.to); got != c.want {
			t.Errorf("%s: %s answers at %s, want %s", c.what, got, c.to, c.want)
		}
	}
	if after := tool(t, "", "list", "table", "ip", "other"); after != before {
		t.Errorf("the table of another program was\n%s\nand is\n%s", before, after)
	}
}

// TestPacketsWhileATableIsReplaced: no packet passes between a table and its successor, which both drop it.
func TestPacketsWhileATableIsReplaced(t *testing.T) {
	h := openKernel(t)
	defer h.Close()
	raiseLoopback(t)
	server, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	client, err := net.DialUDP("udp4", nil, server.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()

	const last = "no table is left"
	stop, done := make(chan struct{}), make(chan struct{})
	replace(t, h, server)
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = client.Write([]byte("a table is there")) // refused, as it is dropped
			}
		}
	}()
	for range 100 {
		replace(t, h, server)
	}
	close(stop)
	<-done
	if err := h.Apply(t.Context(), nft.Pass{Tables: []nft.TableChange{{Op: nft.Delete, Family: nft.IPv4}}}).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Write([]byte(last)); err != nil {
		t.Fatal(err)
	}
	_ = server.SetReadDeadline(time.Now().Add(poll.Patience))
	b := make([]byte, len(last))
	if n, err := server.Read(b); err != nil || string(b[:n]) != last {
		t.Errorf("the first packet that passes is %q, %v; want %q", b[:n], err, last)
	}
}

// replace replaces our table by one that drops what is for a socket. Elements for other addresses make the transaction long.
func replace(t *testing.T, h *nft.Handle, socket net.PacketConn) {
	t.Helper()
	k := func(name string) nft.Key { return nft.Key{Family: nft.IPv4, Name: name} }
	set, by := nft.Set{Shape: nft.AddrPort}, nft.By(nft.DestinationAddr, nft.Protocol, nft.DestinationPort)
	to := netip.MustParseAddrPort(socket.LocalAddr().String())
	p := nft.Pass{
		Tables: []nft.TableChange{{Op: nft.Update, Family: nft.IPv4}},
		Sets:   []nft.SetChange{{Op: nft.Add, Key: k("refused"), Set: set}},
		Chains: []nft.ChainChange{
			{Op: nft.Add, Key: k("mangle-OUTPUT"), Chain: nft.Chain{Base: nft.MangleOutput, Rules: []nft.Rule{nft.NewRule(nft.Jump("leaf"))}}},
			{Op: nft.Add, Key: k("leaf"), Chain: nft.Chain{Rules: []nft.Rule{nft.NewRule(nft.MatchSet{Key: by, Set: "refused"}, nft.Drop)}}},
		},
	}
	for i := range 1000 {
		e := nft.Element{Addr: netip.AddrFrom4([4]byte{127, 1, byte(i >> 8), byte(i)}), Protocol: nft.UDP, Port: to.Port()}
		if i == 999 {
			e.Addr = to.Addr()
		}
		p.Elements = append(p.Elements, nft.ElementChange{Op: nft.Add, Key: k("refused"), Set: set, Element: e})
	}
	if err := h.Apply(t.Context(), p).Err(); err != nil {
		t.Fatal(err)
	}
}
