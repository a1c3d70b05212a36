package ipset

import (
	"encoding/binary"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Numbers of include/uapi/linux/netfilter/ipset/ip_set.h that nl lacks.
const (
	attrInitval    = nl.IPSET_ATTR_CADT_MAX + 1
	attrBucketsize = nl.IPSET_ATTR_NETMASK + 1
	attrBitmask    = nl.IPSET_ATTR_MEMSIZE + 1
	flagListHeader = 1 << 2
)

// headerLen is struct nlmsghdr followed by struct nfgenmsg.
const headerLen = unix.SizeofNlMsghdr + 4

// message builds netlink messages by appending. A tree of attribute objects,
// as nl builds it, costs more than the kernel's own work on an entry.
type message struct {
	b     []byte
	start int // start of the current message
}

// begin starts a message of the ipset subsystem. Its length is set by end.
func (m *message) begin(cmd uint16, flags uint16, seq uint32) {
	m.start = len(m.b)
	m.b = binary.NativeEndian.AppendUint32(m.b, 0)
	m.b = binary.NativeEndian.AppendUint16(m.b, unix.NFNL_SUBSYS_IPSET<<8|cmd)
	m.b = binary.NativeEndian.AppendUint16(m.b, unix.NLM_F_REQUEST|flags)
	m.b = binary.NativeEndian.AppendUint32(m.b, seq)
	m.b = append(m.b, 0, 0, 0, 0)                            // port id: the kernel fills it in
	m.b = append(m.b, unix.AF_INET, unix.NFNETLINK_V0, 0, 0) // nfgenmsg; ipset ignores its family
	m.u8(nl.IPSET_ATTR_PROTOCOL, nl.IPSET_PROTOCOL)          // 6 is spoken by every kernel since 2.6.39
}

// end writes the length of the current message.
func (m *message) end() {
	binary.NativeEndian.PutUint32(m.b[m.start:], uint32(len(m.b)-m.start))
}

// attr appends the head of an attribute with n bytes of payload.
func (m *message) attr(typ, n int) {
	m.b = binary.NativeEndian.AppendUint16(m.b, uint16(4+n))
	m.b = binary.NativeEndian.AppendUint16(m.b, uint16(typ))
}

// pad aligns to four bytes after a payload of n bytes.
func (m *message) pad(n int) {
	m.b = append(m.b, "\x00\x00\x00"[:-n&3]...)
}

func (m *message) u8(typ int, v uint8) {
	m.attr(typ, 1)
	m.b = append(m.b, v, 0, 0, 0)
}

// port appends a 16-bit number in network order; the kernel insists on the flag.
func (m *message) port(typ int, v uint16) {
	m.attr(typ|int(nl.NLA_F_NET_BYTEORDER), 2)
	m.b = binary.BigEndian.AppendUint16(m.b, v)
	m.b = append(m.b, 0, 0)
}

// net32 appends a 32-bit number in network order.
func (m *message) net32(typ int, v uint32) {
	m.attr(typ|int(nl.NLA_F_NET_BYTEORDER), 4)
	m.b = binary.BigEndian.AppendUint32(m.b, v)
}

// lineno appends the number by which the kernel names a refused element. Both
// sides only copy it, in host order.
func (m *message) lineno(v uint32) {
	m.attr(nl.IPSET_ATTR_LINENO, 4)
	m.b = binary.NativeEndian.AppendUint32(m.b, v)
}

func (m *message) str(typ int, s string) {
	m.attr(typ, len(s)+1)
	m.b = append(append(m.b, s...), 0)
	m.pad(len(s) + 1)
}

// nest opens a nested attribute and returns what unnest needs to close it.
func (m *message) nest(typ int) int {
	at := len(m.b)
	m.attr(typ|int(nl.NLA_F_NESTED), 0)
	return at
}

func (m *message) unnest(at int) {
	binary.NativeEndian.PutUint16(m.b[at:], uint16(len(m.b)-at))
}

// addr appends an address, nested by family.
func (m *message) addr(typ int, a netip.Addr) {
	at := m.nest(typ)
	if a.Is4() {
		ip := a.As4()
		m.attr(nl.IPSET_ATTR_IPADDR_IPV4|int(nl.NLA_F_NET_BYTEORDER), len(ip))
		m.b = append(m.b, ip[:]...)
	} else {
		ip := a.As16()
		m.attr(nl.IPSET_ATTR_IPADDR_IPV6|int(nl.NLA_F_NET_BYTEORDER), len(ip))
		m.b = append(m.b, ip[:]...)
	}
	m.unnest(at)
}

// entry appends one element. Fields that are not set are left out, so the set's
// type need not be known here. line 0 means no line number.
func (m *message) entry(e Entry, line uint32) {
	at := m.nest(nl.IPSET_ATTR_DATA)
	if e.Addr.IsValid() {
		m.addr(nl.IPSET_ATTR_IP, e.Addr)
	}
	if e.Protocol != 0 || !e.Addr.IsValid() {
		m.port(nl.IPSET_ATTR_PORT, e.Port)
	}
	if e.Protocol != 0 {
		m.u8(nl.IPSET_ATTR_PROTO, e.Protocol)
	}
	if e.Addr2.IsValid() {
		m.addr(nl.IPSET_ATTR_IP2, e.Addr2)
	}
	if e.Net.IsValid() {
		m.addr(nl.IPSET_ATTR_IP2, e.Net.Addr())
		m.u8(nl.IPSET_ATTR_CIDR2, uint8(e.Net.Bits()))
	}
	if e.NoMatch {
		m.net32(nl.IPSET_ATTR_CADT_FLAGS, nl.IPSET_FLAG_NOMATCH)
	}
	if line != 0 {
		m.lineno(line)
	}
	m.unnest(at)
}

// create appends the body of a create request.
func (m *message) create(s Set, revision uint8) {
	m.str(nl.IPSET_ATTR_SETNAME, s.Name)
	m.str(nl.IPSET_ATTR_TYPENAME, string(s.Type))
	m.u8(nl.IPSET_ATTR_REVISION, revision)
	m.u8(nl.IPSET_ATTR_FAMILY, uint8(s.Family))
	at := m.nest(nl.IPSET_ATTR_DATA)
	if s.Type == BitmapPort {
		m.port(nl.IPSET_ATTR_PORT_FROM, s.PortFrom)
		m.port(nl.IPSET_ATTR_PORT_TO, s.PortTo)
	} else {
		m.net32(nl.IPSET_ATTR_HASHSIZE, s.HashSize)
		m.net32(nl.IPSET_ATTR_MAXELEM, s.MaxElem)
	}
	if s.Timeout != 0 {
		m.net32(nl.IPSET_ATTR_TIMEOUT, s.Timeout)
	}
	m.unnest(at)
}
