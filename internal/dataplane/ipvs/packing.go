package ipvs

import (
	"encoding/binary"
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// Destinations and entries are nearly all rows that there are, one or more for each
// endpoint, and their keys have room for every kind of address. Those of IPv4 are kept in
// a small part of it.

// The layouts: of a destination the server's address, port and protocol, then address and
// port; of an entry the address, port and protocol, the second address, whether it has one,
// and the set.
const (
	atPort     = 4
	atProtocol = 6
	atAddr2    = 7
	atPort2    = 11
	atTwo      = 11
	atSet      = 12
)

// packing writes and reads the parts of a small key.
type packing delta.Small

func (p *packing) put(at int, a netip.Addr) {
	four := a.As4()
	copy(p[at:], four[:])
}

func (p *packing) addr(at int) netip.Addr { return netip.AddrFrom4([4]byte(p[at:])) }

func (p *packing) putPort(at int, port uint16) { binary.BigEndian.PutUint16(p[at:], port) }

func (p *packing) port(at int) uint16 { return binary.BigEndian.Uint16(p[at:]) }

var packedDestinations = delta.Packing[vserver.DestinationKey]{
	Pack: func(k vserver.DestinationKey) (delta.Small, bool) {
		if !k.Server.Addr.Is4() || !k.Addr.Is4() {
			return delta.Small{}, false
		}
		var p packing
		p.put(0, k.Server.Addr)
		p.putPort(atPort, k.Server.Port)
		p[atProtocol] = uint8(k.Server.Protocol)
		p.put(atAddr2, k.Addr)
		p.putPort(atPort2, k.Port)
		return delta.Small(p), true
	},
	Unpack: func(s delta.Small) vserver.DestinationKey {
		p := packing(s)
		server := vserver.ServerKey{Addr: p.addr(0), Port: p.port(atPort), Protocol: netkey.Protocol(p[atProtocol])}
		return vserver.DestinationKey{Server: server, Addr: p.addr(atAddr2), Port: p.port(atPort2)}
	},
}

// packedSets numbers the sets of IPv4 by their place in setTypes.
var packedSets = func() map[string]uint8 {
	out := make(map[string]uint8, len(setTypes))
	for i, t := range setTypes {
		out[t.name] = uint8(i)
	}
	return out
}()

// packedMembers are those with an address or two, and without a network.
var packedMembers = delta.Packing[memberKey]{
	Pack: func(k memberKey) (delta.Small, bool) {
		e := k.Entry
		set, known := packedSets[k.Set]
		if !known || !e.Addr.Is4() || e.Addr2.IsValid() && !e.Addr2.Is4() || e.Net != (netip.Prefix{}) || e.NoMatch {
			return delta.Small{}, false
		}
		var p packing
		p.put(0, e.Addr)
		p.putPort(atPort, e.Port)
		p[atProtocol], p[atSet] = e.Protocol, set
		if e.Addr2.IsValid() {
			p.put(atAddr2, e.Addr2)
			p[atTwo] = 1
		}
		return delta.Small(p), true
	},
	Unpack: func(s delta.Small) memberKey {
		p := packing(s)
		e := ipset.Entry{Addr: p.addr(0), Protocol: p[atProtocol], Port: p.port(atPort)}
		if p[atTwo] == 1 {
			e.Addr2 = p.addr(atAddr2)
		}
		return memberKey{setTypes[p[atSet]].name, e}
	},
}
