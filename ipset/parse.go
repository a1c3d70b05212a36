package ipset

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
)

// ParseSave reads what WriteSave or `ipset save` print: create lines, and add
// lines for sets already created. Blank lines are skipped. Sets come in the
// order of the text. Errors name the line and match ErrInvalid.
func ParseSave(r io.Reader) ([]Contents, error) {
	var p saveParser
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		if err := p.line(lines.Text()); err != nil {
			return nil, fmt.Errorf("line %d: %w: %w", n, ErrInvalid, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read save text: %w", err)
	}
	return p.contents, nil
}

type saveParser struct {
	contents []Contents
	byName   map[string]int // index into contents
}

func (p *saveParser) line(line string) error {
	words := strings.Fields(line)
	switch {
	case len(words) == 0:
		return nil
	case len(words) >= 3 && words[0] == "create":
		return p.create(words[1], words[2], words[3:])
	case len(words) >= 3 && words[0] == "add":
		return p.add(words[1], strings.Join(words[2:], " "))
	}
	return fmt.Errorf("%q is neither a create nor an add line", line)
}

func (p *saveParser) create(name, typ string, words []string) error {
	if _, ok := p.byName[name]; ok {
		return fmt.Errorf("set %s is created twice", name)
	}
	s, err := parseHeader(Set{Name: name, Type: Type(typ)}, words)
	if err != nil {
		return err
	}
	if p.byName == nil {
		p.byName = map[string]int{}
	}
	p.byName[name] = len(p.contents)
	p.contents = append(p.contents, Contents{Set: s})
	return nil
}

func (p *saveParser) add(name, text string) error {
	i, ok := p.byName[name]
	if !ok {
		return fmt.Errorf("set %s is not created before", name)
	}
	c := &p.contents[i]
	e, err := ParseEntry(c.Set.Type, text)
	if err != nil {
		return err
	}
	c.Entries = append(c.Entries, e)
	return nil
}

// parseHeader reads the words behind the type. Unknown ones become Options, as
// in a set listed by the kernel.
func parseHeader(s Set, words []string) (Set, error) {
	for len(words) > 0 {
		known, err := false, error(nil)
		if len(words) > 1 {
			known, err = headerWord(&s, words[0], words[1])
		}
		if err != nil {
			return Set{}, err
		}
		if known {
			words = words[2:]
			continue
		}
		s.Options = strings.TrimPrefix(s.Options+" "+words[0], " ")
		words = words[1:]
	}
	return s.WithDefaults(), nil
}

// headerWord takes one option with its value.
func headerWord(s *Set, word, value string) (known bool, err error) {
	switch word {
	case "family":
		s.Family, err = parseFamily(value)
	case "hashsize":
		s.HashSize, err = parseUint32(value)
	case "maxelem":
		s.MaxElem, err = parseUint32(value)
	case "timeout":
		if value == "0" {
			return false, nil // an option: entries may have one of their own
		}
		s.Timeout, err = parseUint32(value)
	case "bucketsize", "initval": // of the hash table, and no two sets have the same
		_, err = strconv.ParseUint(value, 0, 32)
	case "range":
		s.PortFrom, s.PortTo, err = parseRange(value)
	default:
		return false, nil
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", word, err)
	}
	return true, err
}

func parseFamily(s string) (Family, error) {
	switch s {
	case "inet":
		return IPv4, nil
	case "inet6":
		return IPv6, nil
	}
	return Unspec, fmt.Errorf("unknown family %q", s)
}

func parseUint32(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err
}

func parseRange(s string) (from, to uint16, err error) {
	a, b, ok := strings.Cut(s, "-")
	if !ok {
		return 0, 0, fmt.Errorf("%q is no range", s)
	}
	from, errFrom := parsePort(a)
	to, errTo := parsePort(b)
	return from, to, errors.Join(errFrom, errTo)
}

func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	return uint16(n), err
}

// ParseEntry reads the text of an entry of a set of the given type, as String
// prints it. A network without a length is a single address. Options after the
// entry other than nomatch are skipped, as in List. Family and range are not
// checked; see Set.ValidateEntry.
func ParseEntry(t Type, text string) (Entry, error) {
	text, rest, _ := strings.Cut(text, " ")
	e, err := parseFields(t, strings.Split(text, ","))
	if err != nil {
		return Entry{}, fmt.Errorf("entry %q of %s: %w", text, t, err)
	}
	e.NoMatch = t == HashIPPortNet && rest == "nomatch"
	return e, nil
}

var fieldsOf = map[Type]int{HashIP: 1, HashIPPort: 2, HashIPPortIP: 3, HashIPPortNet: 3, BitmapPort: 1}

func parseFields(t Type, fields []string) (e Entry, err error) {
	want, ok := fieldsOf[t]
	if !ok {
		return e, fmt.Errorf("type: %w", ErrUnsupported)
	}
	if len(fields) != want {
		return e, fmt.Errorf("%d fields instead of %d", len(fields), want)
	}
	if t == BitmapPort {
		e.Port, err = parsePort(fields[0])
		return e, err
	}
	if e.Addr, err = netip.ParseAddr(fields[0]); err != nil {
		return e, err
	}
	if want > 1 {
		if e.Protocol, e.Port, err = parseProtoPort(fields[1]); err != nil {
			return e, err
		}
	}
	switch t {
	case HashIPPortIP:
		e.Addr2, err = netip.ParseAddr(fields[2])
	case HashIPPortNet:
		e.Net, err = parseNet(fields[2])
	}
	return e, err
}

// parseProtoPort reads "tcp:80"; the protocol may be a number.
func parseProtoPort(s string) (proto uint8, port uint16, err error) {
	name, number, ok := strings.Cut(s, ":")
	if !ok {
		return 0, 0, fmt.Errorf("%q has no protocol", s)
	}
	if proto, err = ParseProtocol(name); err != nil {
		return 0, 0, err
	}
	port, err = parsePort(number)
	return proto, port, err
}

// ParseProtocol is the reverse of ProtocolName; 0 is no protocol.
func ParseProtocol(s string) (uint8, error) {
	for _, p := range []uint8{TCP, UDP, SCTP, UDPLite} {
		if s == ProtocolName(p) {
			return p, nil
		}
	}
	n, err := strconv.ParseUint(s, 10, 8)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("unknown protocol %q", s)
	}
	return uint8(n), nil
}

func parseNet(s string) (netip.Prefix, error) {
	if strings.Contains(s, "/") {
		return netip.ParsePrefix(s)
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Prefix{}, err
	}
	return netip.PrefixFrom(a, a.BitLen()), nil
}
