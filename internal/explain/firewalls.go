package explain

import (
	"fmt"
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/firewall"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// JudgeFirewalls adds what the filters of other programs do with packets to the frontends of a
// story. It judges each frontend alone for its packets, and all together for the remedy.
// Endpoints on this node count as pods that are clients.
func (found *Found) JudgeFirewalls(s *agent.Report, tables []firewall.Table, facts firewall.Facts) {
	found.Walls = map[string][]Wall{}
	var all []firewall.Frontend
	for i := range s.Services {
		one := &s.Services[i]
		backends, pods := clientsAndBackends(one, s.Node)
		facts.Pods = append(facts.Pods, pods...)
		for _, f := range one.Frontends {
			key, err := model.ParseFrontendKey(f.Key)
			kind, dialled := firewall.KindOf(f.Kind)
			if err != nil || !dialled || len(f.Paths) == 0 || f.Taking == 0 {
				continue
			}
			asked := firewall.Frontend{Service: one.Name, Kind: kind, Addr: key.Addr, Port: key.Port, Protocol: uint8(key.Protocol), Backend: backends[key.Addr.Is6()]}
			all = append(all, asked)
			for _, b := range firewall.Judge(tables, []firewall.Frontend{asked}, facts).Blocks {
				found.Walls[f.Key] = append(found.Walls[f.Key], wallOf(b))
			}
		}
	}
	r := firewall.Judge(tables, all, facts)
	found.Unclear = append(r.Unclear, r.Unread...)
	for _, b := range r.Blocks {
		found.Firewalls = append(found.Firewalls, Firewall{What: b.String(), Fix: b.Fix})
	}
}

func wallOf(b firewall.Block) Wall {
	w := Wall{Where: fmt.Sprintf("%s hook, %s", b.Hook, b.Cause), Reply: b.Reply}
	for _, from := range b.From {
		w.From = append(w.From, map[string]dataplane.Origin{firewall.FromPods: dataplane.FromPod, firewall.FromOutside: dataplane.FromOutside}[from])
	}
	return w
}

// clientsAndBackends returns an endpoint of each family (true is IPv6) that takes connections, and all
// endpoints that are pods of a node.
func clientsAndBackends(s *agent.ServiceReport, node string) (all map[bool]netip.AddrPort, pods []netip.Addr) {
	all = map[bool]netip.AddrPort{}
	for _, p := range s.Ports {
		for _, e := range p.Endpoints {
			if v := e.Cluster; v != nil && v.Use.Backend() || e.Local != nil && e.Local.Use.Backend() {
				all[e.Address.Addr().Is6()] = e.Address
			}
			if e.Node == node {
				pods = append(pods, e.Address.Addr())
			}
		}
	}
	return all, pods
}
