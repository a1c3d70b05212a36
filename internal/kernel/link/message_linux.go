package link

import (
	"net/netip"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// skipStatistics keeps counters out of link messages (RTEXT_FILTER_SKIP_STATS).
const skipStatistics = 1 << 3

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

// noLinkLocal sets addrgenmode none: should anybody set the link up, no fe80::
// address appears on it. The kernel ignores it in the message that creates.
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

// dumpAddrs asks for the addresses of all links. A dump that the kernel filters by
// link (strict checking, 4.20) would be shorter, but the kernel does not mark it
// when addresses change meanwhile: rows are missing from it and nothing says so
// (seen on 6.18, for both families).
func dumpAddrs() *nl.NetlinkRequest {
	return request(unix.RTM_GETADDR, unix.NLM_F_DUMP, nl.NewIfAddrmsg(unix.AF_UNSPEC))
}

// changeAddr binds or unbinds a host address on a link.
func changeAddr(c Change, index uint32) *nl.NetlinkRequest {
	kind, flags := unix.RTM_DELADDR, 0
	if c.Op == Add {
		kind, flags = unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL
	}
	family := unix.AF_INET
	if c.Addr.Is6() {
		family = unix.AF_INET6
	}
	info := nl.NewIfAddrmsg(family)
	info.Prefixlen, info.Index = uint8(c.Addr.BitLen()), index
	raw := c.Addr.AsSlice()
	r := request(kind, flags, info, nl.NewRtAttr(unix.IFA_LOCAL, raw), nl.NewRtAttr(unix.IFA_ADDRESS, raw))
	if c.Op == Add && c.Addr.Is6() {
		// Without it the address is tentative until duplicate detection has run,
		// and detection never runs on a link that is down.
		r.AddData(nl.NewRtAttr(unix.IFA_FLAGS, nl.Uint32Attr(unix.IFA_F_NODAD)))
	}
	return r
}

// parseAttrs reads attributes, and parseMessages a datagram. Both parsers go on behind the
// padding of what they have read, which after the last one need not be there.
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
