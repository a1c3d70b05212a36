package sets

import (
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// This file lists the set entries of a frontend, by kind and traffic policy as in kube-proxy's
// ipvs mode, and the entries that its server and other rows depend on.

// Key names one entry of one set; Set is the kernel's name.
type Key struct {
	Set   string
	Entry ipset.Entry
}

// entryList collects entries of one family.
type entryList struct {
	family model.Family
	list   []Key
}

// add puts an entry on the list.
func (l *entryList) add(set string, e ipset.Entry) {
	l.list = append(l.list, Key{Name(l.family, set), e})
}

// IPPort returns the entry that names a server by address, protocol and port.
func IPPort(k model.FrontendKey) ipset.Entry {
	return ipset.IPPort(k.Addr, uint8(k.Protocol), k.Port)
}

// Guards lists the entries without which the server of a frontend must not exist. They keep clients
// out, masquerade and accept its traffic, or mark the server as ours for the next process.
func Guards(f *model.Frontend) []Key {
	l := entryList{family: model.FamilyOf(f.Key.Addr), list: make([]Key, 0, 2+len(f.Hairpin))}
	if f.NoLocal {
		l.add(NoLocal, IPPort(f.Key))
	}
	switch f.Kind {
	case model.KindClusterIP:
		l.add(ClusterIP, IPPort(f.Key))
	case model.KindExternalIP:
		l.add(cond(KeepsClient(f), ExternalIPLocal, ExternalIP), IPPort(f.Key))
	case model.KindLoadBalancer:
		l.loadBalancer(f)
	case model.KindNodePort:
		l.nodePort(f)
	case model.KindDetour:
		l.add(DetourEnd, IPPort(f.Key))
	}
	if f.Bind {
		l.add(IPVSIPs, ipset.IP(f.Key.Addr))
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
		l.add(SourceCIDR, ipset.IPPortNet(f.Key.Addr, uint8(f.Key.Protocol), f.Key.Port, r))
	}
	if len(f.SourceRanges) > 0 {
		l.add(LoadBalancerFW, IPPort(f.Key))
		if f.OwnNode { // the host dials a load-balancer address from that very address
			l.add(SourceIP, ipset.IPPortIP(f.Key.Addr, uint8(f.Key.Protocol), f.Key.Port, f.Key.Addr))
		}
	}
	if KeepsClient(f) {
		l.add(LoadBalancerLocal, IPPort(f.Key))
	}
	l.add(LoadBalancer, IPPort(f.Key))
}

// KeepsClient reports whether clients from outside keep their address: the policy requires it, or
// the backend could not answer them.
func KeepsClient(f *model.Frontend) bool { return f.Local || f.Forward != model.ForwardNAT }

// NodePorts are the sets of a protocol's NodePorts, the second for those with
// a Local policy.
var NodePorts = map[model.Protocol][2]string{
	model.TCP:  {NodePortTCP, NodePortLocalTCP},
	model.UDP:  {NodePortUDP, NodePortLocalUDP},
	model.SCTP: {NodePortSCTP, NodePortLocalSCTP},
}

// nodePortEntry is how those sets name a NodePort: TCP and UDP by its number.
func nodePortEntry(k model.FrontendKey) ipset.Entry {
	if k.Protocol == model.SCTP {
		return IPPort(k)
	}
	return ipset.Port(k.Port)
}

func (l *entryList) nodePort(f *model.Frontend) {
	sets := NodePorts[f.Key.Protocol]
	if f.Local {
		l.add(sets[1], nodePortEntry(f.Key))
	}
	l.add(sets[0], nodePortEntry(f.Key))
	l.add(NodePortIPs, ipset.IP(f.Key.Addr))
}

// Render lists all entries that a frontend claims, each once; nil claims none. The
// addresses of NodePorts are wanted whether there are any or not, see SetHost.
func Render(f *model.Frontend) []Key {
	if f == nil {
		return nil
	}
	l := entryList{family: model.FamilyOf(f.Key.Addr), list: Guards(f)}
	if f.Detour.IsValid() && (f.NoLocal || len(f.Backends) > 0) {
		l.add(Detour, IPPort(f.Key)) // without any endpoint its own server refuses
	}
	if f.Capture {
		l.addCapture(f)
	}
	for _, ep := range f.Hairpin {
		l.add(LoopBack, ipset.IPPortIP(ep.Addr(), uint8(f.Key.Protocol), ep.Port(), ep.Addr()))
	}
	if f.Kind == model.KindNodePort {
		return slices.DeleteFunc(l.list, func(k Key) bool { return k == NodePortIP(f.Key.Addr) })
	}
	return l.list
}

// Marker returns the entry that marks a bound address as ours.
func Marker(a netip.Addr) Key {
	return Key{Name(model.FamilyOf(a), IPVSIPs), ipset.IP(a)}
}

// NodePortIP returns the entry of an address on which NodePorts answer.
func NodePortIP(a netip.Addr) Key {
	return Key{Name(model.FamilyOf(a), NodePortIPs), ipset.IP(a)}
}

// DirectIP returns the entry of an address from which backends answer themselves.
func DirectIP(a netip.Addr) Key {
	return Key{Name(model.FamilyOf(a), DirectIPs), ipset.IP(a)}
}

// CaptureEntry returns the entry by which packets to a frontend are captured.
func CaptureEntry(k model.FrontendKey) Key {
	return Key{Name(model.FamilyOf(k.Addr), Capture), IPPort(k)}
}

// CaptureIP returns the entry of an address with captured ports.
func CaptureIP(a netip.Addr) Key {
	return Key{Name(model.FamilyOf(a), CaptureIPs), ipset.IP(a)}
}

// Captures reports whether packets to a captured frontend come to IPVS: all others are refused.
func Captures(f *model.Frontend) bool { return f.Capture && (f.NoLocal || len(f.Backends) > 0) }

// addCapture adds the entries by which packets to a frontend are captured, or refused.
func (l *entryList) addCapture(f *model.Frontend) {
	if Captures(f) {
		l.add(Capture, IPPort(f.Key))
	}
	l.add(CaptureIPs, ipset.IP(f.Key.Addr))
}

func cond[T any](yes bool, a, b T) T {
	if yes {
		return a
	}
	return b
}
