package link_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
)

func TestWriteAddrs(t *testing.T) {
	addrs := map[netip.Addr]struct{}{}
	for _, a := range []string{"fd00:96::a", "10.96.0.10", "10.96.0.9", "fd00:96::9", "9.255.0.1"} {
		addrs[netip.MustParseAddr(a)] = struct{}{}
	}
	var b strings.Builder
	if err := link.WriteAddrs(&b, addrs); err != nil {
		t.Fatalf("WriteAddrs: %v", err)
	}
	want := `
ip addr add 9.255.0.1/32 dev kube-ipvs0
ip addr add 10.96.0.9/32 dev kube-ipvs0
ip addr add 10.96.0.10/32 dev kube-ipvs0
ip addr add fd00:96::9/128 dev kube-ipvs0 nodad
ip addr add fd00:96::a/128 dev kube-ipvs0 nodad
`
	if diff := cmp.Diff(want[1:], b.String()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
}

// full is a writer without room.
type full struct{}

var errFull = errors.New("no space")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestWriteAddrsTellsOfAFullDisk(t *testing.T) {
	addrs := map[netip.Addr]struct{}{netip.MustParseAddr("10.96.0.1"): {}}
	if err := link.WriteAddrs(full{}, addrs); !errors.Is(err, errFull) {
		t.Errorf("WriteAddrs = %v, want %v", err, errFull)
	}
}

func TestStrings(t *testing.T) {
	a := netip.MustParseAddr("10.96.0.1")
	for want, got := range map[string]string{
		"add 10.96.0.1/32":           link.Change{Op: link.Add, Addr: a}.String(),
		"del fd00::1/128":            link.Change{Op: link.Delete, Addr: netip.MustParseAddr("fd00::1")}.String(),
		"add invalid address":        link.Change{Op: link.Add}.String(),
		"none 10.96.0.1/32":          link.Change{Op: 9, Addr: a}.String(),
		"ready":                      link.Event{Kind: link.Ready}.String(),
		"overrun":                    link.Event{Kind: link.Overrun}.String(),
		"our link lost":              link.Event{Kind: link.OurLinkLost}.String(),
		"our address lost 10.96.0.1": link.Event{Kind: link.OurAddressLost, Addr: a}.String(),
		"node addresses changed 10.96.0.1": link.Event{
			Kind: link.NodeAddressesChanged, Addr: a}.String(),
		"kind(0)":                      link.Kind(0).String(),
		"our route lost fd00:96::/112": link.Event{Kind: link.OurRouteLost, Route: netip.MustParsePrefix("fd00:96::/112")}.String(),
		"del local 10.96.0.0/16":       link.RouteChange{Op: link.Delete, Prefix: netip.MustParsePrefix("10.96.0.0/16")}.String(),
		"add local invalid range":      link.RouteChange{Op: link.Add}.String(),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestChangeCheck(t *testing.T) {
	for addr, op := range map[string]link.Op{
		"10.96.0.1": link.Add, "fd00::1": link.Delete, "169.254.20.10": link.Add, "255.255.255.254": link.Add,
	} {
		if err := (link.Change{Op: op, Addr: netip.MustParseAddr(addr)}).Check(); err != nil {
			t.Errorf("%s %s: %v, want nil", op, addr, err)
		}
	}
	for addr, op := range map[string]link.Op{
		"127.0.0.1": link.Add, "::1": link.Add, "fe80::1": link.Add, "fe80::1%eth0": link.Delete,
		"fd00::1%eth0": link.Add, "::ffff:10.0.0.1": link.Add, "0.0.0.0": link.Add, "::": link.Delete,
		"224.0.0.1": link.Add, "ff02::1": link.Add, "10.96.0.1": 0, "10.96.0.2": 2,
	} {
		if err := (link.Change{Op: op, Addr: netip.MustParseAddr(addr)}).Check(); err == nil {
			t.Errorf("%s %s: nil, want an error", op, addr)
		}
	}
}
