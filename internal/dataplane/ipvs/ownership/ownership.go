package ownership

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// The sets whose entries tell it, by their IPv4 names; see SetName.
const (
	// Addresses has each address that a server of ours may be at, if it is bound or in a
	// range that is local as a whole.
	Addresses = "KUBE-IPVS-IPS"

	// These name a server by address, port and protocol.
	ClusterIP       = "KUBE-CLUSTER-IP"
	ExternalIP      = "KUBE-EXTERNAL-IP"
	ExternalIPLocal = "KUBE-EXTERNAL-IP-LOCAL"
	LoadBalancer    = "KUBE-LOAD-BALANCER"
	NodePortSCTP    = "KUBE-NODE-PORT-SCTP-HASH"
	DetourEnd       = "KUBE-DETOUR-END"

	// NodePorts of TCP and UDP are named by port, on the addresses in NodePortIPs.
	NodePortTCP = "KUBE-NODE-PORT-TCP"
	NodePortUDP = "KUBE-NODE-PORT-UDP"
	NodePortIPs = "KUBE-NODE-PORT-IPS"
)

// naming are the sets whose entries name a server in full.
var naming = []string{ClusterIP, ExternalIP, ExternalIPLocal, LoadBalancer, NodePortSCTP, DetourEnd}

// Names reports whether the entries of a set name servers in full. The set has its IPv4 name.
func Names(set string) bool { return slices.Contains(naming, set) }

// SetName is the name that the kernel has for a set of a family: kube-proxy's IPv6 sets have a
// 6 in theirs, and are cut to the kernel's 31 characters.
func SetName(f model.Family, name string) string {
	if f == model.IPv6 {
		name = strings.Replace(name, "KUBE-", "KUBE-6-", 1)
	}
	return name[:min(len(name), ipset.MaxNameLen)]
}

// SetFamily returns the family of a set of ours, by the name that the kernel has for it.
func SetFamily(name string) model.Family {
	if strings.HasPrefix(name, "KUBE-6-") {
		return model.IPv6
	}
	return model.IPv4
}

// Facts are what the decision needs to know of this machine. Sets have the kernel's names.
type Facts struct {
	// Excluded are ranges with servers of others (--ipvs-exclude-cidrs).
	Excluded []netip.Prefix
	// Bound reports whether an address is on kube-ipvs0, OnLink whether it is on another
	// link of this machine.
	Bound, OnLink func(netip.Addr) bool
	// HasSet reports whether a set exists, and Has whether an entry is in it.
	HasSet func(set string) bool
	Has    func(set string, e ipset.Entry) bool
}

// Owns decides whether a virtual server is ours.
func (f *Facts) Owns(k vserver.ServerKey) bool {
	if slices.ContainsFunc(f.Excluded, func(r netip.Prefix) bool { return r.Contains(k.Addr) }) {
		return false
	}
	return f.Bound(k.Addr) || f.Has(SetName(model.FamilyOf(k.Addr), Addresses), ipset.IP(k.Addr)) || f.named(k)
}

// named reports whether an entry names a server.
func (f *Facts) named(k vserver.ServerKey) bool {
	family, e := model.FamilyOf(k.Addr), ipset.IPPort(k.Addr, uint8(k.Protocol), k.Port)
	if slices.ContainsFunc(naming, func(set string) bool { return f.Has(SetName(family, set), e) }) {
		return true
	}
	var ports string
	switch k.Protocol {
	case vserver.ProtocolTCP:
		ports = NodePortTCP
	case vserver.ProtocolUDP:
		ports = NodePortUDP
	default:
		return false
	}
	if !f.Has(SetName(family, ports), ipset.Port(k.Port)) {
		return false
	}
	ips := SetName(family, NodePortIPs)
	if !f.HasSet(ips) {
		// kube-proxy has no such set: any address of this machine has its NodePorts. Where
		// there is the set, a server on another address is foreign, such as one of
		// keepalived whose port is a NodePort.
		return f.OnLink(k.Addr)
	}
	return f.Has(ips, ipset.IP(k.Addr))
}
