package config

import (
	"fmt"
	"net/netip"
	"time"
)

// VIPBinding is how addresses of Services become local to this machine in ModeIPVS
// (--vip-binding; internal/DECISIONS.md, Routes instead of addresses).
type VIPBinding string

// The values of --vip-binding: an address on the device for each, one route for each of
// --service-cidrs and addresses for what is not in them.
const (
	VIPBindingAddress VIPBinding = "address"
	VIPBindingRoute   VIPBinding = "route"
)

// ExternalBinding is how external and load-balancer addresses of Services become local to this machine in ModeIPVS
// (--external-binding).
type ExternalBinding string

// The values of --external-binding. Auto: bound to the device if no other machine can have the
// address, else captured by port. Bind: bound unless a Node has the address. Capture: always
// captured by port.
const (
	ExternalBindingAuto    ExternalBinding = "auto"
	ExternalBindingBind    ExternalBinding = "bind"
	ExternalBindingCapture ExternalBinding = "capture"
)

// externalBinding reads --external-binding.
func (p *problems) externalBinding(text string) ExternalBinding {
	p.oneOf("external-binding", text)
	return ExternalBinding(text)
}

// vipBinding reads --vip-binding. The ranges for routes come from --service-cidrs, else from the API
// server. Existing Services do not show which addresses the next ones will get, and a range that is
// too wide takes addresses away from other machines.
func (p *problems) vipBinding(text string) VIPBinding {
	b := VIPBinding(text)
	p.oneOf("vip-binding", text)
	if b == VIPBindingRoute && len(p.s.Own.ServiceCIDRs) == 0 && p.s.filesAlone() {
		p.add("service-cidrs", "is required with %s and without an API server: the ranges of cluster IPs", p.s.with("vip-binding", text))
	}
	return b
}

// filesAlone reports whether no API server is configured beside a directory of manifests.
func (s *Settings) filesAlone() bool {
	return s.Own.SourceDir != "" && s.Proxy.ClientConnection.Kubeconfig == "" && s.Master == ""
}

// serviceCIDRs reads --service-cidrs. A range of pods or a range that every machine uses itself
// cannot be a range of Services.
func (p *problems) serviceCIDRs() []netip.Prefix {
	const flag = "service-cidrs"
	list := p.cidrs(flag, p.s.Own.ServiceCIDRs)
	for _, r := range list {
		if why := WrongServiceCIDR(r, nil); why != "" {
			p.add(flag, "%s %s", r, why)
		}
		for _, pods := range p.podRanges() {
			if pods.Overlaps(r) {
				p.add(flag, "%s overlaps %s", r, p.s.with("cluster-cidr", p.s.Proxy.ClusterCIDR))
			}
		}
	}
	return list
}

// WrongServiceCIDR returns why a range cannot be one of cluster IPs beside those of pods, "" if it can.
func WrongServiceCIDR(r netip.Prefix, pods []netip.Prefix) string {
	a := r.Addr()
	if r.Bits() == 0 || a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast() {
		return "cannot be a range of Services"
	}
	for _, p := range pods {
		if p.Overlaps(r) {
			return fmt.Sprintf("overlaps the range %s of pods", p)
		}
	}
	return ""
}

// podRanges are those of --cluster-cidr that can be read, whatever the mode of telling
// pods.
func (p *problems) podRanges() []netip.Prefix {
	quiet := problems{s: p.s}
	return quiet.clusterCIDR("", p.s.Proxy.ClusterCIDR)
}

// idleBinding names settings of addresses that have no effect.
func (s *Settings) idleBinding(c Config) []string {
	binding, mode := s.with("vip-binding", string(c.VIPBinding)), s.with("proxy-mode", string(c.Mode))
	switch {
	case c.Mode == ModeIPTables && c.VIPBinding != VIPBindingAddress:
		return []string{fmt.Sprintf("%s: without effect with %s", binding, mode)}
	case c.Mode == ModeIPTables && c.ExternalBinding != ExternalBindingAuto:
		return []string{fmt.Sprintf("%s: without effect with %s", s.with("external-binding", string(c.ExternalBinding)), mode)}
	case c.VIPBinding == VIPBindingAddress && len(c.ServiceCIDRs) > 0:
		return []string{fmt.Sprintf("%s: without effect with %s", s.name("service-cidrs"), binding)}
	}
	return nil
}

// DetachedTable is the routing table of ipvs mode's own routes (link.DetachedTable).
const DetachedTable = 7373

// maxAnnounceLead bounds for how long a stop waits.
const maxAnnounceLead = time.Minute

// announcing reads --announce-table and --announce-lead. Packets of each machine follow the routes of
// the tables default, main and local, and those of announcements drop packets.
func (p *problems) announcing() Announcing {
	const flag = "announce-table"
	table, lead := *p.s.Own.AnnounceTable, p.s.Own.AnnounceLead.Duration
	switch {
	case table < 0:
		p.add(flag, "%d is no routing table: use a number from 1 on, such as 100, or 0 to announce no address", table)
	case table >= 253 && table <= 255:
		p.add(flag, "packets of this machine follow the routes of table %d: use a table that no routing rule leads to, such as 100", table)
	case table == DetachedTable:
		p.add(flag, "table %d has other routes of kube-ipvs: use another, such as 100", table)
	}
	if lead < 0 || lead > maxAnnounceLead {
		p.add("announce-lead", "%s is not between 0s, which keeps the routes, and 1m", lead)
	}
	return Announcing{AnnounceTable: uint32(max(0, table)), AnnounceLead: lead}
}
