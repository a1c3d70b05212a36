package vserver

import (
	"fmt"
	"time"
)

// Timeouts are the idle times after which IPVS forgets a connection; they are
// common to all servers of the network namespace. The kernel keeps whole
// seconds.
type Timeouts struct {
	TCP    time.Duration // established
	TCPFin time.Duration // after the first FIN
	UDP    time.Duration
}

// Rounded gives what the kernel would be told: full seconds, rounded up, since
// a shorter time cut to 0 would mean "leave it as it is". Negative times fail
// with ErrInvalid.
func (t Timeouts) Rounded() (Timeouts, error) {
	for _, d := range []*time.Duration{&t.TCP, &t.TCPFin, &t.UDP} {
		if *d < 0 {
			return Timeouts{}, fmt.Errorf("timeout %s: %w", *d, ErrInvalid)
		}
		*d = (*d + time.Second - 1).Truncate(time.Second)
	}
	return t, nil
}
