package ipset

import (
	"errors"
	"net/netip"
	"reflect"
	"testing"

	"github.com/vishvananda/netlink/nl"
)

// samples is one entry of each type and family.
func samples() map[Type][]Entry {
	a4, a6 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
	return map[Type][]Entry{
		HashIP:        {IP(a4), IP(a6)},
		HashIPPort:    {IPPort(a4, TCP, 80), IPPort(a6, SCTP, 65535)},
		HashIPPortIP:  {IPPortIP(a4, TCP, 80, a4), IPPortIP(a6, UDP, 53, a6)},
		HashIPPortNet: {IPPortNet(a4, TCP, 80, netip.PrefixFrom(a4, 9)), IPPortNet(a6, TCP, 1, netip.PrefixFrom(a6, 128))},
		BitmapPort:    {Port(0), Port(30080)},
	}
}

func TestEntriesSurviveTheWire(t *testing.T) {
	for typ, entries := range samples() {
		t.Run(string(typ), func(t *testing.T) {
			var m message
			for i, e := range entries {
				m.entry(e, uint32(i))
			}
			got, err := decodeEntries(nil, typ, m.b)
			if err != nil || !reflect.DeepEqual(got, entries) {
				t.Errorf("decoded %v, %v, want %v", got, err, entries)
			}
		})
	}
}

// An element of the longest kind must fit maxElements times into what one
// attribute holds and one read takes back.
func TestLongestBatchFits(t *testing.T) {
	var m message
	e := IPPortNet(netip.MustParseAddr("fd00::1"), TCP, 80, netip.MustParsePrefix("fd00::/8"))
	e.NoMatch = true
	m.entry(e, 1)
	if size := len(m.b)*maxElements + headerLen + 256; size > min(1<<16, replySize) {
		t.Errorf("a batch can take %d bytes", size)
	}
}

func TestDecodeRefusesBrokenReplies(t *testing.T) {
	var named message
	named.str(nl.IPSET_ATTR_SETNAME, "a")
	for _, tt := range []struct {
		name string
		b    []byte
	}{
		{"empty", nil},
		{"no name", []byte{5, 0, 1, 0, 6, 0, 0, 0}},
		{"length 0", []byte{0, 0, 1, 0}},
		{"length beyond the end", []byte{9, 0, 2, 0, 'a'}},
		{"broken after the name", append(named.b[:len(named.b):len(named.b)], 3, 0, 0, 0)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if p, err := decodePart(tt.b); !errors.Is(err, errMalformed) {
				t.Errorf("decodePart = %+v, %v", p, err)
			}
		})
	}
}

func TestDecodeRefusesElementWithoutAddress(t *testing.T) {
	var m message
	m.entry(Port(80), 0)
	if got, err := decodeEntries(nil, HashIPPort, m.b); !errors.Is(err, errMalformed) {
		t.Errorf("decoded %v, %v", got, err)
	}
}

func TestMergeRefusesMixedLists(t *testing.T) {
	head := part{name: "a", header: true, info: Info{Set: Set{Name: "a", Type: HashIP}}}
	for name, parts := range map[string][]part{
		"nothing":     nil,
		"no header":   {{name: "a"}},
		"another set": {head, {name: "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, entries, err := merge("a", parts); !errors.Is(err, errMalformed) || entries != nil {
				t.Errorf("merge = %v, %v", entries, err)
			}
		})
	}
}

// FuzzDecode feeds arbitrary bytes to everything that reads replies.
func FuzzDecode(f *testing.F) {
	var m message
	m.begin(nl.IPSET_CMD_CREATE, 0, 1)
	m.create(Set{Name: "a", Type: HashIP, Family: IPv4}.WithDefaults(), 4)
	f.Add(m.b[headerLen:])
	for _, entries := range samples() {
		var list message
		list.str(nl.IPSET_ATTR_SETNAME, "a")
		list.str(nl.IPSET_ATTR_TYPENAME, string(HashIPPort))
		at := list.nest(nl.IPSET_ATTR_ADT)
		for _, e := range entries {
			list.entry(e, 7)
		}
		list.unnest(at)
		f.Add(list.b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		refusedLine(b)
		var d dumper
		_, _ = d.take(reply{typ: 1, body: b})
		_, _ = d.take(reply{typ: 3, body: b})
		p, err := decodePart(b)
		if err != nil {
			return
		}
		for _, typ := range Types() {
			entries, err := decodeEntries(nil, typ, p.members)
			for _, e := range entries {
				if err == nil && typ.Hash() && !e.Addr.IsValid() {
					t.Errorf("%s entry without address: %#v", typ, e)
				}
				_ = e.String()
			}
		}
	})
}
