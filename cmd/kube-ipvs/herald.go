package main

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/events"
	"github.com/kube-ipvs/kube-ipvs/internal/firewall"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/printable"
)

// herald tells the owners of Services by Events; it implements agent.Herald. Without
// an API server the recorder is nil and tells nobody.
type herald struct{ events *events.Recorder }

func (h herald) Unbound(id model.ServiceID, addrs []netip.Addr, holder func(netip.Addr) string) {
	h.events.Service(id, events.VIPConflictsWithNode, list(addrs, func(a netip.Addr) string {
		return fmt.Sprintf("%s is not bound: it is %s", a, holder(a))
	}))
}

func (h herald) Refused(id model.ServiceID, addrs []netip.Addr) {
	h.events.Service(id, events.ExternalIPRefused, list(addrs, func(a netip.Addr) string {
		return fmt.Sprintf("external IP %s is not served: it is not inside --external-ip-allowed-cidrs", a)
	}))
}

func (h herald) BadAnnotations(id model.ServiceID, why []string) {
	h.events.Service(id, events.AnnotationRefused, strings.Join(why, "; "))
}

func (h herald) TooMany(id model.ServiceID, beyond model.Beyond) {
	if n := beyond.Frontends; n > 0 {
		h.events.Service(id, events.TooManyFrontends, fmt.Sprintf("%d of its frontends (ports times addresses) are not served: a Service has only so many (--service-frontends, --service-rows)", n))
	}
	if n := beyond.SourceRanges; n > 0 {
		h.events.Service(id, events.TooManySourceRanges, fmt.Sprintf("clients in %d of its source ranges are not admitted: a Service has only so many (--service-source-ranges)", n))
	}
}

func (h herald) BadNode(why []string) {
	h.events.Node(events.NodeAnnotationRefused, strings.Join(why, "; "))
}

func (h herald) Lost(id model.ServiceID, conflicts []dataplane.Conflict) {
	h.events.Service(id, events.AddressConflict, list(conflicts, dataplane.Conflict.Public))
}

// list prints each in a text of its own; there may be more than an Event holds.
func list[T any](all []T, text func(T) string) string {
	var out []string
	for _, one := range all {
		out = append(out, text(one))
	}
	return strings.Join(out, "; ")
}

// noSysctl is told by the kernel's handles.
func (h herald) noSysctl(why error) {
	h.events.Node(events.SysctlRefused, "nothing new is carried: "+printable.OneLine(why))
}

// walled is told of a filter that drops packets of Services.
func (h herald) walled(b firewall.Block) {
	h.events.Node(events.FirewallBlocksServices, b.String()+"; to let them pass: "+strings.Join(b.Fix, " && "))
}

// noHealthPort is told by healthcheck.
func (h herald) noHealthPort(id model.ServiceID, address netip.AddrPort, err error) {
	h.events.Service(id, events.FailedToStartServiceHealthcheck, fmt.Sprintf("node cannot answer on health-check port %d: %v", address.Port(), err))
}
