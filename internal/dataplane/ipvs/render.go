package ipvs

import (
	"net/netip"
	"slices"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// This file turns a frontend into its server and destinations, which belong to it alone.

// bound lists the addresses that a frontend has bound, one or none.
func bound(f *model.Frontend) map[netip.Addr]struct{} {
	if f == nil || !f.Bind {
		return nil
	}
	return map[netip.Addr]struct{}{f.Key.Addr: {}}
}

// backends lists those of a frontend; nil has none.
func backends(f *model.Frontend) []model.Backend {
	if f == nil {
		return nil
	}
	return f.Backends
}

// weighs finds the weight of a backend in a list, which is sorted.
func weighs(list []model.Backend, to netip.AddrPort) (weight uint16, found bool) {
	i, found := slices.BinarySearchFunc(list, to, func(b model.Backend, to netip.AddrPort) int { return b.Addr.Compare(to) })
	if !found {
		return 0, false
	}
	return list[i].Weight, true
}

func destinationKey(server vserver.ServerKey, to netip.AddrPort) vserver.DestinationKey {
	return vserver.DestinationKey{Server: server, Addr: to.Addr(), Port: to.Port()}
}

func renderServer(f model.Frontend) vserver.Server {
	s := vserver.Server{Scheduler: f.Scheduler.Name(), Flags: f.Scheduler.KernelFlags()}
	if f.Affinity > 0 {
		s.Flags |= vserver.FlagPersistent
		s.Timeout = uint32(f.Affinity / time.Second)
	}
	if f.OnePacket {
		s.Flags |= vserver.FlagOnePacket
	}
	return s
}

var forwards = map[model.Forward]uint8{
	model.ForwardNAT: vserver.ForwardMasq, model.ForwardDirect: vserver.ForwardRoute, model.ForwardTunnel: vserver.ForwardTunnel,
}

func renderDestination(f *model.Frontend, weight uint16) vserver.Destination {
	d := vserver.Destination{Weight: weight, Forward: forwards[f.Forward], Upper: f.Limit.Upper, Lower: f.Limit.Lower}
	if f.GUE != 0 {
		d.Tunnel, d.TunnelPort = vserver.TunnelGUE, f.GUE
	}
	return d
}
