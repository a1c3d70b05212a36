package nft

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Rule is one rule of a chain: statements that are evaluated from left to right until one does not
// match or decides.
type Rule struct {
	Statements []Statement
	// Comment is printed behind the rule; at most maxComment bytes.
	Comment string
	// Foreign is set on a rule that was read and that this package did not write as it is now:
	// another program added or replaced it.
	Foreign bool
	// Packets is how many packets the first Counter of a rule that was read has counted. It is no part
	// of what Equal compares, and is not written.
	Packets uint64
}

// maxComment is how much of a comment nft(8) takes.
const maxComment = 128

// NewRule returns a rule without a comment.
func NewRule(statements ...Statement) Rule { return Rule{Statements: statements} }

// With returns the rule with a comment.
func (r Rule) With(comment string) Rule {
	r.Comment = comment
	return r
}

// Equal reports whether two rules do the same and say the same.
func (r Rule) Equal(o Rule) bool {
	return r.Comment == o.Comment && r.Foreign == o.Foreign && slices.Equal(r.Statements, o.Statements)
}

// Statement is a part of a rule: one of the types of this package. Values are comparable.
type Statement interface {
	// lower returns the expressions that the kernel evaluates.
	lower(Family) []expr
	// print returns the text of nft(8).
	print(printer) string
	// check refuses what cannot be expressed.
	check(Family) error
}

// printer has the inputs on which the text of a statement depends.
type printer struct {
	family Family
	// transport is the word for the header behind that of IP: tcp, udp or sctp where an earlier
	// statement fixed the protocol, else th.
	transport string
}

// Text prints the rule as nft(8) lists it in a table of the family.
func (r Rule) Text(f Family) string {
	parts := make([]string, len(r.Statements), len(r.Statements)+1)
	p, fixed := printer{f, "th"}, -1 // fixed is where the protocol was fixed, while it is to be printed
	for i, s := range r.Statements {
		if m, ok := s.(MatchProtocol); ok && !m.Not {
			fixed, p.transport = i, transportName(m.Protocol)
		} else if fixed >= 0 && needsTransport(s) {
			parts[fixed], fixed = "", -1 // the next match names the protocol
		}
		parts[i] = s.print(p)
	}
	if r.Comment != "" {
		parts = append(parts, `comment "`+r.Comment+`"`)
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), " ")
}

// transportName is the word for the header of a protocol.
func transportName(protocol uint8) string {
	switch protocol {
	case TCP, UDP, SCTP:
		return protocolName(protocol)
	}
	return "th"
}

// needsTransport reports whether the text of a statement names the protocol of the header that it
// looks into.
func needsTransport(s Statement) bool {
	switch s := s.(type) {
	case MatchSet:
		return s.Key.hasPort()
	case VerdictMap:
		return s.Key.hasPort()
	case DestinationMap:
		return s.Key.hasPort()
	case MatchICMP, MatchTCPFlags:
		return true
	}
	return false
}

// check refuses a rule that cannot be expressed in a table of the family.
func (r Rule) check(f Family) error {
	if len(r.Statements) == 0 {
		return fmt.Errorf("rule without a statement: %w", ErrInvalid)
	}
	if len(r.Comment) > maxComment || strings.ContainsAny(r.Comment, "\"\x00\n") {
		return fmt.Errorf("comment %.20q: %w; it has at most %d bytes, on one line, without quotation marks", r.Comment, ErrInvalid, maxComment)
	}
	if r.Foreign {
		return fmt.Errorf("rule %s: %w; it is another program's", r.Text(f), ErrInvalid)
	}
	protocol := uint8(0)
	for _, s := range r.Statements {
		if err := checkStatement(f, s, protocol); err != nil {
			return fmt.Errorf("rule %s: %w", r.Text(f), err)
		}
		if m, ok := s.(MatchProtocol); ok && !m.Not {
			protocol = m.Protocol
		}
	}
	return nil
}

// checkStatement refuses statements that look into the header of a protocol that no earlier
// statement asked for.
func checkStatement(f Family, s Statement, protocol uint8) error {
	wanted := protocol
	switch s.(type) {
	case MatchICMP:
		wanted = icmp(f)
	case MatchTCPFlags:
		wanted = TCP
	}
	if wanted != protocol {
		return fmt.Errorf("%w: match protocol %s first", ErrInvalid, protocolName(wanted))
	}
	return s.check(f)
}

// Protocols, in the numbers of IP.
const (
	ICMP   uint8 = 1
	TCP    uint8 = 6
	UDP    uint8 = 17
	ICMPv6 uint8 = 58
	SCTP   uint8 = 132
)

// icmp is the protocol of a family's errors and echoes.
func icmp(f Family) uint8 {
	if f == IPv6 {
		return ICMPv6
	}
	return ICMP
}

var protocolNames = map[uint8]string{ICMP: "icmp", TCP: "tcp", UDP: "udp", ICMPv6: "ipv6-icmp", SCTP: "sctp", 136: "udplite", 47: "gre", 50: "esp", 51: "ah"}

// protocolName prints a protocol as nft(8) does where /etc/protocols has it.
func protocolName(protocol uint8) string {
	if name, ok := protocolNames[protocol]; ok {
		return name
	}
	return strconv.Itoa(int(protocol))
}

// Field is a part of a packet.
type Field uint8

// The fields that keys of sets consist of.
const (
	SourceAddr Field = iota + 1
	DestinationAddr
	Protocol
	SourcePort
	DestinationPort
)

func (f Field) addr() bool { return f == SourceAddr || f == DestinationAddr }
func (f Field) port() bool { return f == SourcePort || f == DestinationPort }

func (f Field) print(p printer) string {
	switch f {
	case SourceAddr:
		return p.family.String() + " saddr"
	case DestinationAddr:
		return p.family.String() + " daddr"
	case Protocol:
		return "meta l4proto"
	case SourcePort:
		return p.transport + " sport"
	case DestinationPort:
		return p.transport + " dport"
	}
	return fmt.Sprintf("field-%d", uint8(f))
}

// maxFields is how many fields the key of a set has at most.
const maxFields = 4

// Fields are the fields of a packet with which a set is searched, in the order of the set's key. It
// is a value that can be compared; zero fields follow the last one.
type Fields [maxFields]Field

// By returns the fields of a key.
func By(fields ...Field) (out Fields) {
	copy(out[:], fields)
	return out
}

// list returns the fields without the zero ones.
func (f Fields) list() []Field {
	if i := slices.Index(f[:], 0); i >= 0 {
		return f[:i]
	}
	return f[:]
}

func (f Fields) hasPort() bool { return slices.ContainsFunc(f.list(), Field.port) }

func (f Fields) print(p printer) string {
	var parts []string
	for _, field := range f.list() {
		parts = append(parts, field.print(p))
	}
	return strings.Join(parts, " . ")
}

var errFields = errors.New("a key has 1 to 4 fields of this package")

func (f Fields) check() error {
	list := f.list()
	rest := f[len(list):]
	if len(list) == 0 || slices.ContainsFunc(rest, func(r Field) bool { return r != 0 }) || slices.Max(list) > DestinationPort {
		return fmt.Errorf("%w: %w", ErrInvalid, errFields)
	}
	return nil
}

// checkLookup refuses a lookup that cannot be expressed.
func checkLookup(f Fields, name string) error { return errors.Join(f.check(), checkName(name)) }
