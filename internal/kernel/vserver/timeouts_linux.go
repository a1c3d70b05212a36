package vserver

import (
	"context"
	"fmt"

	"github.com/moby/ipvs"
)

// Timeouts reads the idle times in force.
func (h *Handle) Timeouts(ctx context.Context) (Timeouts, error) {
	c, err := callLibrary(ctx, h, func(l *ipvs.Handle) (*ipvs.Config, error) { return l.GetConfig() })
	if err != nil {
		return Timeouts{}, fmt.Errorf("get ipvs timeouts: %w", err)
	}
	return Timeouts{TCP: c.TimeoutTCP, TCPFin: c.TimeoutTCPFin, UDP: c.TimeoutUDP}, nil
}

// SetTimeouts changes the idle times; 0 leaves one as it is, and parts of a
// second are rounded up.
func (h *Handle) SetTimeouts(ctx context.Context, t Timeouts) error {
	t, err := t.Rounded()
	if err == nil {
		config := &ipvs.Config{TimeoutTCP: t.TCP, TimeoutTCPFin: t.TCPFin, TimeoutUDP: t.UDP}
		_, err = callLibrary(ctx, h, func(l *ipvs.Handle) (struct{}, error) { return struct{}{}, l.SetConfig(config) })
	}
	if err != nil {
		return fmt.Errorf("set ipvs timeouts: %w", err)
	}
	return nil
}

// callLibrary makes one call on a library handle of its own. The library waits
// for ever when an answer is lost, and closing its handle is the way to end
// that: its receive looks every three seconds whether it is still open.
func callLibrary[T any](ctx context.Context, h *Handle, use func(*ipvs.Handle) (T, error)) (T, error) {
	var none T
	if err := h.free(); err != nil {
		return none, err
	}
	var library *ipvs.Handle
	err := h.opener.within(func() (err error) {
		library, err = ipvs.New("")
		return err
	})
	if err != nil {
		return none, err
	}
	defer library.Close()
	return bounded(ctx, h, func() (T, error) { return use(library) })
}
