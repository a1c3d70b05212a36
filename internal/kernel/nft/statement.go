package nft

import (
	"fmt"
	"net/netip"
	"strings"
)

// MatchSet matches packets whose fields are an element of a set, or with Not are none.
type MatchSet struct {
	Key Fields
	Set string
	Not bool
}

// VerdictMap applies the verdict of the element of a map that has the packet's fields; a packet
// without an element continues.
type VerdictMap struct {
	Key Fields
	Map string
}

// DestinationMap gives a packet, and with it its connection, the destination in the element of a
// map that has its fields; a packet without an element continues. It is for chains of type nat.
type DestinationMap struct {
	Key Fields
	Map string
}

// KeepDestination settles that a connection keeps its destination: no later chain of type nat
// translates it. A verdict of accept ends the own chain only.
type KeepDestination struct{}

// MatchAddr matches the source or the destination address.
type MatchAddr struct {
	Field Field
	Net   netip.Prefix
	Not   bool
}

// MatchProtocol matches the protocol behind the header of IP.
type MatchProtocol struct {
	Protocol uint8
	Not      bool
}

// MatchICMP matches the type of a message of ICMP, or ICMPv6 in a table of IPv6.
type MatchICMP struct{ Type uint8 }

// The types of an echo request.
const (
	EchoRequest   uint8 = 8
	EchoRequestV6 uint8 = 128
)

// MatchTCPFlags matches the flags of a segment, of which Mask selects those that count.
type MatchTCPFlags struct{ Value, Mask uint8 }

// The flags of a segment of TCP.
const (
	FlagFIN uint8 = 1 << iota
	FlagSYN
	FlagRST
	FlagPSH
	FlagACK
)

// MatchMSS matches the segment size that a segment offers, with both ends.
type MatchMSS struct{ From, To uint16 }

// SetMSS changes the segment size that a segment offers.
type SetMSS struct{ Size uint16 }

// MatchMark matches the mark of a packet, of which Mask selects the bits that count.
type MatchMark struct {
	Value, Mask uint32
	Not         bool
}

// SetMark changes the mark of a packet: it keeps the bits of Keep, then flips those of Flip.
type SetMark struct{ Keep, Flip uint32 }

// SetMarkBits returns the statement that gives the bits of mask the value, as iptables'
// --set-xmark value/mask does.
func SetMarkBits(value, mask uint32) SetMark { return SetMark{Keep: ^mask, Flip: value} }

// MatchState matches packets by the state of their connection: one of the states, or with Not none.
type MatchState struct {
	States State
	Not    bool
}

// State is a set of states of connection tracking, in the bits of the kernel.
type State uint32

// The states (enum ip_conntrack_info in include/uapi/linux/netfilter/nf_conntrack_common.h).
const (
	StateInvalid     State = 1
	StateEstablished State = 2
	StateRelated     State = 4
	StateNew         State = 8
	StateUntracked   State = 64
)

// MatchStatus matches packets of connections that connection tracking has translated, or with Not
// of all other ones.
type MatchStatus struct {
	Status Status
	Not    bool
}

// Status is a set of properties of a connection, in the bits of the kernel.
type Status uint32

// Connections whose source, or destination, is translated (enum ip_conntrack_status).
const (
	StatusSNAT Status = 0x10
	StatusDNAT Status = 0x20
)

// MatchLocal matches addresses that are local to this machine, of the field SourceAddr or
// DestinationAddr.
type MatchLocal struct {
	Field Field
	Not   bool
}

// MatchInterface matches the interface that a packet came by, or with Out the one that it leaves by.
// A name that ends in * is a prefix.
type MatchInterface struct {
	Name string
	Out  bool
	Not  bool
}

// Counter counts packets and bytes.
type Counter struct{}

// Masquerade gives a packet, and with it its connection, the address of this machine as its source.
type Masquerade struct {
	// From and To are the source ports to choose from; 0 leaves it to the kernel.
	From, To uint16
	// Random has the kernel pick the source port at random.
	Random bool
}

// Reject drops a packet and answers that its port is unreachable.
type Reject struct{}

// Verdict ends the evaluation of the rule, or leads to another chain. The zero value is no verdict.
type Verdict struct {
	Kind  VerdictKind
	Chain string // for VerdictJump and VerdictGoto
}

// VerdictKind is the kind of a verdict.
type VerdictKind uint8

// The kinds of verdicts.
const (
	VerdictAccept VerdictKind = iota + 1
	VerdictDrop
	VerdictReturn
	VerdictJump
	VerdictGoto
)

// The verdicts.
var (
	Accept = Verdict{Kind: VerdictAccept}
	Drop   = Verdict{Kind: VerdictDrop}
	Return = Verdict{Kind: VerdictReturn}
)

// Jump returns the verdict that leads to a chain and back.
func Jump(chain string) Verdict { return Verdict{VerdictJump, chain} }

// Goto returns the verdict that leads to a chain without a return.
func Goto(chain string) Verdict { return Verdict{VerdictGoto, chain} }

// verdictNames are the words and the codes of the kernel (enum nft_verdicts, linux/netfilter.h).
var verdictNames = map[VerdictKind]struct {
	word string
	code int32
}{
	VerdictAccept: {"accept", 1}, VerdictDrop: {"drop", 0}, VerdictReturn: {"return", -5}, VerdictJump: {"jump", -3}, VerdictGoto: {"goto", -4},
}

// String prints the verdict: "goto KUBE-MARK-MASQ".
func (v Verdict) String() string {
	return strings.TrimSuffix(verdictNames[v.Kind].word+" "+v.Chain, " ")
}

func (v Verdict) valid() error {
	leads := v.Kind == VerdictJump || v.Kind == VerdictGoto
	switch _, known := verdictNames[v.Kind]; {
	case !known:
		return fmt.Errorf("verdict %d: %w", v.Kind, ErrInvalid)
	case leads:
		return checkName(v.Chain)
	case v.Chain != "":
		return fmt.Errorf("verdict %s: %w; it leads nowhere", v, ErrInvalid)
	}
	return nil
}

// not is the operator of a comparison.
func not(n bool) string {
	if n {
		return "!= "
	}
	return ""
}

func (s MatchSet) print(p printer) string   { return s.Key.print(p) + " " + not(s.Not) + "@" + s.Set }
func (s VerdictMap) print(p printer) string { return s.Key.print(p) + " vmap @" + s.Map }
func (s DestinationMap) print(p printer) string {
	return fmt.Sprintf("dnat %s to %s map @%s", p.family, s.Key.print(p), s.Map)
}
func (KeepDestination) print(p printer) string { return "dnat to " + DestinationAddr.print(p) }
func (s MatchAddr) print(p printer) string {
	return s.Field.print(p) + " " + not(s.Not) + printNet(s.Net)
}
func (s MatchProtocol) print(printer) string {
	return "meta l4proto " + not(s.Not) + protocolName(s.Protocol)
}
func (s MatchMSS) print(printer) string {
	return fmt.Sprintf("tcp option maxseg size %d-%d", s.From, s.To)
}
func (s SetMSS) print(printer) string  { return fmt.Sprintf("tcp option maxseg size set %d", s.Size) }
func (Counter) print(printer) string   { return "counter packets 0 bytes 0" }
func (Reject) print(printer) string    { return "reject" }
func (v Verdict) print(printer) string { return v.String() }

// printNet leaves out the length of a network that is one address.
func printNet(n netip.Prefix) string {
	if n.IsSingleIP() {
		return n.Addr().String()
	}
	return n.String()
}

var icmpTypes = map[Family]map[uint8]string{
	IPv4: {EchoRequest: "echo-request"}, IPv6: {EchoRequestV6: "echo-request"},
}

func (s MatchICMP) print(p printer) string {
	return map[Family]string{IPv4: "icmp", IPv6: "icmpv6"}[p.family] + " type " + icmpTypes[p.family][s.Type]
}

var flagNames = []string{"fin", "syn", "rst", "psh", "ack"}

func (s MatchTCPFlags) print(printer) string {
	return "tcp flags " + printBits(uint32(s.Value), flagNames) + " / " + printBits(uint32(s.Mask), flagNames)
}

// printBits prints the names of bits, the lowest first.
func printBits(bits uint32, names []string) string {
	var out []string
	for i, name := range names {
		if bits&(1<<i) != 0 && name != "" {
			out = append(out, name)
		}
	}
	return strings.Join(out, ",")
}

func (s MatchMark) print(printer) string {
	const all = 1<<32 - 1
	if s.Mask == all {
		return fmt.Sprintf("meta mark %s0x%08x", not(s.Not), s.Value)
	}
	op := "=="
	if s.Not {
		op = "!="
	}
	return fmt.Sprintf("meta mark & 0x%08x %s 0x%08x", s.Mask, op, s.Value)
}

// print takes the bits apart as the tool does: those that are set whatever they were, and those that
// are flipped.
func (s SetMark) print(printer) string {
	const all = 1<<32 - 1
	if s.Keep == 0 {
		return fmt.Sprintf("meta mark set 0x%08x", s.Flip)
	}
	set, flip := s.Flip&^s.Keep, s.Flip&s.Keep
	out := "meta mark set meta mark"
	if keep := s.Keep | set; keep != all {
		out += fmt.Sprintf(" & 0x%08x", keep)
	}
	if flip != 0 {
		out += fmt.Sprintf(" ^ 0x%08x", flip)
	}
	if set != 0 {
		out += fmt.Sprintf(" | 0x%08x", set)
	}
	return out
}

var stateNames = []string{"invalid", "established", "related", "new", "", "", "untracked"}

func (s MatchState) print(printer) string {
	return "ct state " + notBits(s.Not, uint32(s.States)) + printBits(uint32(s.States), stateNames)
}

// notBits is the operator of a match of bits. Of a connection's state one bit is set: to differ from
// the only one that is asked for, and to have none of several, are printed differently.
func notBits(n bool, bits uint32) string {
	switch {
	case !n:
		return ""
	case bits&(bits-1) == 0:
		return "!= "
	}
	return "! "
}

var statusNames = []string{"", "", "", "", "snat", "dnat"}

func (s MatchStatus) print(printer) string {
	op := "ct status "
	if s.Not {
		op += "! "
	}
	return op + printBits(uint32(s.Status), statusNames)
}

func (s MatchLocal) print(printer) string {
	return "fib " + map[Field]string{SourceAddr: "saddr", DestinationAddr: "daddr"}[s.Field] + " type " + not(s.Not) + "local"
}

func (s MatchInterface) print(printer) string {
	key := "iifname "
	if s.Out {
		key = "oifname "
	}
	return key + not(s.Not) + `"` + s.Name + `"`
}

func (s Masquerade) print(printer) string {
	out := "masquerade"
	if s.From != 0 {
		out += fmt.Sprintf(" to :%d-%d", s.From, s.To)
	}
	if s.Random {
		out += " fully-random"
	}
	return out
}

func (s MatchSet) check(Family) error       { return checkLookup(s.Key, s.Set) }
func (s VerdictMap) check(Family) error     { return checkLookup(s.Key, s.Map) }
func (s DestinationMap) check(Family) error { return checkLookup(s.Key, s.Map) }
func (KeepDestination) check(Family) error  { return nil }
func (s MatchProtocol) check(Family) error  { return unless(s.Protocol != 0, "no protocol") }
func (s SetMSS) check(Family) error         { return unless(s.Size != 0, "no size") }
func (s SetMark) check(Family) error {
	return unless(s != SetMark{Keep: 1<<32 - 1}, "the mark stays as it is")
}
func (Counter) check(Family) error   { return nil }
func (Reject) check(Family) error    { return nil }
func (v Verdict) check(Family) error { return v.valid() }

// unless is an error where a condition does not hold.
func unless(ok bool, why string) error {
	if ok {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrInvalid, why)
}

func (s MatchAddr) check(f Family) error {
	if !s.Field.addr() {
		return fmt.Errorf("%w: field %d is no address", ErrInvalid, s.Field)
	}
	return checkNet(f, s.Net)
}

// checkNet refuses a network of the other family, with bits outside of its mask, or of all addresses.
func checkNet(f Family, n netip.Prefix) error {
	ok := n.IsValid() && n.Addr().BitLen() == 8*f.addrLen() && n.Addr().Zone() == "" && n == n.Masked() && n.Bits() > 0
	return unless(ok, fmt.Sprintf("%s is no network of %s", n, f))
}

func (s MatchICMP) check(f Family) error {
	return unless(icmpTypes[f][s.Type] != "", fmt.Sprintf("type %d of icmp", s.Type))
}

func (s MatchTCPFlags) check(Family) error {
	const all = FlagACK<<1 - 1
	return unless(s.Value != 0 && s.Mask&^all == 0 && s.Value&^s.Mask == 0, "flags")
}

func (s MatchMSS) check(Family) error {
	return unless(s.From < s.To, "a range begins before it ends")
}

func (s MatchMark) check(Family) error {
	return unless(s.Mask != 0 && s.Value&^s.Mask == 0, "bits outside of the mask")
}

func (s MatchState) check(Family) error {
	const all = StateInvalid | StateEstablished | StateRelated | StateNew | StateUntracked
	return unless(s.States != 0 && s.States&^all == 0, "states")
}

func (s MatchStatus) check(Family) error {
	return unless(s.Status != 0 && s.Status&^(StatusSNAT|StatusDNAT) == 0, "status")
}

func (s MatchLocal) check(Family) error { return unless(s.Field.addr(), "no address") }

// maxInterface is the longest name of an interface (IFNAMSIZ less the terminating zero).
const maxInterface = 15

func (s MatchInterface) check(Family) error {
	name := strings.TrimSuffix(s.Name, "*")
	ok := name != "" && len(name) <= maxInterface && !strings.ContainsAny(name, "\"\x00\n*\\ ")
	return unless(ok, fmt.Sprintf("interface %q", s.Name))
}

func (s Masquerade) check(Family) error {
	return unless(s.From == 0 && s.To == 0 || s.From != 0 && s.From <= s.To, "ports")
}
