package plan

import (
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// bindDetours decides where packets from this node are redirected if they are for an external
// frontend under policy Local, or for one whose backends answer clients directly. The target is the
// cluster IP, which has all endpoints. If internalTrafficPolicy is Local, too, the cluster IP lacks
// endpoints; then a Detour frontend is added on its address, on a port that the Service does not
// have.
func (b *binder) bindDetours() {
	if !b.svc.ExternalLocal && b.asked().Forward == model.ForwardNAT {
		return
	}
	var shadows []uint16
	if b.svc.InternalLocal {
		shadows = shadowPorts(b.ports)
	}
	for _, f := range model.Families() {
		for i, p := range b.ports {
			g := b.group(i, f)
			if !g.external {
				continue
			}
			key := model.FrontendKey{Addr: b.family(f).clusterIP, Port: p.Port, Protocol: p.Protocol}
			if b.svc.InternalLocal {
				key.Port = shadows[i]
				b.take(binding{key: key, kind: model.KindDetour, port: i, bind: b.family(f).bind})
			}
			g.detour = netip.AddrPortFrom(key.Addr, key.Port)
		}
	}
}

// shadowPorts are the ports of the Detour frontends: each is the number of its own port with the
// highest bit inverted. No other port affects it, so it does not change when ports, endpoints or
// addresses come and go. If the Service itself uses that number, the next free one below is taken.
func shadowPorts(ports []model.ServicePort) []uint16 {
	type number struct {
		proto model.Protocol
		port  uint16
	}
	// Node ports are taken, too: the node might hold the cluster IP.
	taken := make(map[number]bool, 4*len(ports))
	for _, p := range ports {
		taken[number{p.Protocol, p.Port}] = true
		taken[number{p.Protocol, p.NodePort}] = true
		taken[number{p.Protocol, 0}] = true
	}
	out := make([]uint16, len(ports))
	for i, p := range ports {
		shadow := p.Port ^ 1<<15
		for n := 0; n < 1<<16 && taken[number{p.Protocol, shadow}]; n++ {
			shadow--
		}
		taken[number{p.Protocol, shadow}] = true
		out[i] = shadow
	}
	return out
}
