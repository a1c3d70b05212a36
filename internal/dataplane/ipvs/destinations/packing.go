package destinations

import (
	"encoding/binary"
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
)

// Destinations and entries are nearly all rows of the mode, one or more for each endpoint. Keys of
// IPv4 are kept in 16 bytes that the garbage collector need not follow.

// The layout of a destination: the server's address, port and protocol, then address and port.
const (
	atPort     = 4
	atProtocol = 6
	atAddr2    = 7
	atPort2    = 11
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

var packedDestinations = delta.KeyCodec[vserver.DestinationKey]{
	Pack: func(k vserver.DestinationKey) (delta.PackedKey, bool) {
		if !k.Server.Addr.Is4() || !k.Addr.Is4() {
			return delta.PackedKey{}, false
		}
		var p packing
		p.put(0, k.Server.Addr)
		p.putPort(atPort, k.Server.Port)
		p[atProtocol] = uint8(k.Server.Protocol)
		p.put(atAddr2, k.Addr)
		p.putPort(atPort2, k.Port)
		return delta.PackedKey(p), true
	},
	Unpack: func(s delta.PackedKey) vserver.DestinationKey {
		p := packing(s)
		server := vserver.ServerKey{Addr: p.addr(0), Port: p.port(atPort), Protocol: netkey.Protocol(p[atProtocol])}
		return vserver.DestinationKey{Server: server, Addr: p.addr(atAddr2), Port: p.port(atPort2)}
	},
}
