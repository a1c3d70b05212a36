package config

import (
	"errors"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// label matches the valid names of a node (RFC 1123 subdomain).
var label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)

// nodeName trims and lower-cases the name of this node, as kube-proxy does.
func (p *problems) nodeName(override, hostname string) string {
	const flag = "hostname-override"
	name := strings.ToLower(strings.TrimSpace(override))
	switch {
	case override != "" && name == "":
		p.add(flag, "is blank")
	case name == "":
		name = strings.ToLower(strings.TrimSpace(hostname))
	}
	if name != "" && (!label.MatchString(name) || len(name) > 253) {
		p.add(flag, "%q cannot be the name of a Node", name)
	}
	return name
}

func (p *problems) cidrs(flag string, list []string) []netip.Prefix {
	var out []netip.Prefix
	for i, text := range list {
		prefix, err := parsePrefix(text)
		if err != nil {
			p.addAt(flag, i, "%q is not a CIDR such as 10.0.0.0/8", strings.TrimSpace(text))
			continue
		}
		out = append(out, prefix)
	}
	return out
}

// parsePrefix reads a range. IPv4 written as IPv6 is refused: no address of either
// family would ever be found in it.
func parsePrefix(text string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(strings.TrimSpace(text))
	if err == nil && prefix.Addr().Is4In6() {
		err = errors.New("is an IPv4 range written as IPv6")
	}
	return prefix.Masked(), err
}

// addresses takes what a machine can have and others can dial.
func (p *problems) addresses(flag string, list []string) []netip.Addr {
	var out []netip.Addr
	for i, text := range list {
		text = strings.TrimSpace(text)
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" || a.IsUnspecified() || a.IsMulticast() {
			p.addAt(flag, i, "%q is not an address of a node such as 192.0.2.10", text)
			continue
		}
		out = append(out, a.Unmap())
	}
	return out
}

func (p *problems) detectLocal() DetectLocal {
	proxy := &p.s.Proxy
	d := DetectLocal{Mode: string(proxy.DetectLocalMode)}
	switch d.Mode {
	case "BridgeInterface":
		d.Interface = p.interfaceName("pod-bridge-interface", proxy.DetectLocal.BridgeInterface, d.Mode)
	case "InterfaceNamePrefix":
		d.Interface = p.interfaceName("pod-interface-name-prefix", proxy.DetectLocal.InterfaceNamePrefix, d.Mode)
	default:
		p.oneOf("detect-local-mode", d.Mode)
	}
	d.ClusterCIDRs = p.clusterCIDR(d.Mode, proxy.ClusterCIDR)
	return d
}

// maxInterface is IFNAMSIZ without the terminating NUL.
const maxInterface = 15

func (p *problems) interfaceName(flag, name, mode string) string {
	switch {
	case name == "":
		p.add(flag, "is required with %s", p.s.with("detect-local-mode", mode))
	case len(name) > maxInterface || strings.ContainsAny(name, " \t\n/+\""):
		p.add(flag, "%q cannot be an interface name or its prefix", name)
	}
	return name
}

// clusterCIDR takes at most one range a family. Other modes do not look at it, and
// nor does kube-proxy then; readable ones are kept.
func (p *problems) clusterCIDR(mode, text string) []netip.Prefix {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	const flag = "cluster-cidr"
	judged := mode == "ClusterCIDR" || !slices.Contains(Choices("detect-local-mode"), mode)
	var list []netip.Prefix
	for part := range strings.SplitSeq(text, ",") {
		prefix, err := parsePrefix(part)
		switch {
		case err == nil:
			list = append(list, prefix)
		case judged:
			p.add(flag, "%q is not a CIDR such as 10.244.0.0/16", strings.TrimSpace(part))
		}
	}
	if judged && (len(list) > 2 || len(list) == 2 && list[0].Addr().Is4() == list[1].Addr().Is4()) {
		p.add(flag, "%q has more than one range of a family", text)
	}
	return list
}
