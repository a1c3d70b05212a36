package nftrules

import (
	"fmt"
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// lowerEntry returns the element of an entry.
func lowerEntry(e ipset.Entry) (nft.Element, error) {
	if e.NoMatch {
		return nft.Element{}, fmt.Errorf("entry %s: %w in nftables", e, ipset.ErrUnsupported)
	}
	out := nft.Element{Addr: e.Addr, Protocol: e.Protocol, Port: e.Port, Net: e.Net}
	if e.Addr2.IsValid() {
		out.Net = netip.PrefixFrom(e.Addr2, e.Addr2.BitLen())
	}
	return out, nil
}

// raiseEntry returns the entry of an element of a set of that shape.
func raiseEntry(s nft.Shape, e nft.Element) ipset.Entry {
	out := ipset.Entry{Addr: e.Addr, Protocol: e.Protocol, Port: e.Port}
	switch s {
	case nft.AddrPortAddr:
		out.Addr2 = e.Net.Addr()
	case nft.AddrPortNet:
		out.Net = e.Net
	}
	return out
}
