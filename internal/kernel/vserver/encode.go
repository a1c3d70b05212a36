package vserver

import (
	"encoding/binary"
	"net/netip"
)

// Netlink and generic netlink numbers (include/uapi/linux/netlink.h,
// genetlink.h). They are spelled out so that the codec builds on every OS.
const (
	nlHeaderLen   = 16
	genlHeaderLen = 4
	attrHeaderLen = 4

	nlError   = 2 // message types
	nlDone    = 3
	nlCtrl    = 0x10 // the "nlctrl" family, which names the others
	nlRequest = 0x1  // message flags
	nlAck     = 0x4
	nlDump    = 0x300
	nlIntr    = 0x10  // answer: the dump met a change
	nlCapped  = 0x100 // answer: the request is not echoed
	nlTLVs    = 0x200 // answer: attributes follow

	ctrlGetFamily  = 3
	ctrlFamilyID   = 1
	ctrlFamilyName = 2
	extAckText     = 1

	familyName = "IPVS"
	afInet     = 2
	afInet6    = 10
)

// IPVS commands and attributes (include/uapi/linux/ip_vs.h).
const (
	cmdNewServer      = 1
	cmdSetServer      = 2
	cmdDelServer      = 3
	cmdGetServer      = 4
	cmdNewDestination = 5
	cmdSetDestination = 6
	cmdDelDestination = 7
	cmdGetDestination = 8
	cmdSetConfig      = 12
	cmdGetConfig      = 13

	attrServer      = 1
	attrDestination = 2
	attrTimeoutTCP  = 4
	attrTimeoutFin  = 5
	attrTimeoutUDP  = 6

	serverFamily    = 1
	serverProtocol  = 2
	serverAddr      = 3
	serverPort      = 4
	serverMark      = 5
	serverScheduler = 6
	serverFlags     = 7
	serverTimeout   = 8
	serverNetmask   = 9
	serverStats     = 10
	serverEngine    = 11
	serverStats64   = 12

	destAddr    = 1
	destPort    = 2
	destForward = 3
	destWeight  = 4
	destUpper   = 5
	destLower   = 6
	destActive  = 7
	destInact   = 8
	destStats   = 10
	destFamily  = 11
	destStats64 = 12
	destTunnel  = 13
	destTunPort = 14
	destTunFlag = 15

	statConnections = 1 // inside either kind of statistics
	statPacketsIn   = 2
	statPacketsOut  = 3
	statBytesIn     = 4
	statBytesOut    = 5
)

// maxName is the longest scheduler or engine name, IP_VS_SCHEDNAME_MAXLEN less
// the terminating zero.
const maxName = 15

// native is the byte order of everything but ports and addresses.
var native = binary.NativeEndian

// buffer grows by whole netlink messages.
type buffer []byte

// begin opens a message and returns the mark that end needs.
func (b *buffer) begin(family, flags uint16, seq uint32, cmd uint8) int {
	mark := len(*b)
	*b = native.AppendUint32(*b, 0) // length, filled in by end
	*b = native.AppendUint16(*b, family)
	*b = native.AppendUint16(*b, flags)
	*b = native.AppendUint32(*b, seq)
	*b = native.AppendUint32(*b, 0) // sender: the kernel fills it in
	*b = append(*b, cmd, 1, 0, 0)
	return mark
}

func (b *buffer) end(mark int) {
	native.PutUint32((*b)[mark:], uint32(len(*b)-mark))
}

// setFlag adds a flag to the message that begins at mark.
func (b *buffer) setFlag(mark int, flag uint16) {
	at := (*b)[mark+6:]
	native.PutUint16(at, native.Uint16(at)|flag)
}

func (b *buffer) nest(kind uint16) int {
	mark := len(*b)
	*b = native.AppendUint16(*b, 0)
	*b = native.AppendUint16(*b, kind)
	return mark
}

func (b *buffer) unnest(mark int) {
	native.PutUint16((*b)[mark:], uint16(len(*b)-mark))
	for len(*b)%4 != 0 {
		*b = append(*b, 0)
	}
}

func (b *buffer) u8(kind uint16, value uint8) {
	mark := b.nest(kind)
	*b = append(*b, value)
	b.unnest(mark)
}

func (b *buffer) u16(kind, value uint16) {
	mark := b.nest(kind)
	*b = native.AppendUint16(*b, value)
	b.unnest(mark)
}

func (b *buffer) u32(kind uint16, value uint32) {
	mark := b.nest(kind)
	*b = native.AppendUint32(*b, value)
	b.unnest(mark)
}

func (b *buffer) port(kind, value uint16) {
	mark := b.nest(kind)
	*b = binary.BigEndian.AppendUint16(*b, value)
	b.unnest(mark)
}

func (b *buffer) name(kind uint16, value string) {
	mark := b.nest(kind)
	*b = append(*b, value...)
	*b = append(*b, 0)
	b.unnest(mark)
}

// addr always takes 16 bytes, as union nf_inet_addr: IPv4 comes first and is
// followed by zeros, which is what the kernel compares.
func (b *buffer) addr(kind uint16, a netip.Addr) {
	var raw [16]byte
	if a.Is4() {
		four := a.As4()
		copy(raw[:], four[:])
	} else {
		raw = a.As16()
	}
	mark := b.nest(kind)
	*b = append(*b, raw[:]...)
	b.unnest(mark)
}

func addrFamily(a netip.Addr) uint16 {
	if a.Is4() {
		return afInet
	}
	return afInet6
}

// serverKey writes the members that identify a server, inside its attribute.
func (b *buffer) serverKey(k ServerKey) {
	b.u16(serverFamily, addrFamily(k.Addr))
	b.u16(serverProtocol, uint16(k.Protocol))
	b.addr(serverAddr, k.Addr)
	b.port(serverPort, k.Port)
}

// serverValue writes the rest; the kernel demands all of scheduler, flags,
// time-out and netmask for an add and an edit.
func (b *buffer) serverValue(k ServerKey, s Server) {
	b.name(serverScheduler, s.Scheduler)
	if s.Engine != "" {
		b.name(serverEngine, s.Engine)
	}
	mark := b.nest(serverFlags)
	*b = native.AppendUint32(*b, s.Flags&^flagHashed)
	*b = native.AppendUint32(*b, ^uint32(0)) // mask: these are all the flags
	b.unnest(mark)
	b.u32(serverTimeout, s.Timeout)
	b.netmask(k, s)
}

// netmask is a mask in network order for IPv4 and a prefix length for IPv6.
func (b *buffer) netmask(k ServerKey, s Server) {
	mark := b.nest(serverNetmask)
	if k.Addr.Is4() {
		*b = binary.BigEndian.AppendUint32(*b, ^uint32(0)<<s.HostBits)
	} else {
		*b = native.AppendUint32(*b, 128-uint32(s.HostBits))
	}
	b.unnest(mark)
}

func (b *buffer) destinationKey(k DestinationKey) {
	b.addr(destAddr, k.Addr)
	b.port(destPort, k.Port)
	b.u16(destFamily, addrFamily(k.Addr))
}

func (b *buffer) destinationValue(d Destination) {
	b.u32(destForward, uint32(d.Forward))
	b.u32(destWeight, uint32(d.Weight))
	b.u32(destUpper, d.Upper)
	b.u32(destLower, d.Lower)
	if d.Tunnel == TunnelIPIP {
		return // the kernel's default for a missing attribute (ip_vs_genl_parse_dest), or the only value
	}
	b.u8(destTunnel, d.Tunnel)
	b.port(destTunPort, d.TunnelPort)
	b.u16(destTunFlag, d.TunnelFlags)
}

// server writes the attribute that names a server and nothing else of it.
func (b *buffer) server(k ServerKey) {
	mark := b.nest(attrServer)
	b.serverKey(k)
	b.unnest(mark)
}
