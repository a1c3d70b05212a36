package ipset

import (
	"fmt"
	"strings"

	"github.com/vishvananda/netlink/nl"
)

// decodeHeader reads what was decided at creation and the kernel's counts.
func decodeHeader(info *Info, b []byte) error {
	var opts options
	for a, err := range attrs(b) {
		if err != nil {
			return err
		}
		switch a.typ {
		case nl.IPSET_ATTR_HASHSIZE:
			info.Set.HashSize = a.net32()
		case nl.IPSET_ATTR_MAXELEM:
			info.Set.MaxElem = a.net32()
		case nl.IPSET_ATTR_TIMEOUT:
			if info.Set.Timeout = a.net32(); info.Set.Timeout == 0 { // entries may have one of their own
				opts.words = append(opts.words, "timeout 0")
			}
		case nl.IPSET_ATTR_PORT_FROM:
			info.Set.PortFrom = a.net16()
		case nl.IPSET_ATTR_PORT_TO:
			info.Set.PortTo = a.net16()
		case nl.IPSET_ATTR_ELEMENTS:
			info.Elements = a.net32()
		case nl.IPSET_ATTR_REFERENCES:
			info.References = a.net32()
		case nl.IPSET_ATTR_MEMSIZE:
			info.Memory = a.net32()
		default:
			opts.take(a)
		}
	}
	info.Set.Options = opts.String()
	return nil
}

// options collects create options this package does not set, in the order in
// which the tool prints them. Bucket size and initial hash value change
// neither content nor capacity and are left out.
type options struct {
	words []string
}

func (o *options) take(a attr) {
	switch a.typ {
	case nl.IPSET_ATTR_NETMASK:
		o.words = append(o.words, fmt.Sprintf("netmask %d", a.u8()))
	case nl.IPSET_ATTR_MARKMASK:
		o.words = append(o.words, fmt.Sprintf("markmask %#08x", a.net32()))
	case nl.IPSET_ATTR_CADT_FLAGS:
		o.flags(a.net32())
	case attrBitmask:
		o.words = append(o.words, "bitmask")
	}
}

func (o *options) flags(f uint32) {
	for _, w := range []struct {
		bit  uint32
		word string
	}{
		{nl.IPSET_FLAG_WITH_COUNTERS, "counters"},
		{nl.IPSET_FLAG_WITH_COMMENT, "comment"},
		{nl.IPSET_FLAG_WITH_FORCEADD, "forceadd"},
		{nl.IPSET_FLAG_WITH_SKBINFO, "skbinfo"},
	} {
		if f&w.bit != 0 {
			o.words = append(o.words, w.word)
		}
	}
}

func (o *options) String() string { return strings.Join(o.words, " ") }
