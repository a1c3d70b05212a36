package plan

import (
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// bindDetours decides where the clients of this node are taken from external
// frontends under policy Local: to the cluster IP, which has all endpoints. If
// internalTrafficPolicy is Local, too, it has not; then a Detour frontend stands
// beside it, on a port that the Service does not have.
func (j *job) bindDetours(out []binding) []binding {
	if !j.svc.ExternalLocal {
		return out
	}
	for _, f := range model.Families() {
		for i, p := range j.ports {
			g := j.group(i, f)
			if !g.external {
				continue
			}
			key := model.FrontendKey{Addr: j.side(f).clusterIP, Port: p.Port, Protocol: p.Protocol}
			if j.svc.InternalLocal {
				key.Port = shadowPort(j.ports, i)
				out = append(out, binding{key: key, kind: model.KindDetour, port: i, bind: j.side(f).bind})
			}
			g.detour = netip.AddrPortFrom(key.Addr, key.Port)
		}
	}
	return out
}

// shadowPort is where the Detour frontend of the port at a place stands: the
// first port of a protocol takes the highest number that is free, the second
// the next. It depends on the ports alone, so that nothing moves when endpoints
// or addresses come and go. There is always one: no object holds 65,535 ports.
func shadowPort(ports []model.ServicePort, place int) uint16 {
	before := 0
	for _, p := range ports[:place] {
		if p.Protocol == ports[place].Protocol {
			before++
		}
	}
	free := uint16(65535)
	for ; free > 1; free-- {
		if isTaken(ports, ports[place].Protocol, free) {
			continue
		}
		if before == 0 {
			break
		}
		before--
	}
	return free
}

// isTaken tells whether the Service itself answers on a number over a protocol.
// Its node ports count, too: the node might hold the cluster IP.
func isTaken(ports []model.ServicePort, proto model.Protocol, number uint16) bool {
	return slices.ContainsFunc(ports, func(p model.ServicePort) bool {
		return p.Protocol == proto && (p.Port == number || p.NodePort == number)
	})
}
