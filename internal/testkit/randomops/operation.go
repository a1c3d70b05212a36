package randomops

import (
	"slices"
	"strings"
)

// Verb is a kind of operation.
type Verb string

// The verbs. The meaning of Args and Text is given with each.
const (
	Put    Verb = "put"     // Args[0]: a manifest, replaced by Text
	Remove Verb = "remove"  // Args[0]: a manifest
	Spoil  Verb = "spoil"   // Args[0]: a manifest that cannot be read until it is put again, or all is quiet
	Host   Verb = "host"    // Args: all addresses of the machine
	Hops   Verb = "gateway" // Args: the next hops of its default routes
	Stop   Verb = "stop"    // the agent, by SIGTERM; another starts with Args as its flags
	Kill   Verb = "kill"    // the same by SIGKILL
	Fault  Verb = "fault"   // Args: a kernel package and how its calls fail, in the words of scenarios
	Damage Verb = "damage"  // Args: a command of another program on the kernel
	Look   Verb = "look"    // wait until the loop comes round
	Quiet  Verb = "quiet"   // end what stands in the way, and compare
)

// Operation is one thing that happens to a node.
type Operation struct {
	Verb Verb
	Args []string
	Text string
}

// String is one line.
func (o Operation) String() string {
	return strings.TrimSpace(string(o.Verb) + " " + strings.Join(o.Args, " "))
}

// Walk is a sequence of operations, and how the node is before the first of them. It is
// not changed any more once it is made.
type Walk struct {
	Seed uint64
	// Flags are those of the first agent.
	Flags []string
	// Foreign: another program has rows of all kinds in the kernel.
	Foreign bool
	Ops     []Operation
}

// state is the state that decides whether an operation can be done.
type state struct {
	files  map[string]bool // true: cannot be read
	flags  []string
	marked []string // damages to marks since the last quiet point
}

func (w Walk) begin() *state { return &state{files: map[string]bool{}, flags: w.Flags} }

// feasible are the operations that can be done where they stand.
func (w Walk) feasible() []Operation {
	s := w.begin()
	var out []Operation
	for _, o := range w.Ops {
		if s.allows(o) {
			s.follow(o)
			out = append(out, o)
		}
	}
	return out
}

func (s *state) allows(o Operation) bool {
	switch o.Verb {
	case Remove, Spoil:
		_, there := s.files[o.Args[0]]
		return there
	case Damage:
		return slices.Contains(damages[modeOf(s.flags)], o.String()[len(Damage)+1:]) && s.knowable(o)
	}
	return true
}

// follow notes what an operation does.
func (s *state) follow(o Operation) {
	switch o.Verb {
	case Put, Spoil:
		s.files[o.Args[0]] = o.Verb == Spoil
	case Remove:
		delete(s.files, o.Args[0])
	case Stop, Kill:
		s.flags = o.Args
	case Damage:
		if text := o.String()[len(Damage)+1:]; slices.Contains(marks, text) {
			s.marked = append(s.marked, text)
		}
	case Quiet:
		s.marked = nil
		for _, name := range s.bad() {
			delete(s.files, name)
		}
	}
}

// bad are the files that cannot be read, sorted.
func (s *state) bad() (names []string) {
	for name, bad := range s.files {
		if bad {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// knowable reports whether a damage leaves a mark by which a new agent recognizes a virtual server
// as ours. There are three: its address on the device, which an agent that is about to remove the
// server takes away itself, and two entries. So one entry has to stay.
func (s *state) knowable(o Operation) bool {
	text := o.String()[len(Damage)+1:]
	return !slices.Contains(marks, text) || !slices.ContainsFunc(s.marked, func(m string) bool { return m != text })
}

// The modes by the values of --proxy-mode.
const (
	modeIPVS     = "ipvs"
	modeIPTables = "iptables"
)

func modeOf(flags []string) string {
	if slices.Contains(flags, "--proxy-mode="+modeIPTables) {
		return modeIPTables
	}
	return modeIPVS
}
