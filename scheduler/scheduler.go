package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Weight is the way in which an algorithm uses a destination's weight. Weight 0 always means "no new
// connections", with every algorithm.
type Weight uint8

const (
	// WeightIgnored: every weight above 0 counts the same.
	WeightIgnored Weight = iota
	// WeightShare: a destination's share of new connections, or the number of
	// connections it is compared by, is in proportion to its weight.
	WeightShare
	// WeightRank: the destination with the highest weight takes everything.
	WeightRank
	// WeightLimit: the weight is the number of active connections after which
	// the next destination takes over.
	WeightLimit
)

// String names the rule in one word, as tables show it.
func (w Weight) String() string {
	switch w {
	case WeightShare:
		return "share"
	case WeightRank:
		return "rank"
	case WeightLimit:
		return "limit"
	default:
		return "ignored"
	}
}

// Algorithm describes one scheduling algorithm of the kernel.
type Algorithm struct {
	// Name as the kernel and ipvsadm(8) spell it; at most 15 bytes
	// (IP_VS_SCHEDNAME_MAXLEN).
	Name string
	// Module is the kernel module that registers it.
	Module string
	// Sysctl is one that the module adds; empty for most. A module with one must be loaded before a
	// virtual server asks for it (internal/DECISIONS.md, Modules of lblc and lblcr). The kernel would
	// load it under the lock of IPVS (ip_vs_add_service, __ip_vs_mutex). The module waits for network
	// namespaces that end (register_pernet_subsys), and these wait for that lock.
	Sysctl string
	// Weight is the meaning of a destination's weight.
	Weight Weight
	// Flags are the flag names it understands; empty for most.
	Flags []string
	// Summary is one line for people.
	Summary string
}

// Default is the algorithm used where nothing else was asked for: round robin.
const Default = "rr"

var algorithms = []Algorithm{
	{Name: "rr", Summary: "round robin: each destination in turn"},
	{Name: "wrr", Weight: WeightShare, Summary: "weighted round robin: in turn, in proportion to the weights"},
	{Name: "lc", Summary: "least connections: the destination with the fewest"},
	{Name: "wlc", Weight: WeightShare, Summary: "weighted least connections: fewest in proportion to the weight"},
	{Name: "lblc", Sysctl: "net.ipv4.vs.lblc_expiration", Weight: WeightShare, Summary: "locality: one destination per client-side address until it is overloaded"},
	{Name: "lblcr", Sysctl: "net.ipv4.vs.lblcr_expiration", Weight: WeightShare, Summary: "locality with replication: a set of destinations per address"},
	{Name: "sh", Weight: WeightShare, Flags: []string{"sh-fallback", "sh-port"}, Summary: "source hashing: a client address keeps its destination"},
	{Name: "dh", Summary: "destination hashing: a destination address keeps its server"},
	{Name: "sed", Weight: WeightShare, Summary: "shortest expected delay: (connections + 1) / weight"},
	{Name: "nq", Weight: WeightShare, Summary: "never queue: an idle destination first, else shortest expected delay"},
	{Name: "mh", Weight: WeightShare, Flags: []string{"mh-fallback", "mh-port"}, Summary: "Maglev hashing: consistent, few clients move when destinations change"},
	{Name: "fo", Weight: WeightRank, Summary: "fail over: the highest weight takes all"},
	{Name: "ovf", Weight: WeightLimit, Summary: "overflow: the highest weight until it has that many connections"},
	{Name: "twos", Weight: WeightShare, Summary: "power of two choices: of two chosen at random, the one with fewer connections (CONFIG_IP_VS_TWOS)"},
}

// flagBits are the scheduler flags of include/uapi/linux/ip_vs.h
// (IP_VS_SVC_F_SCHED1 and IP_VS_SVC_F_SCHED2).
var flagBits = map[string]uint32{
	"sh-fallback": 0x0008,
	"sh-port":     0x0010,
	"mh-fallback": 0x0008,
	"mh-port":     0x0010,
}

func init() {
	for i := range algorithms {
		algorithms[i].Module = "ip_vs_" + algorithms[i].Name
	}
}

// Algorithms lists every algorithm this package knows, in the order in which
// ipvsadm(8) documents them. The caller owns the result.
func Algorithms() []Algorithm {
	out := slices.Clone(algorithms)
	for i := range out {
		out[i].Flags = slices.Clone(out[i].Flags)
	}
	return out
}

// Names lists the names of all algorithms in the same order.
func Names() []string {
	names := make([]string, len(algorithms))
	for i, a := range algorithms {
		names[i] = a.Name
	}
	return names
}

// Lookup finds an algorithm by its exact name.
func Lookup(name string) (Algorithm, bool) {
	for _, a := range algorithms {
		if a.Name == name {
			a.Flags = slices.Clone(a.Flags)
			return a, true
		}
	}
	return Algorithm{}, false
}

// Spec is a choice of algorithm and flags: a small comparable value. The zero
// Spec is not valid; Parse never returns it without an error.
type Spec struct {
	name  string
	flags uint32
}

// ErrUnknown is wrapped by Parse when no algorithm has the name.
var ErrUnknown = errors.New("unknown scheduler")

// ErrFlag is wrapped by Parse when an algorithm does not know a flag.
var ErrFlag = errors.New("unknown scheduler flag")

// Parse turns a name, and flags separated by commas, into a Spec. Blanks and
// upper case are forgiven. An empty name means Default. The error of a bad name
// lists the good ones, that of a bad flag the flags of the algorithm.
//
// "mh" without flags gets mh-fallback and mh-port. Without mh-fallback the kernel drops connections
// whose destination is unavailable or draining. Without mh-port all clients behind one address
// share one destination. "sh" gets sh-fallback, but not sh-port: it is chosen so that a client
// address keeps its destination.
func Parse(name, flags string) (Spec, error) {
	name = strings.ToLower(strings.TrimSpace(name))
	if name == "" {
		name = Default
	}
	a, ok := Lookup(name)
	if !ok {
		return Spec{}, fmt.Errorf("%w %q: use one of %s", ErrUnknown, name, strings.Join(Names(), " "))
	}
	bits, err := parseFlags(a, flags)
	if err != nil {
		return Spec{}, err
	}
	return Spec{name: name, flags: bits}, nil
}

// parseFlags checks each flag against the algorithm and joins their bits.
func parseFlags(a Algorithm, flags string) (uint32, error) {
	var bits uint32
	if strings.TrimSpace(flags) == "" {
		switch a.Name {
		case "mh":
			return flagBits["mh-fallback"] | flagBits["mh-port"], nil
		case "sh":
			return flagBits["sh-fallback"], nil
		}
		return 0, nil
	}
	for f := range strings.SplitSeq(flags, ",") {
		f = strings.ToLower(strings.TrimSpace(f))
		if f == "" {
			continue
		}
		if !slices.Contains(a.Flags, f) {
			return 0, fmt.Errorf("%w %q for scheduler %q: %s", ErrFlag, f, a.Name, a.flagHelp())
		}
		bits |= flagBits[f]
	}
	return bits, nil
}

func (a Algorithm) flagHelp() string {
	if len(a.Flags) == 0 {
		return "it takes none"
	}
	return "use " + strings.Join(a.Flags, " or ")
}

// MustParse is Parse for constants in programs and tests; it panics on an error.
func MustParse(name string) Spec {
	s, err := Parse(name, "")
	if err != nil {
		panic(err)
	}
	return s
}

// Plain is the same algorithm without flags.
func (s Spec) Plain() Spec { return Spec{name: s.name} }

// Name is the name the kernel knows the algorithm by.
func (s Spec) Name() string { return s.name }

// KernelFlags are the bits to set in the flags of a virtual server
// (IPVS_SVC_ATTR_FLAGS).
func (s Spec) KernelFlags() uint32 { return s.flags }

// Algorithm describes the chosen algorithm; the zero value for the zero Spec.
func (s Spec) Algorithm() Algorithm {
	a, _ := Lookup(s.name)
	return a
}

// FlagNames lists the set flags by name, sorted.
func (s Spec) FlagNames() []string {
	return NamesOfFlags(s.name, s.flags)
}

// NamesOfFlags names the scheduler flags among the flag bits of a virtual server that runs the
// named algorithm; other bits are ignored.
func NamesOfFlags(name string, bits uint32) []string {
	a, _ := Lookup(name)
	var names []string
	for _, f := range a.Flags {
		if bits&flagBits[f] != 0 {
			names = append(names, f)
		}
	}
	slices.Sort(names)
	return names
}

// IsZero reports whether no algorithm was chosen.
func (s Spec) IsZero() bool { return s.name == "" }

// String prints the choice the way Parse reads it: "mh (mh-fallback,mh-port)".
func (s Spec) String() string {
	if names := s.FlagNames(); len(names) > 0 {
		return s.name + " (" + strings.Join(names, ",") + ")"
	}
	return s.name
}
