package config

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
)

// NodePortSelection selects the addresses of this node on which NodePorts answer, with the
// meaning of kube-proxy v1.37: the union of its parts.
type NodePortSelection struct {
	// Primary selects the addresses of the Node object, the first of each family;
	// a family without one is not opened.
	Primary bool
	// Localhost selects the loopback addresses, which the agent relays.
	Localhost bool
	// All selects every address of the machine that is neither loopback nor
	// link-local nor one of a Service.
	All bool
	// CIDRs select the addresses of the machine that lie in them.
	CIDRs []netip.Prefix
}

// nodePorts reads --nodeport-addresses. Nothing selects all, as in kube-proxy.
func (p *problems) nodePorts(list []string) NodePortSelection {
	s := NodePortSelection{All: len(list) == 0}
	for i, text := range list {
		switch text = strings.TrimSpace(text); text {
		case "primary":
			s.Primary = true
		case "localhost":
			s.Localhost = true
		case "all":
			s.All = true
		default:
			prefix, err := parsePrefix(text)
			if err != nil {
				p.addAt("nodeport-addresses", i, "%q is not primary, localhost, all or a CIDR such as 10.0.0.0/8", text)
				continue
			}
			s.CIDRs = append(s.CIDRs, prefix)
		}
	}
	return s
}

// PortRange is a range of ports, both ends included. The zero PortRange is unknown.
type PortRange struct{ First, Last uint16 }

// Masquerading takes its source ports from one side of the NodePorts, above the privileged ones. It
// needs at least freePorts there: with fewer, connections fail under load, and with none its rule
// cannot be written.
const (
	privilegedPorts = 1024
	freePorts       = 1024
)

// portRange reads --service-node-port-range in the forms of the API server's
// flag of this name: 30000-32767, 30000+2767, 30000. "0-0" and nothing are unknown.
func (p *problems) portRange(text string) PortRange {
	const flag = "service-node-port-range"
	text = strings.TrimSpace(text)
	if text == "" || text == "0-0" {
		return PortRange{}
	}
	first, last, err := splitRange(text)
	switch {
	case err != nil:
		p.add(flag, "%q is not a range such as 30000-32767 or 30000+2767", text)
	case first < 1 || last > 65535 || last < first:
		p.add(flag, "%q is not an ascending range between 1 and 65535", text)
	case max(first-privilegedPorts, 65535-last) < freePorts:
		p.add(flag, "%q leaves fewer than %d adjacent ports for masquerading; 0-0 lets it also use ports of NodePorts", text, freePorts)
	default:
		return PortRange{First: uint16(first), Last: uint16(last)}
	}
	return PortRange{}
}

// splitRange understands first-last, first+more and a single port.
func splitRange(text string) (first, last int, err error) {
	at := strings.IndexAny(text, "-+")
	if at < 0 {
		at, text = len(text), text+"+0"
	}
	// Unsigned, because a sign can only be between the two.
	a, errA := strconv.ParseUint(text[:at], 10, 30)
	b, errB := strconv.ParseUint(text[at+1:], 10, 30)
	if text[at] == '+' {
		b += a
	}
	return int(a), int(b), errors.Join(errA, errB)
}
