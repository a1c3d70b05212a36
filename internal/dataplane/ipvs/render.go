package ipvs

import (
	"net/netip"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// rendering is one frontend as rows. Destinations belong to their frontend
// alone; addresses and entries may be shared with others.
type rendering struct {
	key          vserver.ServerKey
	server       vserver.Server
	destinations map[vserver.DestinationKey]vserver.Destination
	addresses    map[netip.Addr]struct{}
	members      map[memberKey]struct{}
}

func frontendKey(k vserver.ServerKey) model.FrontendKey {
	return model.FrontendKey{Addr: k.Addr, Port: k.Port, Protocol: model.Protocol(k.Protocol)}
}

func serverKey(k model.FrontendKey) vserver.ServerKey {
	return vserver.ServerKey{Addr: k.Addr, Port: k.Port, Protocol: uint8(k.Protocol)}
}

// render turns a frontend into rows.
func render(f model.Frontend) rendering {
	r := rendering{
		key:          serverKey(f.Key),
		server:       renderServer(f),
		destinations: make(map[vserver.DestinationKey]vserver.Destination, len(f.Backends)),
		members:      renderMembers(f),
	}
	if f.Bind {
		r.addresses = map[netip.Addr]struct{}{f.Key.Addr: {}}
	}
	for _, b := range f.Backends {
		r.destinations[destinationKey(r.key, b.Addr)] = vserver.Destination{Weight: b.Weight}
	}
	return r
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
	return s
}
