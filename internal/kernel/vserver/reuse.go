package vserver

import "fmt"

// ReuseOutcome is what one value of net.ipv4.vs.conn_reuse_mode does to a client
// that opens a connection from a source port whose last connection is over, but
// not forgotten by IPVS: behind address translation, or with thousands of
// connections a minute, most are of this kind.
type ReuseOutcome struct {
	// Prompt: it is answered. Otherwise the kernel drops its first packet, and
	// the client tries again after a second.
	Prompt bool
	// LeavesDrained: where the last connection's destination has weight 0 by now,
	// it reaches another one, without a lost packet either.
	LeavesDrained bool
}

// String says it as the end of "a reused source port is ...".
func (o ReuseOutcome) String() string {
	switch o {
	case ReuseOutcome{Prompt: true, LeavesDrained: true}:
		return "answered at once and kept from draining destinations"
	case ReuseOutcome{Prompt: true}:
		return "answered at once, but led to draining destinations too"
	case ReuseOutcome{LeavesDrained: true}:
		return "answered a second late, though kept from draining destinations"
	default:
		return "answered a second late"
	}
}

// worth puts outcomes in order. A lost packet comes before a draining
// destination, because it meets every reused port all the time: a client with
// more connections than ports in two minutes is slowed down to one connection a
// second and port. A draining destination is met only while one drains. It mostly
// still serves, and once it is deleted expire_nodest_conn ends what leads to it.
// Kernels that cannot do both are the ones for which kube-proxy sets mode 0, for
// the same reason.
func (o ReuseOutcome) worth() int {
	worth := 0
	if o.Prompt {
		worth += 2
	}
	if o.LeavesDrained {
		worth++
	}
	return worth
}

// Reuse is what a kernel does under the two values of conn_reuse_mode that suit
// address translation; see ProbeReuse.
type Reuse struct {
	Mode0, Mode1 ReuseOutcome
	// Default is the value that a new network namespace starts with.
	Default int
}

// Best chooses the value to set: the one under which the kernel does better, and
// among equals the kernel's own. Why is for people.
func (r Reuse) Best() (mode int, why string) {
	modes := [2]ReuseOutcome{r.Mode0, r.Mode1}
	own := 1
	if r.Default == 0 {
		own = 0
	}
	switch order := modes[0].worth() - modes[1].worth(); {
	case order > 0:
		mode = 0
	case order < 0:
		mode = 1
	default:
		return own, fmt.Sprintf("a reused source port is %s, with 0 as with 1; %d is the kernel's own", modes[own], own)
	}
	return mode, fmt.Sprintf("a reused source port is %s; with %d it is %s", modes[mode], 1-mode, modes[1-mode])
}

// String prints what was found, in one line.
func (r Reuse) String() string {
	return fmt.Sprintf("conn_reuse_mode 0: %s; 1: %s; the kernel's own: %d", r.Mode0, r.Mode1, r.Default)
}
