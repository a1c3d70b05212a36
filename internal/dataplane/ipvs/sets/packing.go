package sets

import (
	"encoding/binary"
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// Entries and destinations are nearly all rows of a mode, one or more for each endpoint. Keys of
// IPv4 are kept in 16 bytes that the garbage collector need not follow.

// The layout of an entry: address, port and protocol, the second address, whether it has one,
// and the set.
const (
	atPort     = 4
	atProtocol = 6
	atAddr2    = 7
	hasAddr2   = 11
	atSet      = 12
)

// packing writes and reads the parts of a small key.
type packing delta.PackedKey

func (p *packing) put(at int, a netip.Addr) {
	four := a.As4()
	copy(p[at:], four[:])
}

func (p *packing) addr(at int) netip.Addr { return netip.AddrFrom4([4]byte(p[at:])) }

func (p *packing) putPort(at int, port uint16) { binary.BigEndian.PutUint16(p[at:], port) }

func (p *packing) port(at int) uint16 { return binary.BigEndian.Uint16(p[at:]) }

// packedSets numbers the sets of IPv4 by their place in setTypes.
var packedSets = func() map[string]uint8 {
	out := make(map[string]uint8, len(setTypes))
	for i, t := range setTypes {
		out[t.name] = uint8(i)
	}
	return out
}()

// packedMembers packs entries with one address or two, and without a network.
var packedMembers = delta.KeyCodec[Key]{
	Pack: func(k Key) (delta.PackedKey, bool) {
		e := k.Entry
		set, known := packedSets[k.Set]
		if !known || !e.Addr.Is4() || e.Addr2.IsValid() && !e.Addr2.Is4() || e.Net != (netip.Prefix{}) || e.NoMatch {
			return delta.PackedKey{}, false
		}
		var p packing
		p.put(0, e.Addr)
		p.putPort(atPort, e.Port)
		p[atProtocol], p[atSet] = e.Protocol, set
		if e.Addr2.IsValid() {
			p.put(atAddr2, e.Addr2)
			p[hasAddr2] = 1
		}
		return delta.PackedKey(p), true
	},
	Unpack: func(s delta.PackedKey) Key {
		p := packing(s)
		e := ipset.Entry{Addr: p.addr(0), Protocol: p[atProtocol], Port: p.port(atPort)}
		if p[hasAddr2] == 1 {
			e.Addr2 = p.addr(atAddr2)
		}
		return Key{setTypes[p[atSet]].name, e}
	},
}
