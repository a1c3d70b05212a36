package link

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// skipStatistics keeps counters out of link messages (RTEXT_FILTER_SKIP_STATS).
const skipStatistics = 1 << 3

// native is the byte order of all but addresses.
var native = binary.NativeEndian

// address is one address as the kernel reports it.
type address struct {
	index uint32
	addr  netip.Addr
	host  bool // its prefix covers this one address only
}

// device is one link as the kernel reports it. Links made by a driver have no kind.
type device struct {
	index uint32
	name  string
	kind  string
}

func request(kind int, flags int, parts ...nl.NetlinkRequestData) *nl.NetlinkRequest {
	r := &nl.NetlinkRequest{NlMsghdr: unix.NlMsghdr{Type: uint16(kind), Flags: uint16(flags)}}
	for _, p := range parts {
		r.AddData(p)
	}
	return r
}

func linkByName(name string) *nl.NetlinkRequest {
	return request(unix.RTM_GETLINK, 0, nl.NewIfInfomsg(unix.AF_UNSPEC),
		nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)),
		nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(skipStatistics)))
}

func linkByIndex(index uint32) *nl.NetlinkRequest {
	info := nl.NewIfInfomsg(unix.AF_UNSPEC)
	info.Index = int32(index)
	return request(unix.RTM_GETLINK, 0, info,
		nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(skipStatistics)))
}

// newLink creates a link that is down and asks no neighbour for anything.
func newLink(name, kind string) *nl.NetlinkRequest {
	info := nl.NewIfInfomsg(unix.AF_UNSPEC)
	info.Flags, info.Change = unix.IFF_NOARP, unix.IFF_NOARP
	linkInfo := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	linkInfo.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated(kind))
	return request(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, info,
		nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)), linkInfo)
}

// noLinkLocal sets addrgenmode none: if another program sets the link up, no fe80:: address appears
// on it. The kernel ignores it in the message that creates.
func noLinkLocal(name string) *nl.NetlinkRequest {
	spec := nl.NewRtAttr(unix.IFLA_AF_SPEC, nil)
	spec.AddRtAttr(unix.AF_INET6, nil).
		AddRtAttr(unix.IFLA_INET6_ADDR_GEN_MODE, nl.Uint8Attr(nl.IN6_ADDR_GEN_MODE_NONE))
	return request(unix.RTM_SETLINK, 0, nl.NewIfInfomsg(unix.AF_UNSPEC),
		nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)), spec)
}

func delLink(index uint32) *nl.NetlinkRequest {
	info := nl.NewIfInfomsg(unix.AF_UNSPEC)
	info.Index = int32(index)
	return request(unix.RTM_DELLINK, 0, info)
}

// dumpAddrs asks for the addresses of all links. A dump that the kernel filters by link (strict
// checking, 4.20) would be shorter. But the kernel does not mark it if addresses change meanwhile:
// rows are then missing without any sign (seen on 6.18, for both families).
func dumpAddrs() *nl.NetlinkRequest {
	return request(unix.RTM_GETADDR, unix.NLM_F_DUMP, nl.NewIfAddrmsg(unix.AF_UNSPEC))
}

// maxChange is the longest message about an address: both headers, a local and a plain
// address of IPv6, and flags.
const maxChange = unix.SizeofNlMsghdr + unix.SizeofIfAddrmsg + 2*(unix.SizeofRtAttr+16) + unix.SizeofRtAttr + 4

// appendChange packs a request to bind or to unbind a host address on a link. It makes
// the bytes itself: a tree of attribute objects costs more than the kernel's own work.
func appendChange(out []byte, c Change, index, seq uint32, flags uint16) []byte {
	kind, family := uint16(unix.RTM_DELADDR), uint8(unix.AF_INET)
	if c.Op == Add {
		kind, flags = unix.RTM_NEWADDR, flags|unix.NLM_F_CREATE|unix.NLM_F_EXCL
	}
	if c.Addr.Is6() {
		family = unix.AF_INET6
	}
	start := len(out)
	out = native.AppendUint32(out, 0) // the length, which is known at the end
	out = native.AppendUint16(out, kind)
	out = native.AppendUint16(out, flags)
	out = native.AppendUint32(out, seq)
	out = native.AppendUint32(out, 0)                       // sender: the kernel fills it in
	out = append(out, family, uint8(c.Addr.BitLen()), 0, 0) // struct ifaddrmsg, flags and scope 0
	out = native.AppendUint32(out, index)
	out = appendAddr(out, unix.IFA_LOCAL, c.Addr)
	out = appendAddr(out, unix.IFA_ADDRESS, c.Addr)
	if c.Op == Add && c.Addr.Is6() {
		// Without it the address is tentative until duplicate detection has run,
		// and detection never runs on a link that is down.
		out = appendAttr(out, unix.IFA_FLAGS, 4)
		out = native.AppendUint32(out, unix.IFA_F_NODAD)
	}
	native.PutUint32(out[start:], uint32(len(out)-start))
	return out
}

// appendAttr packs the head of an attribute with so many bytes, a multiple of four.
func appendAttr(out []byte, kind uint16, size int) []byte {
	out = native.AppendUint16(out, uint16(unix.SizeofRtAttr+size))
	return native.AppendUint16(out, kind)
}

func appendAddr(out []byte, kind uint16, a netip.Addr) []byte {
	out = appendAttr(out, kind, a.BitLen()/8)
	if a.Is4() {
		raw := a.As4()
		return append(out, raw[:]...)
	}
	raw := a.As16()
	return append(out, raw[:]...)
}

// parseAttrs reads attributes, and parseMessages a datagram. Both parsers continue after the
// padding of the previous item, which may be missing after the last one.
func parseAttrs(b []byte) ([]syscall.NetlinkRouteAttr, error) { return nl.ParseRouteAttr(padded(b)) }

func parseMessages(b []byte) ([]syscall.NetlinkMessage, error) {
	return syscall.ParseNetlinkMessage(padded(b))
}

// padded fills up to the alignment of netlink (NLMSG_ALIGNTO, RTA_ALIGNTO).
func padded(b []byte) []byte {
	if missing := -len(b) & (unix.NLMSG_ALIGNTO - 1); missing > 0 {
		return append(slices.Clip(b), make([]byte, missing)...)
	}
	return b
}

// parseAddr reads a new or deleted address; ok is false for other families.
func parseAddr(m syscall.NetlinkMessage) (a address, ok bool) {
	if len(m.Data) < unix.SizeofIfAddrmsg {
		return a, false
	}
	info := nl.DeserializeIfAddrmsg(m.Data)
	attrs, err := parseAttrs(m.Data[unix.SizeofIfAddrmsg:])
	if err != nil || (info.Family != unix.AF_INET && info.Family != unix.AF_INET6) {
		return a, false
	}
	var local, peer netip.Addr
	for _, attr := range attrs {
		switch attr.Attr.Type {
		case unix.IFA_LOCAL:
			local, _ = netip.AddrFromSlice(attr.Value)
		case unix.IFA_ADDRESS:
			peer, _ = netip.AddrFromSlice(attr.Value)
		}
	}
	// On a point-to-point link IFA_ADDRESS is the other end.
	if !local.IsValid() {
		local = peer
	}
	return address{info.Index, local, int(info.Prefixlen) == local.BitLen()}, local.IsValid()
}

// parseLink reads a new or deleted link. Bridges report their ports under a
// family of their own, "deleted" when a port leaves; those are not links.
func parseLink(m syscall.NetlinkMessage) (d device, ok bool) {
	if len(m.Data) < unix.SizeofIfInfomsg {
		return d, false
	}
	info := nl.DeserializeIfInfomsg(m.Data)
	attrs, err := parseAttrs(m.Data[unix.SizeofIfInfomsg:])
	if err != nil || info.Family != unix.AF_UNSPEC {
		return d, false
	}
	d.index = uint32(info.Index)
	for _, attr := range attrs {
		switch attr.Attr.Type {
		case unix.IFLA_IFNAME:
			d.name = unix.ByteSliceToString(attr.Value)
		case unix.IFLA_LINKINFO:
			d.kind = linkKind(attr.Value)
		}
	}
	return d, true
}

func linkKind(info []byte) string {
	attrs, _ := parseAttrs(info)
	for _, attr := range attrs {
		if attr.Attr.Type == nl.IFLA_INFO_KIND {
			return unix.ByteSliceToString(attr.Value)
		}
	}
	return ""
}
