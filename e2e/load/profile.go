package load

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// Profile is what a run does.
type Profile struct {
	To      netip.AddrPort
	Sources []netip.Addr // clients, used in turn; none: the kernel's choice
	Ports   Ports        // source ports of new connections; the zero value: the kernel's choice
	New     float64      // new connections a second
	Long    int          // connections held open

	Every   time.Duration // between two requests on each of the long ones
	Timeout time.Duration // from the start of a connection to its answer, and of each later request to its answer

	// Reset ends connections with a reset instead of in order, as clients do that are in a hurry: their port is free at once.
	Reset bool

	// Enter calls a function on a thread that is where the sockets have to be, a network namespace say, and returns what it
	// returned. It is called once, for the whole run. Nil: here.
	Enter func(func() error) error
}

// Ports is a range of source ports that each client goes through again and again, both ends included.
//
// A port whose last connection to the same address is in TIME_WAIT is skipped, because the client's
// kernel refuses it. Ports are free again at once with Reset, after a second if the client has
// net.ipv4.tcp_tw_reuse=1, and after a minute otherwise.
type Ports struct{ First, Last uint16 }

// count is how many ports there are, none for the zero value.
func (p Ports) count() int {
	if p == (Ports{}) {
		return 0
	}
	return int(p.Last) - int(p.First) + 1
}

// validate joins all mistakes.
func (p Profile) validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !p.To.IsValid() || p.To.Port() == 0 {
		wrong("address %v: want one with a port", p.To)
	}
	for _, s := range p.Sources {
		if s.Is4() != p.To.Addr().Is4() {
			wrong("source %s is not of the family of %s", s, p.To)
		}
	}
	if p.Ports != (Ports{}) && (p.Ports.First == 0 || p.Ports.First > p.Ports.Last) {
		wrong("source ports %d to %d: want a range above 0", p.Ports.First, p.Ports.Last)
	}
	if p.New < 0 || p.Long < 0 || p.New == 0 && p.Long == 0 {
		wrong("%g new connections a second and %d long ones: want some of either", p.New, p.Long)
	}
	if p.Timeout <= 0 {
		wrong("timeout %s: want more than 0", p.Timeout)
	}
	if p.Long > 0 && p.Every <= 0 {
		wrong("a request every %s: want more than 0 for long connections", p.Every)
	}
	return errors.Join(errs...)
}
