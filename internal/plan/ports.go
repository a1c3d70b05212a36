package plan

import (
	"cmp"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// usablePorts lists the ports of the Service that have a number, sorted, each
// number of a protocol once, and notes the others. The API admits no such
// ports, but not everything comes through the API.
func (j *compilation) usablePorts() []model.ServicePort {
	if inOrder(j.svc.Ports) {
		return j.svc.Ports
	}
	sorted := slices.Clone(j.svc.Ports)
	slices.SortFunc(sorted, comparePorts)
	kept := sorted[:0]
	for _, p := range sorted {
		n := len(kept)
		switch {
		case p.Port == 0:
			j.notes.addf(model.PortWithoutNumber, "port %q is not served: it has no number", p.Name)
		case n > 0 && kept[n-1].Port == p.Port && kept[n-1].Protocol == p.Protocol:
			j.notes.addf(model.PortTwice, "port %d/%s is listed twice: %q is not served", p.Port, p.Protocol, p.Name)
		default:
			kept = append(kept, p)
		}
	}
	return kept
}

// inOrder reports whether all ports can be used without changes, which is the usual case.
func inOrder(ports []model.ServicePort) bool {
	last := model.ServicePort{}
	for _, p := range ports {
		if p.Port == 0 || cmp.Or(cmp.Compare(last.Port, p.Port), cmp.Compare(last.Protocol, p.Protocol)) >= 0 {
			return false
		}
		last = p
	}
	return true
}

// comparePorts orders by number and protocol. The rest decides between two that
// an object lists with one number.
func comparePorts(a, b model.ServicePort) int {
	return cmp.Or(
		cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol),
		cmp.Compare(a.Name, b.Name), cmp.Compare(a.NodePort, b.NodePort),
	)
}
