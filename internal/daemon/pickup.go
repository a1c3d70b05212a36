package daemon

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/sysctl"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// pickup has the sysctls by which IPVS picks up connections that other nodes began. Only the loop
// uses it, but for states.
type pickup struct {
	wanted []model.Protocol
	// inForce has the wanted protocols, and whether the kernel has the sysctl of each.
	inForce atomic.Pointer[map[model.Protocol]bool]
}

// states returns for each wanted protocol, whether its sysctl is in force. Any
// goroutine may call it.
func (p *pickup) states() map[string]bool {
	out := map[string]bool{}
	if now := p.inForce.Load(); now != nil {
		for protocol, on := range *now {
			out[protocol.String()] = on
		}
	}
	return out
}

// pickupOf implements ipvs.Pickup.
type pickupOf struct{ of *kernel }

// Want implements ipvs.Pickup.
func (p pickupOf) Want(ctx context.Context, protocols []model.Protocol) {
	k := p.of
	k.pickup.wanted = protocols
	var others []string
	for i, key := range sysctl.PickupKeys() {
		if !slices.Contains(protocols, pickupProtocols[i]) {
			others = append(others, key)
		}
	}
	k.sysctls.RestoreKeys(ctx, others...) // each is logged
	k.keepPickup(ctx)
}

// InForce implements ipvs.Pickup.
func (p pickupOf) InForce(protocol model.Protocol) bool {
	now := p.of.pickup.inForce.Load()
	return now != nil && (*now)[protocol]
}

// pickupProtocols are in the order of sysctl.PickupKeys.
var pickupProtocols = []model.Protocol{model.TCP, model.SCTP}

// keepPickup sets the sysctls of the wanted protocols where the kernel has another value.
func (k *kernel) keepPickup(ctx context.Context) {
	p, now := &k.pickup, map[model.Protocol]bool{}
	if len(p.wanted) > 0 {
		results := k.sysctls.Apply(ctx, sysctl.PickupSysctls(slices.Contains(p.wanted, model.TCP), slices.Contains(p.wanted, model.SCTP)))
		for i, protocol := range p.wanted { // in the same order
			now[protocol] = results[i].Outcome == sysctl.Right || results[i].Outcome == sysctl.Changed
		}
	}
	p.inForce.Store(&now)
}
