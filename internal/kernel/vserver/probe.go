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

// Probe finds out whether the kernel supports a scheduler by creating a server with it. The kernel
// loads a scheduler's module on first use, so no list of modules shows it. It fails with
// ErrUnsupported where the scheduler is missing. One left over by a crash is taken over and
// removed.
func (h *Handle) Probe(ctx context.Context, scheduler string) error {
	return ProbeWith(ctx, h, scheduler)
}

// ErrNoGUE means that the kernel knows one kind of tunnel, and takes a row that asks for another for that one.
var ErrNoGUE = fmt.Errorf("IPVS wraps packets in IP alone before Linux 5.3: %w", ErrUnsupported)

// ProbeGUE finds out whether the kernel forwards by TunnelGUE: it fails with ErrNoGUE where it does not. An older kernel reads over what
// it does not know (ip_vs_genl_parse_dest), so a destination is written and read again.
func (h *Handle) ProbeGUE(ctx context.Context) error { return ProbeGUEWith(ctx, h) }

// Prober is the part of a Handle, or of its fake, that ProbeGUEWith needs.
type Prober interface {
	ServerWriter
	WriteDestinations(context.Context, []DestinationChange) []error
	ListDestinations(context.Context, ServerKey) (map[DestinationKey]Destination, error)
}

// ProbeGUEWith is ProbeGUE through any writer.
func ProbeGUEWith(ctx context.Context, p Prober) error {
	// Removed in any case, with its destination, also when an outcome is unknown or ctx ended.
	defer p.WriteServers(context.WithoutCancel(ctx), []ServerChange{{Op: Delete, Key: ProbeKey}})
	if errs := p.WriteServers(ctx, []ServerChange{{Op: Add, Key: ProbeKey, Server: Server{Scheduler: "rr"}}}); errs != nil {
		return fmt.Errorf("probe tunnels by GUE: %w", errs[0])
	}
	k := DestinationKey{Server: ProbeKey, Addr: ProbeKey.Addr.Next(), Port: ProbeKey.Port}
	want := Destination{Forward: ForwardTunnel, Tunnel: TunnelGUE, TunnelPort: ProbeKey.Port}
	if errs := p.WriteDestinations(ctx, []DestinationChange{{Op: Add, Key: k, Destination: want}}); errs != nil {
		return fmt.Errorf("probe tunnels by GUE: %w", errs[0])
	}
	switch got, err := p.ListDestinations(ctx, ProbeKey); {
	case err != nil:
		return fmt.Errorf("probe tunnels by GUE: %w", err)
	case got[k] != want:
		return ErrNoGUE
	}
	return nil
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
