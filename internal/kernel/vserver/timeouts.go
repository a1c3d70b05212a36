package vserver

import (
	"context"
	"fmt"
	"math"
	"time"
)

// Timeouts are the idle times after which IPVS drops a connection; they are
// common to all servers of the network namespace. The kernel keeps whole
// seconds.
type Timeouts struct {
	TCP    time.Duration // established
	TCPFin time.Duration // after the first FIN
	UDP    time.Duration
}

// Rounded returns the values for the kernel: full seconds, rounded up, since a shorter time cut to
// 0 would mean "leave it as it is". Negative times, and those that the kernel's number cannot hold,
// fail with ErrInvalid.
func (t Timeouts) Rounded() (Timeouts, error) {
	for _, d := range []*time.Duration{&t.TCP, &t.TCPFin, &t.UDP} {
		if *d < 0 || *d > math.MaxInt32*time.Second {
			return Timeouts{}, fmt.Errorf("timeout %s: %w", *d, ErrInvalid)
		}
		*d = (*d + time.Second - 1).Truncate(time.Second)
	}
	return t, nil
}

// Timeouts reads the idle times in force.
func (h *Handle) Timeouts(ctx context.Context) (Timeouts, error) {
	t, answered := Timeouts{}, false
	err := h.configure(ctx, cmdGetConfig, func(*buffer) {}, func(_ int, m message) (err error) {
		t, err = readTimeouts(m)
		answered = true
		return err
	})
	if err == nil && !answered {
		err = fmt.Errorf("%w: no timeouts", errMalformed)
	}
	if err != nil {
		return Timeouts{}, fmt.Errorf("get ipvs timeouts: %w", err)
	}
	return t, nil
}

// SetTimeouts changes the idle times; 0 leaves one as it is, and parts of a
// second are rounded up.
func (h *Handle) SetTimeouts(ctx context.Context, t Timeouts) error {
	t, err := t.Rounded()
	if err == nil {
		err = h.configure(ctx, cmdSetConfig, func(b *buffer) {
			b.u32(attrTimeoutTCP, uint32(t.TCP/time.Second))
			b.u32(attrTimeoutFin, uint32(t.TCPFin/time.Second))
			b.u32(attrTimeoutUDP, uint32(t.UDP/time.Second))
		}, noData)
	}
	if err != nil {
		return fmt.Errorf("set ipvs timeouts: %w", err)
	}
	return nil
}

// configure sends one command about the settings of IPVS, which the kernel answers at once.
func (h *Handle) configure(ctx context.Context, cmd uint8, encode func(*buffer), data func(int, message) error) error {
	if err := h.ready(ctx); err != nil {
		return err
	}
	var c chunk
	mark := h.begin(&c, cmd)
	encode(&h.out)
	h.out.end(mark)
	answers, err := h.exchange(ctx, c, data)
	if err == nil && answers[0].errno != 0 {
		err = h.readFault(answers[0])
	}
	return err
}

// readTimeouts reads seconds. A kernel without a protocol leaves its attributes out (ip_vs_genl_get_cmd).
func readTimeouts(m message) (t Timeouts, err error) {
	body, err := m.attributes()
	if err != nil {
		return t, err
	}
	f, err := readFields(body)
	if err != nil {
		return t, err
	}
	for kind, to := range map[int]*time.Duration{attrTimeoutTCP: &t.TCP, attrTimeoutFin: &t.TCPFin, attrTimeoutUDP: &t.UDP} {
		if f[kind] == nil {
			continue
		}
		seconds, err := f.u32(kind)
		if err != nil {
			return Timeouts{}, err
		}
		*to = time.Duration(seconds) * time.Second
	}
	return t, nil
}
