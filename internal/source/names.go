package source

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The longest names the API accepts: DNS-1123 labels and subdomains.
const (
	maxLabel     = 63
	maxSubdomain = 253
)

// namespaceOf applies the API's default: an object without one is in "default".
func namespaceOf(meta *metav1.ObjectMeta) string {
	if meta.Namespace == "" {
		return metav1.NamespaceDefault
	}
	return meta.Namespace
}

// checkMeta reports whether the object has a usable namespace and name. Names end up in chain
// comments and log lines, so what the API server would refuse is refused here.
func (p *problems) checkMeta(meta *metav1.ObjectMeta, namespaced bool, maxName int) bool {
	ok := true
	if namespaced {
		ok = p.checkName("metadata.namespace", namespaceOf(meta), maxLabel)
	}
	return p.checkName("metadata.name", meta.Name, maxName) && ok
}

func (p *problems) checkName(field, name string, most int) bool {
	switch {
	case name == "":
		p.add(field, "missing: the object is not used")
	case len(name) > most:
		p.add(field, "%d characters, at most %d: the object is not used", len(name), most)
	case !isName(name, most == maxSubdomain):
		p.add(field, "%s is not made of a-z, 0-9 and '-': the object is not used", quote(name))
	default:
		return true
	}
	return false
}

// isName reports whether s is spelled like a DNS-1123 label, or with dots like a subdomain.
func isName(s string, dots bool) bool {
	if s == "" || !isAlnum(s[0]) || !isAlnum(s[len(s)-1]) {
		return false
	}
	rest := strings.TrimLeftFunc(s, func(r rune) bool {
		return r < 0x80 && isAlnum(byte(r)) || r == '-' || dots && r == '.'
	})
	return rest == ""
}

func isAlnum(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }

// portName reports whether a port's name is usable: empty, or a DNS-1123 label (v1 ServicePort.name
// and discovery/v1 EndpointPort.name). The 15 characters of IANA names bind container ports, not
// these.
func (p *problems) portName(field, name string) bool {
	switch {
	case name == "" || len(name) <= maxLabel && isName(name, false):
		return true
	case len(name) > maxLabel:
		p.add(field, "%d characters, at most %d: the port is not used", len(name), maxLabel)
	default:
		p.add(field, "%s is not made of a-z, 0-9 and '-': the port is not used", quote(name))
	}
	return false
}

// portNumber reports whether n can be a port.
func (p *problems) portNumber(field string, n int32) bool {
	if n < 1 || n > 65535 {
		p.add(field, "%d is not a port (1-65535)", n)
		return false
	}
	return true
}
