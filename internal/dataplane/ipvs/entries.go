package ipvs

import (
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// This file lists the set entries of a frontend, by kind and traffic policy as in kube-proxy's
// ipvs mode, and the entries that its server and other rows depend on.

// entryList collects entries of one family.
type entryList struct {
	family model.Family
	list   []memberKey
}

// add puts an entry on the list.
func (l *entryList) add(set string, e ipset.Entry) {
	l.list = append(l.list, memberKey{setName(l.family, set), e})
}

// here is the entry that names a server by address, protocol and port.
func here(k model.FrontendKey) ipset.Entry {
	return ipset.IPPort(k.Addr, uint8(k.Protocol), k.Port)
}

// guards lists the entries without which a frontend's server must not be there:
// those that keep clients out, those that have its traffic masqueraded and
// accepted, and those that tell a next process that the server is ours.
func guards(f *model.Frontend) []memberKey {
	l := entryList{family: model.FamilyOf(f.Key.Addr), list: make([]memberKey, 0, 2+len(f.Hairpin))}
	if f.NoLocal {
		l.add(setNoLocal, here(f.Key))
	}
	switch f.Kind {
	case model.KindClusterIP:
		l.add(setClusterIP, here(f.Key))
	case model.KindExternalIP:
		l.add(pick(keepsClient(f), setExternalIPLocal, setExternalIP), here(f.Key))
	case model.KindLoadBalancer:
		l.loadBalancer(f)
	case model.KindNodePort:
		l.nodePort(f)
	case model.KindDetour:
		l.add(setDetourEnd, here(f.Key))
	}
	if f.Bind {
		l.add(setIPVSIPs, ipset.IP(f.Key.Addr))
	}
	return l.list
}

// loadBalancer adds the ranges before what makes them count.
func (l *entryList) loadBalancer(f *model.Frontend) {
	seen := make(map[netip.Prefix]struct{}, len(f.SourceRanges))
	for _, r := range f.SourceRanges {
		if _, twice := seen[r]; twice {
			continue
		}
		seen[r] = struct{}{}
		l.add(setSourceCIDR, ipset.IPPortNet(f.Key.Addr, uint8(f.Key.Protocol), f.Key.Port, r))
	}
	if len(f.SourceRanges) > 0 {
		l.add(setLoadBalancerFW, here(f.Key))
		if f.OwnNode { // the host dials a load-balancer address from that very address
			l.add(setSourceIP, ipset.IPPortIP(f.Key.Addr, uint8(f.Key.Protocol), f.Key.Port, f.Key.Addr))
		}
	}
	if keepsClient(f) {
		l.add(setLoadBalancerLocal, here(f.Key))
	}
	l.add(setLoadBalancer, here(f.Key))
}

// keepsClient tells whether clients from outside keep their address: the policy says so, or
// the backend could not answer them.
func keepsClient(f *model.Frontend) bool { return f.Local || f.Forward != model.ForwardNAT }

// nodePortSets are the sets of a protocol's NodePorts, the second for those with
// a Local policy.
var nodePortSets = map[model.Protocol][2]string{
	model.TCP:  {setNodePortTCP, setNodePortLocalTCP},
	model.UDP:  {setNodePortUDP, setNodePortLocalUDP},
	model.SCTP: {setNodePortSCTP, setNodePortLocalSCTP},
}

// nodePortEntry is how those sets name a NodePort: TCP and UDP by its number.
func nodePortEntry(k model.FrontendKey) ipset.Entry {
	if k.Protocol == model.SCTP {
		return here(k)
	}
	return ipset.Port(k.Port)
}

func (l *entryList) nodePort(f *model.Frontend) {
	sets := nodePortSets[f.Key.Protocol]
	if f.Local {
		l.add(sets[1], nodePortEntry(f.Key))
	}
	l.add(sets[0], nodePortEntry(f.Key))
	l.add(setNodePortIPs, ipset.IP(f.Key.Addr))
}

// renderMembers lists all entries that a frontend claims, each once; nil claims none. The
// addresses of NodePorts are wanted whether there are any or not, see SetHost.
func renderMembers(f *model.Frontend) []memberKey {
	if f == nil {
		return nil
	}
	l := entryList{family: model.FamilyOf(f.Key.Addr), list: guards(f)}
	if f.Detour.IsValid() && (f.NoLocal || len(f.Backends) > 0) {
		l.add(setDetour, here(f.Key)) // without any endpoint its own server refuses
	}
	if f.Capture {
		l.addCapture(f)
	}
	for _, ep := range f.Hairpin {
		l.add(setLoopBack, ipset.IPPortIP(ep.Addr(), uint8(f.Key.Protocol), ep.Port(), ep.Addr()))
	}
	if f.Kind == model.KindNodePort {
		return slices.DeleteFunc(l.list, func(k memberKey) bool { return k == nodePortIP(f.Key.Addr) })
	}
	return l.list
}

// markOf is the entry that tells that a bound address is ours.
func markOf(a netip.Addr) memberKey {
	return memberKey{setName(model.FamilyOf(a), setIPVSIPs), ipset.IP(a)}
}

// nodePortIP is the entry that tells that NodePorts answer on an address.
func nodePortIP(a netip.Addr) memberKey {
	return memberKey{setName(model.FamilyOf(a), setNodePortIPs), ipset.IP(a)}
}

func pick[T any](yes bool, a, b T) T {
	if yes {
		return a
	}
	return b
}
