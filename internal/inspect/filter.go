package inspect

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Filter chooses rows; the zero Filter takes all. It is applied where the rows are made, so that little travels.
type Filter struct {
	Namespace, Name string
	// VIP is the address of a frontend, Backend that of a backend.
	VIP, Backend Place
}

// Place matches addresses in a range, and with a port unless that is 0. The zero Place matches all.
type Place struct {
	Range netip.Prefix
	Port  uint16
}

// ParsePlace reads an address, one with a port, or a range: 10.96.0.10, 10.96.0.10:80, [fd00::1]:80, 10.96.0.0/16.
func ParsePlace(text string) (Place, error) {
	if p, err := netip.ParsePrefix(text); err == nil {
		return Place{Range: p.Masked()}, nil
	}
	if a, err := netip.ParseAddr(text); err == nil {
		return Place{Range: netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen())}, nil
	}
	if ap, err := netip.ParseAddrPort(text); err == nil {
		a := ap.Addr().Unmap()
		return Place{Range: netip.PrefixFrom(a, a.BitLen()), Port: ap.Port()}, nil
	}
	return Place{}, fmt.Errorf("%q is not an address, one with a port, or a range such as 10.96.0.0/16", text)
}

// String prints what ParsePlace reads; nothing for the zero Place.
func (p Place) String() string {
	switch {
	case !p.Range.IsValid():
		return ""
	case p.Port != 0:
		return netip.AddrPortFrom(p.Range.Addr(), p.Port).String()
	case p.Range.IsSingleIP():
		return p.Range.Addr().String()
	}
	return p.Range.String()
}

// Everywhere reports whether the place is the zero Place.
func (p Place) Everywhere() bool { return p == Place{} }

// Has reports whether the place contains an address and port.
func (p Place) Has(a netip.Addr, port uint16) bool {
	return p.Everywhere() || p.Range.Contains(a) && (p.Port == 0 || p.Port == port)
}

// ofService reports whether a Service is selected by its name.
func (f Filter) ofService(id model.ServiceID) bool {
	return (f.Namespace == "" || f.Namespace == id.Namespace) && (f.Name == "" || f.Name == id.Name)
}

// ByService reports whether the filter selects Services by name.
func (f Filter) ByService() bool { return f.Namespace != "" || f.Name != "" }

// hasFrontend reports whether a frontend is selected.
func (f Filter) hasFrontend(fe *model.Frontend) bool {
	return f.VIP.Has(fe.Key.Addr, fe.Key.Port) && f.sendsTo(fe)
}

// sendsTo reports whether one of the endpoints of a frontend is selected.
func (f Filter) sendsTo(fe *model.Frontend) bool {
	if f.Backend.Everywhere() {
		return true
	}
	for _, b := range fe.Backends {
		if f.Backend.Has(b.Addr.Addr(), b.Addr.Port()) {
			return true
		}
	}
	for _, k := range fe.Kept {
		if f.Backend.Has(k.Addr(), k.Port()) {
			return true
		}
	}
	return false
}

// query is the filter as it travels.
func (f Filter) query() string {
	v := url.Values{}
	for key, text := range map[string]string{"namespace": f.Namespace, "name": f.Name, "vip": f.VIP.String(), "backend": f.Backend.String()} {
		if text != "" {
			v.Set(key, text)
		}
	}
	return v.Encode()
}

// parseFilter reads what query made, and refuses what it does not know.
func parseFilter(v url.Values) (f Filter, err error) {
	for key := range v {
		switch text := v.Get(key); key {
		case "namespace":
			f.Namespace = text
		case "name":
			f.Name = text
		case "vip":
			f.VIP, err = ParsePlace(text)
		case "backend":
			f.Backend, err = ParsePlace(text)
		default:
			err = fmt.Errorf("it is one of %s", strings.Join([]string{"namespace", "name", "vip", "backend"}, ", "))
		}
		if err != nil {
			return Filter{}, fmt.Errorf("parameter %q: %w", key, err)
		}
	}
	return f, nil
}
