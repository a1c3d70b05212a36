package config

import (
	"fmt"
	"net/netip"
	"strings"
)

// The ports of the two listeners unless others are given.
const (
	healthzPort = 10256
	metricsPort = 10249
)

// bindAddress is the configured primary address of the node; empty if none is configured.
func (p *problems) bindAddress() netip.Addr {
	text := strings.TrimSpace(p.s.Proxy.BindAddress)
	if text == "" {
		return netip.IPv4Unspecified()
	}
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" {
		p.add("bind-address", "%q is not an IP address such as 192.0.2.10 or 0.0.0.0", text)
		return netip.IPv4Unspecified()
	}
	return a.Unmap()
}

// listeners returns where to listen, "" for not at all. The defaults are kube-proxy's and
// have the family of the bind address: the unspecified address for health, the loopback
// address for metrics.
func (p *problems) listeners(bind netip.Addr) (healthz, metrics string) {
	everywhere, here := netip.IPv4Unspecified(), netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if bind.Is6() {
		everywhere, here = netip.IPv6Unspecified(), netip.IPv6Loopback()
	}
	h := p.listener(listener{name: "healthz", address: p.s.Proxy.HealthzBindAddress, fallback: everywhere, standard: healthzPort, port: p.s.HealthzPort})
	m := p.listener(listener{name: "metrics", address: p.s.Proxy.MetricsBindAddress, fallback: here, standard: metricsPort, port: p.s.MetricsPort})
	if clash(h, m) {
		p.add("metrics-bind-address", "%s and %s conflict: same port on overlapping addresses",
			m, p.s.with("healthz-bind-address", h.String()))
	}
	return listenText(h), listenText(m)
}

// listener has the settings of one of the two listeners.
type listener struct {
	name, address string
	fallback      netip.Addr // where no address is given
	standard      uint16     // port where none is given
	port          int32      // the deprecated flag
}

// listener reads an address. The zero AddrPort is off.
func (p *problems) listener(l listener) netip.AddrPort {
	address, port := l.name+"-bind-address", l.name+"-port"
	if p.s.given[port] || l.port == 0 {
		switch {
		case l.port == 0:
			return netip.AddrPort{}
		case l.port < 0 || l.port > 65535:
			p.add(port, "%d is not a port; 0 turns the listener off", l.port)
			return netip.AddrPort{}
		}
		l.standard = uint16(l.port)
	}
	text := strings.TrimSpace(l.address)
	if text == "" {
		return netip.AddrPortFrom(l.fallback, l.standard)
	}
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		return netip.AddrPortFrom(a, l.standard)
	}
	ap, err := netip.ParseAddrPort(text)
	if err != nil || ap.Addr().Zone() != "" {
		p.add(address, "%q is not IP or IP:port such as %s", text, netip.AddrPortFrom(l.fallback, l.standard))
		return netip.AddrPort{}
	}
	// A default port gives way to a configured one.
	if p.s.given[port] && !p.s.given[address] && !p.s.said[l.name+"BindAddress"] {
		return netip.AddrPortFrom(ap.Addr(), l.standard)
	}
	return ap
}

// clash reports whether two sockets exclude each other. Port 0 is any that is free, and [::] takes
// connections of both families.
func clash(a, b netip.AddrPort) bool {
	if !a.IsValid() || !b.IsValid() || a.Port() != b.Port() || a.Port() == 0 {
		return false
	}
	x, y := a.Addr().Unmap(), b.Addr().Unmap()
	return x == y || includes(x, y) || includes(y, x)
}

func includes(all, one netip.Addr) bool {
	return all.IsUnspecified() && (all.Is6() || one.Is4())
}

func listenText(a netip.AddrPort) string {
	if !a.IsValid() {
		return ""
	}
	return fmt.Sprint(a)
}
