package nft

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nfnetlink"
)

// Element is one element of a set or a map: a comparable, canonical value. The shape of the set tells
// which fields it has.
type Element struct {
	Addr     netip.Addr   // Addr, AddrPort, AddrPortAddr, AddrPortNet
	Protocol uint8        // AddrPort, AddrPortAddr, AddrPortNet, ProtocolPort
	Port     uint16       // all but Addr and Net
	Net      netip.Prefix // AddrPortAddr: one address; AddrPortNet and Net: masked

	Verdict Verdict        // of a map of Verdicts
	To      netip.AddrPort // of a map of Destinations
}

// Key returns the element without its data. A set has one element for each key.
func (e Element) Key() Element {
	e.Verdict, e.To = Verdict{}, netip.AddrPort{}
	return e
}

// Compare orders elements for output.
func (e Element) Compare(o Element) int {
	return cmp.Or(
		e.Addr.Compare(o.Addr), cmp.Compare(e.Protocol, o.Protocol), cmp.Compare(e.Port, o.Port),
		e.Net.Addr().Compare(o.Net.Addr()), cmp.Compare(e.Net.Bits(), o.Net.Bits()),
	)
}

// Text prints the element as nft(8) does in a set of that header: "10.96.0.1 . tcp . 80 : goto x".
func (e Element) Text(s Set) string {
	parts := make([]string, 0, maxFields)
	for _, p := range shapes[s.Shape] {
		switch p {
		case partAddr:
			parts = append(parts, e.Addr.String())
		case partProtocol:
			parts = append(parts, protocolName(e.Protocol))
		case partPort:
			parts = append(parts, strconv.Itoa(int(e.Port)))
		case partNet:
			parts = append(parts, printNet(e.Net))
		}
	}
	out := strings.Join(parts, " . ")
	switch s.Data {
	case Verdicts:
		out += " : " + e.Verdict.String()
	case Destinations:
		out += fmt.Sprintf(" : %s . %d", e.To.Addr(), e.To.Port())
	}
	return out
}

// check refuses an element that does not have the form of its set.
func (e Element) check(f Family, s Set) error {
	want := e
	parts := shapes[s.Shape]
	if !slices.Contains(parts, partAddr) {
		want.Addr = netip.Addr{}
	}
	if !slices.Contains(parts, partProtocol) {
		want.Protocol = 0
	}
	if !slices.Contains(parts, partPort) {
		want.Port = 0
	}
	if !slices.Contains(parts, partNet) {
		want.Net = netip.Prefix{}
	}
	if want != e {
		return fmt.Errorf("element %s: %w; it has fields that its set has not", e.Text(s), ErrInvalid)
	}
	for _, p := range parts {
		if err := e.checkPart(f, s, p); err != nil {
			return fmt.Errorf("element %s: %w", e.Text(s), err)
		}
	}
	return e.checkData(f, s)
}

func (e Element) checkPart(f Family, s Set, p part) error {
	switch {
	case p == partAddr:
		return checkAddr(f, e.Addr)
	case p == partProtocol:
		return unless(e.Protocol != 0, "no protocol")
	case p == partNet && !s.Shape.Ranges():
		return unless(e.Net.IsSingleIP() && checkAddr(f, e.Net.Addr()) == nil, "no address")
	case p == partNet:
		ok := e.Net.IsValid() && checkAddr(f, e.Net.Addr()) == nil && e.Net == e.Net.Masked()
		return unless(ok, fmt.Sprintf("%s is no network of %s", e.Net, f))
	}
	return nil
}

func checkAddr(f Family, a netip.Addr) error {
	return unless(a.IsValid() && a.BitLen() == 8*f.addrLen() && a.Zone() == "", fmt.Sprintf("%s is no address of %s", a, f))
}

func (e Element) checkData(f Family, s Set) error {
	var err error
	switch s.Data {
	case NoData:
		err = unless(e == e.Key(), "data in a set")
	case Verdicts:
		err = cmp.Or(e.Verdict.valid(), unless(e.To == netip.AddrPort{}, "a destination in a map of verdicts"))
	case Destinations:
		err = cmp.Or(checkAddr(f, e.To.Addr()), unless(e.To.Port() != 0 && e.Verdict == Verdict{}, "no port"))
	}
	if err != nil {
		return fmt.Errorf("element %s: %w", e.Text(s), err)
	}
	return nil
}

// Disjoint returns networks without those that others of them contain. A set with ranges takes only
// such networks for one address and port: the kernel refuses overlaps (nft_pipapo_insert in
// net/netfilter/nft_set_pipapo.c).
func Disjoint(networks []netip.Prefix) []netip.Prefix {
	out := slices.Clone(networks)
	slices.SortFunc(out, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	kept := out[:0]
	for _, n := range out {
		if len(kept) == 0 || !kept[len(kept)-1].Overlaps(n) {
			kept = append(kept, n)
		}
	}
	return kept
}

// Attributes of elements (enum nft_set_elem_attributes).
const (
	elemKey    = 1
	elemData   = 2
	elemFlags  = 3
	elemKeyEnd = 10

	elemIntervalEnd = 1
)

// last returns the last address of a network.
func last(n netip.Prefix) netip.Addr {
	b := n.Masked().Addr().AsSlice()
	for i := n.Bits(); i < 8*len(b); i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// key appends the fields of an element, each to a multiple of four bytes; end has those of a range
// where it ends.
func (e Element) key(b []byte, s Set, end bool) []byte {
	for _, p := range shapes[s.Shape] {
		switch p {
		case partAddr:
			b = append(b, e.Addr.AsSlice()...)
		case partProtocol:
			b = append(b, e.Protocol, 0, 0, 0)
		case partPort:
			b = append(binary.BigEndian.AppendUint16(b, e.Port), 0, 0)
		case partNet:
			a := e.Net.Addr()
			if end {
				a = last(e.Net)
			}
			b = append(b, a.AsSlice()...)
		}
	}
	if s.Shape == Port { // alone, a field is as long as it is
		b = b[:len(b)-2]
	}
	return b
}

// append adds the element to the list of a message. With only set the data is left out: a deletion
// names a key. A network that is a key by itself is two elements: where it begins, and the first
// address behind it.
func (e Element) append(b *nfnetlink.Builder, s Set, only bool) {
	nest := b.Nest(listElem)
	e.appendKey(b, elemKey, s, false)
	if s.Shape == AddrPortNet { // also of one address: nft(8) misprints a set of both forms
		e.appendKey(b, elemKeyEnd, s, true)
	}
	if !only {
		e.appendData(b, s)
	}
	b.Unnest(nest)
	if s.Shape != Net {
		return
	}
	if behind := last(e.Net).Next(); behind.IsValid() {
		nest := b.Nest(listElem)
		appendValue(b, elemKey, behind.AsSlice())
		b.Number(elemFlags, elemIntervalEnd)
		b.Unnest(nest)
	}
}

// appendKey adds the fields of an element without a buffer of their own.
func (e Element) appendKey(b *nfnetlink.Builder, kind uint16, s Set, end bool) {
	nest := b.Nest(kind)
	b.Fill(dataValue, func(to []byte) []byte { return e.key(to, s, end) })
	b.Unnest(nest)
}

func (e Element) appendData(b *nfnetlink.Builder, s Set) {
	switch s.Data {
	case Verdicts:
		nest := b.Nest(elemData)
		appendVerdict(b, e.Verdict.attr(elemData).value)
		b.Unnest(nest)
	case Destinations:
		to := append(e.To.Addr().AsSlice(), binary.BigEndian.AppendUint16(nil, e.To.Port())...)
		appendValue(b, elemData, append(to, 0, 0))
	}
}

func appendValue(b *nfnetlink.Builder, kind uint16, v []byte) {
	nest := b.Nest(kind)
	b.Bytes(dataValue, v)
	b.Unnest(nest)
}

// rawElement is an element as the kernel lists it.
type rawElement struct {
	key, end []byte
	close    bool // an interval that begins here is not in the set
	form     form
	data     string
}

func parseElement(a nfnetlink.Attrs) rawElement {
	e := rawElement{close: a.Number(elemFlags)&elemIntervalEnd != 0}
	if k, ok := a.Get(elemKey); ok {
		e.key = k.Bytes(dataValue)
	}
	if k, ok := a.Get(elemKeyEnd); ok {
		e.end = k.Bytes(dataValue)
	}
	if d, ok := a.Get(elemData); ok {
		e.form, e.data = parseData(d)
	}
	return e
}

// parseElements returns the elements of a set of that header; false where one of them has a form
// that this package does not write.
func parseElements(f Family, s Set, list []rawElement) (out []Element, ok bool) {
	if s.Shape == Net {
		return parseNets(f, s, list)
	}
	for _, raw := range list {
		e, ok := raw.element(f, s)
		if !ok {
			return nil, false
		}
		out = append(out, e)
	}
	return out, true
}

// element returns the element; the bytes between its fields are zero.
func (r rawElement) element(f Family, s Set) (e Element, ok bool) {
	if len(r.key) != keyLen(f, s) || len(r.end) != 0 && len(r.end) != len(r.key) || r.close {
		return e, false
	}
	first, end := r.key, r.end
	if len(end) == 0 {
		end = first
	}
	for _, p := range shapes[s.Shape] {
		n := min(p.len(f), len(first))
		switch p {
		case partAddr:
			e.Addr, _ = netip.AddrFromSlice(first[:n])
		case partProtocol:
			e.Protocol = first[0]
		case partPort:
			e.Port = binary.BigEndian.Uint16(first)
		case partNet:
			e.Net, _ = network(first[:n], end[:n])
		}
		first, end = first[n:], end[n:]
	}
	if !r.parseData(f, s, &e) || e.check(f, s) != nil {
		return e, false
	}
	ends := e.key(nil, s, true)
	return e, slices.Equal(e.key(nil, s, false), r.key) && (len(r.end) == 0 && slices.Equal(ends, r.key) || slices.Equal(ends, r.end))
}

func (p part) len(f Family) int {
	if p == partAddr || p == partNet {
		return f.addrLen()
	}
	return 4
}

// keyLen is the length of a key in bytes.
func keyLen(f Family, s Set) (n int) {
	if s.Shape == Port {
		return 2
	}
	for _, p := range shapes[s.Shape] {
		n += p.len(f)
	}
	return n
}

// network returns the network that begins and ends with two addresses.
func network(first, end []byte) (n netip.Prefix, ok bool) {
	a, _ := netip.AddrFromSlice(first)
	b, _ := netip.AddrFromSlice(end)
	for bits := range a.BitLen() + 1 {
		if n = netip.PrefixFrom(a, bits); n == n.Masked() && last(n) == b {
			return n, true
		}
	}
	return netip.Prefix{}, false
}

func (r rawElement) parseData(f Family, s Set, e *Element) (ok bool) {
	switch s.Data {
	case Verdicts:
		if r.form == code {
			e.Verdict, ok = verdictOf(r.data)
		}
		return ok
	case Destinations:
		n := f.addrLen()
		if r.form != data || len(r.data) != n+4 {
			return false
		}
		a, _ := netip.AddrFromSlice([]byte(r.data[:n]))
		e.To = netip.AddrPortFrom(a, short(r.data[n:n+2]))
		return true
	}
	return r.data == ""
}

// parseNets puts the two ends of each range together.
func parseNets(f Family, s Set, list []rawElement) (out []Element, ok bool) {
	for _, r := range list {
		if len(r.key) != f.addrLen() || len(r.end) > 0 || r.data != "" || s.Data != NoData {
			return nil, false
		}
	}
	// Where one range ends and another begins, the end comes first.
	slices.SortFunc(list, func(a, b rawElement) int {
		return cmp.Or(slices.Compare(a.key, b.key), cmp.Compare(before(a), before(b)))
	})
	var open []byte
	for _, r := range list {
		switch {
		case r.close && open == nil: // nft(8) marks so what is before the first range
		case r.close:
			end, _ := netip.AddrFromSlice(r.key)
			n, ok := network(open, end.Prev().AsSlice())
			if !ok {
				return nil, false
			}
			out, open = append(out, Element{Net: n}), nil
		case open != nil:
			return nil, false
		default:
			open = r.key
		}
	}
	if open != nil {
		a, _ := netip.AddrFromSlice(open)
		n, ok := network(open, last(netip.PrefixFrom(a, 0)).AsSlice())
		if !ok {
			return nil, false
		}
		out = append(out, Element{Net: n})
	}
	return out, true
}

func before(r rawElement) int {
	if r.close {
		return 0
	}
	return 1
}
