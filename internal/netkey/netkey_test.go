package netkey_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
)

func TestText(t *testing.T) {
	for got, want := range map[string]string{
		netkey.Tuple{Addr: netip.MustParseAddr("10.96.0.10"), Port: 53, Protocol: netkey.UDP}.String(): "10.96.0.10:53/udp",
		netkey.Tuple{Addr: netip.MustParseAddr("fd00::a"), Port: 9, Protocol: netkey.SCTP}.String():    "[fd00::a]:9/sctp",
		netkey.TCP.String() + netkey.Protocol(99).String():                                             "tcp99",
		netkey.IPv4.String() + netkey.IPv6.String() + netkey.Family(7).String():                        "IPv4IPv6no family",
		netkey.IPv4.Table() + netkey.IPv6.Table() + netkey.Family(7).Table():                           "ipip6family7",
		netkey.Add.String() + netkey.Update.String() + netkey.Delete.String() + netkey.Op(0).String():  "addupdatedeletenone",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestFamilyOf(t *testing.T) {
	for addr, want := range map[string]netkey.Family{"10.0.0.1": netkey.IPv4, "fd00::1": netkey.IPv6, "::ffff:10.0.0.1": netkey.IPv6} {
		if got := netkey.FamilyOf(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
	if got := netkey.FamilyOf(netip.Addr{}); got != 0 {
		t.Errorf("no address: %s, want none", got)
	}
}

func TestTuplesAreOrderedByAddressPortAndProtocol(t *testing.T) {
	at := func(addr string, port uint16, p netkey.Protocol) netkey.Tuple {
		return netkey.Tuple{Addr: netip.MustParseAddr(addr), Port: port, Protocol: p}
	}
	want := []netkey.Tuple{
		at("10.0.0.1", 53, netkey.TCP), at("10.0.0.1", 53, netkey.UDP), at("10.0.0.1", 80, netkey.TCP),
		at("10.0.0.2", 1, netkey.TCP), at("fd00::1", 1, netkey.TCP),
	}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, netkey.Tuple.Compare)
	if !slices.Equal(got, want) {
		t.Errorf("sorted: %v, want %v", got, want)
	}
}
