package destinations

import (
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// backends lists those of a frontend; nil has none.
func backends(f *model.Frontend) []model.Backend {
	if f == nil {
		return nil
	}
	return f.Backends
}

// weightOf finds the weight of a backend in a list, which is sorted.
func weightOf(list []model.Backend, to netip.AddrPort) (weight uint16, found bool) {
	i, found := slices.BinarySearchFunc(list, to, func(b model.Backend, to netip.AddrPort) int { return b.Addr.Compare(to) })
	if !found {
		return 0, false
	}
	return list[i].Weight, true
}

// Key names the destination of a server at an address and port.
func Key(server vserver.ServerKey, to netip.AddrPort) vserver.DestinationKey {
	return vserver.DestinationKey{Server: server, Addr: to.Addr(), Port: to.Port()}
}

func backendOf(k vserver.DestinationKey) netip.AddrPort { return netip.AddrPortFrom(k.Addr, k.Port) }

var forwards = map[model.Forward]uint8{
	model.ForwardNAT: vserver.ForwardMasq, model.ForwardDirect: vserver.ForwardRoute, model.ForwardTunnel: vserver.ForwardTunnel,
}

func render(f *model.Frontend, weight uint16) vserver.Destination {
	d := vserver.Destination{Weight: weight, Forward: forwards[f.Forward], Upper: f.Limit.Upper, Lower: f.Limit.Lower}
	if f.GUE != 0 {
		d.Tunnel, d.TunnelPort = vserver.TunnelGUE, f.GUE
	}
	return d
}
