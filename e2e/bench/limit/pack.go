package main

import (
	"encoding/binary"
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// Netlink numbers (include/uapi/linux: netlink.h, genetlink.h, ip_vs.h, netfilter/nfnetlink.h, netfilter/ipset/ip_set.h, rtnetlink.h,
// if_addr.h), spelled out so that the packing builds everywhere.
const (
	headerLen = 16 // struct nlmsghdr
	flagsAt   = 6  // nlmsg_flags in it
	seqAt     = 8  // nlmsg_seq in it
	ackType   = 2  // NLMSG_ERROR: a refusal, or with errno 0 what was asked for by flagAck

	flagRequest = 0x1
	flagAck     = 0x4
	flagExcl    = 0x200
	flagCreate  = 0x400

	nested   = 0x8000 // in an attribute's type
	netOrder = 0x4000

	newAddress  = 20 // RTM_NEWADDR
	addrAddress = 1  // IFA_*
	addrLocal   = 2
	addrFlags   = 8
	noDAD       = 0x2 // IFA_F_NODAD

	familyIPv4 uint8 = 2
	familyIPv6 uint8 = 10
)

// IPVS_CMD_*, IPVS_CMD_ATTR_*, IPVS_SVC_ATTR_* and IPVS_DEST_ATTR_*.
const (
	newServer      = 1
	newDestination = 5
	flushServers   = 17

	attrServer      = 1
	attrDestination = 2

	serverFamily    = 1
	serverProtocol  = 2
	serverAddr      = 3
	serverPort      = 4
	serverScheduler = 6
	serverFlags     = 7
	serverTimeout   = 8
	serverNetmask   = 9
	serverEngine    = 11

	destAddr    = 1
	destPort    = 2
	destForward = 3
	destWeight  = 4
	destUpper   = 5
	destLower   = 6
	destFamily  = 11
)

// IPSET_CMD_* with their subsystem, and IPSET_ATTR_* of a message, of a set's header and of an entry.
const (
	setCreate = 6<<8 | 2
	setAdd    = 6<<8 | 9

	setProtocol = 1
	setName     = 2
	setType     = 3
	setRevision = 4
	setFamily   = 5
	setData     = 7 | nested
	setEntries  = 8 | nested
	setLine     = 9

	headerPortFrom = 4 | netOrder
	headerPortTo   = 5 | netOrder
	headerHashSize = 18 | netOrder
	headerMaxElem  = 19 | netOrder

	entryAddr     = 1 | nested
	entryPort     = 4 | netOrder
	entryProtocol = 7
	entryFlags    = 8 | netOrder
	entryAddr2    = 20 | nested
	entryBits2    = 21
	ofIPv4        = 1 | netOrder // in an address
	ofIPv6        = 2 | netOrder
	noMatch       = 1 << 2
)

var native = binary.NativeEndian

// parcel is netlink messages, one behind the other.
type parcel struct {
	bytes  []byte
	starts []int // where each message begins
}

// begin starts a message; what follows belongs to it until the next begin. Its length and number are written by cut.
func (p *parcel) begin(kind, flags uint16) {
	p.starts = append(p.starts, len(p.bytes))
	p.bytes = native.AppendUint32(p.bytes, 0)
	p.bytes = native.AppendUint16(p.bytes, kind)
	p.bytes = native.AppendUint16(p.bytes, flagRequest|flags)
	p.bytes = append(p.bytes, 0, 0, 0, 0, 0, 0, 0, 0)
}

// attr appends an attribute with a payload.
func (p *parcel) attr(kind uint16, payload ...byte) {
	p.bytes = native.AppendUint16(p.bytes, uint16(4+len(payload)))
	p.bytes = native.AppendUint16(p.bytes, kind)
	p.bytes = append(p.bytes, payload...)
	p.bytes = append(p.bytes, "\x00\x00\x00"[:-len(payload)&3]...)
}

func (p *parcel) attr16(kind, v uint16) {
	var b [2]byte
	native.PutUint16(b[:], v)
	p.attr(kind, b[:]...)
}

func (p *parcel) attr32(kind uint16, v uint32) {
	var b [4]byte
	native.PutUint32(b[:], v)
	p.attr(kind, b[:]...)
}

// net16 and net32 are numbers in network order.
func (p *parcel) net16(kind, v uint16) { p.attr(kind, byte(v>>8), byte(v)) }

func (p *parcel) net32(kind uint16, v uint32) {
	p.attr(kind, byte(v>>24), byte(v>>16), byte(v>>8), byte(v))
}

// text is a string with its zero.
func (p *parcel) text(kind uint16, s string) {
	var b [64]byte
	p.attr(kind, b[:copy(b[:len(b)-1], s)+1]...)
}

// nest opens an attribute made of attributes; unnest closes it.
func (p *parcel) nest(kind uint16) (mark int) {
	mark = len(p.bytes)
	p.attr(kind)
	return mark
}

func (p *parcel) unnest(mark int) { native.PutUint16(p.bytes[mark:], uint16(len(p.bytes)-mark)) }

// send is a part of a parcel that goes to the kernel at once.
type send struct {
	bytes    []byte
	messages int
	last     uint32 // the number of its last message, which asks for an answer
}

// maxSend bounds a send in bytes; the kernel refuses one that is longer than the send buffer.
const maxSend = 128 << 10

// cut finishes the messages and divides them into sends of so many messages at most.
func (p *parcel) cut(perSend int) []send {
	var sends []send
	first := 0
	for i, start := range p.starts {
		native.PutUint32(p.bytes[start:], uint32(p.end(i)-start))
		native.PutUint32(p.bytes[start+seqAt:], uint32(i+1))
		last := i+1 == len(p.starts)
		if !last && i+1-first < perSend && p.end(i+1)-p.starts[first] <= maxSend {
			continue
		}
		flags := p.bytes[start+flagsAt:]
		native.PutUint16(flags, native.Uint16(flags)|flagAck)
		sends = append(sends, send{p.bytes[p.starts[first]:p.end(i)], i + 1 - first, uint32(i + 1)})
		first = i + 1
	}
	return sends
}

// end is where a message ends.
func (p *parcel) end(i int) int {
	if i+1 < len(p.starts) {
		return p.starts[i+1]
	}
	return len(p.bytes)
}

// packServers packs virtual servers, each followed by its destinations.
func packServers(family uint16, servers []serverRow) *parcel {
	p := &parcel{}
	for _, s := range servers {
		p.genl(family, newServer)
		p.server(s, true)
		for _, d := range s.Destinations {
			p.genl(family, newDestination)
			p.server(s, false)
			p.destination(d)
		}
	}
	return p
}

func (p *parcel) genl(family uint16, command uint8) {
	p.begin(family, 0)
	p.bytes = append(p.bytes, command, 1, 0, 0)
}

// server is the key of a virtual server, and the rest of it where it is made.
func (p *parcel) server(s serverRow, whole bool) {
	at := p.nest(attrServer)
	p.attr16(serverFamily, uint16(familyOf(s.Key.Addr)))
	p.attr16(serverProtocol, uint16(s.Key.Protocol))
	p.inetAddr(serverAddr, s.Key.Addr)
	p.net16(serverPort, s.Key.Port)
	if whole {
		p.text(serverScheduler, s.Server.Scheduler)
		if s.Server.Engine != "" {
			p.text(serverEngine, s.Server.Engine)
		}
		var flags [8]byte // the flags, and a mask of those that are meant
		native.PutUint32(flags[:], s.Server.Flags)
		native.PutUint32(flags[4:], ^uint32(0))
		p.attr(serverFlags, flags[:]...)
		p.attr32(serverTimeout, s.Server.Timeout)
		if s.Key.Addr.Is4() {
			p.net32(serverNetmask, ^uint32(0)<<s.Server.HostBits)
		} else {
			p.attr32(serverNetmask, 128-uint32(s.Server.HostBits))
		}
	}
	p.unnest(at)
}

func (p *parcel) destination(d destinationRow) {
	at := p.nest(attrDestination)
	p.inetAddr(destAddr, d.Addr.Addr())
	p.net16(destPort, d.Addr.Port())
	p.attr16(destFamily, uint16(familyOf(d.Addr.Addr())))
	p.attr32(destForward, uint32(d.Destination.Forward))
	p.attr32(destWeight, uint32(d.Destination.Weight))
	p.attr32(destUpper, d.Destination.Upper)
	p.attr32(destLower, d.Destination.Lower)
	p.unnest(at)
}

// inetAddr is a union nf_inet_addr: 16 bytes, and IPv4 has the first four.
func (p *parcel) inetAddr(kind uint16, a netip.Addr) {
	var b [16]byte
	copy(b[:], a.AsSlice())
	p.attr(kind, b[:]...)
}

func familyOf(a netip.Addr) uint8 {
	if a.Is4() {
		return familyIPv4
	}
	return familyIPv6
}

// maxEntries of the longest kind fit into one attribute, which is shorter than 64 KiB.
const maxEntries = 512

// packSets packs sets and then their entries, hundreds to a message. The revision of each set's type is the caller's to find out.
func packSets(sets []setRow, revisions []uint8) *parcel {
	p := &parcel{}
	for i, s := range sets {
		p.set(setCreate, flagCreate|flagExcl, s.Set.Name)
		p.header(s.Set, revisions[i])
	}
	for _, s := range sets {
		for first := 0; first < len(s.Entries); first += maxEntries {
			p.set(setAdd, 0, s.Set.Name)
			p.attr32(setLine, 0) // the kernel wants room for the line of an element it refuses
			at := p.nest(setEntries)
			for _, e := range s.Entries[first:min(first+maxEntries, len(s.Entries))] {
				p.entry(e)
			}
			p.unnest(at)
		}
	}
	return p
}

// set begins a message about a set.
func (p *parcel) set(command, flags uint16, name string) {
	p.begin(command, flags)
	p.bytes = append(p.bytes, familyIPv4, 0, 0, 0) // struct nfgenmsg; ipset does not read the family
	p.attr(setProtocol, 6)                         // the protocol's version
	p.text(setName, name)
}

func (p *parcel) header(s ipset.Set, revision uint8) {
	p.text(setType, string(s.Type))
	p.attr(setRevision, revision)
	p.attr(setFamily, uint8(s.Family))
	at := p.nest(setData)
	if s.Type == ipset.BitmapPort {
		p.net16(headerPortFrom, s.PortFrom)
		p.net16(headerPortTo, s.PortTo)
	} else {
		p.net32(headerHashSize, s.HashSize)
		p.net32(headerMaxElem, s.MaxElem)
	}
	p.unnest(at)
}

// entry has the fields that its type has.
func (p *parcel) entry(e ipset.Entry) {
	at := p.nest(setData)
	if e.Addr.IsValid() {
		p.setAddr(entryAddr, e.Addr)
	}
	if e.Protocol != 0 || !e.Addr.IsValid() {
		p.net16(entryPort, e.Port)
	}
	if e.Protocol != 0 {
		p.attr(entryProtocol, e.Protocol)
	}
	if e.Addr2.IsValid() {
		p.setAddr(entryAddr2, e.Addr2)
	}
	if e.Net.IsValid() {
		p.setAddr(entryAddr2, e.Net.Addr())
		p.attr(entryBits2, uint8(e.Net.Bits()))
	}
	if e.NoMatch {
		p.net32(entryFlags, noMatch)
	}
	p.unnest(at)
}

func (p *parcel) setAddr(kind uint16, a netip.Addr) {
	at := p.nest(kind)
	if a.Is4() {
		p.attr(ofIPv4, a.AsSlice()...)
	} else {
		p.attr(ofIPv6, a.AsSlice()...)
	}
	p.unnest(at)
}

// packAddresses packs host addresses of one link.
func packAddresses(link uint32, addrs []netip.Addr) *parcel {
	p := &parcel{}
	for _, a := range addrs {
		p.begin(newAddress, flagCreate|flagExcl)
		p.bytes = append(p.bytes, familyOf(a), uint8(a.BitLen()), 0, 0) // struct ifaddrmsg
		p.bytes = native.AppendUint32(p.bytes, link)
		raw := a.AsSlice()
		p.attr(addrLocal, raw...)
		p.attr(addrAddress, raw...)
		if a.Is6() {
			p.attr32(addrFlags, noDAD) // on a link that is down it would be tentative for ever
		}
	}
	return p
}
