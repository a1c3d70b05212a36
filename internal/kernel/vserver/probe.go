package vserver

import (
	"context"
	"fmt"
	"net/netip"
)

// ProbeKey is the server that Probe makes and removes, the one kube-proxy uses
// too. Its address is set aside for documentation (TEST-NET-2) and must never
// be a real VIP.
var ProbeKey = ServerKey{Addr: netip.AddrFrom4([4]byte{198, 51, 100, 0}), Port: 20000, Protocol: ProtocolTCP}

// Probe finds out whether the kernel balances with a scheduler, by making a
// server with it: the kernel loads a scheduler's module on first use, so no
// list of modules tells. It fails with ErrUnsupported where the scheduler is
// missing. One left over by a crash is taken over and removed.
func (h *Handle) Probe(ctx context.Context, scheduler string) error {
	return ProbeWith(ctx, h, scheduler)
}

// ServerWriter is the part of a Handle, or of its fake, that ProbeWith needs.
type ServerWriter interface {
	WriteServers(context.Context, []ServerChange) []error
}

// ProbeWith is Probe through any writer.
func ProbeWith(ctx context.Context, w ServerWriter, scheduler string) error {
	added := w.WriteServers(ctx, []ServerChange{{Op: Add, Key: ProbeKey, Server: Server{Scheduler: scheduler}}})
	// Removed in any case, also when the add's outcome is unknown or ctx ended.
	removed := w.WriteServers(context.WithoutCancel(ctx), []ServerChange{{Op: Delete, Key: ProbeKey}})
	for _, errs := range [][]error{added, removed} {
		if errs != nil {
			return fmt.Errorf("probe scheduler %q: %w", scheduler, errs[0])
		}
	}
	return nil
}
