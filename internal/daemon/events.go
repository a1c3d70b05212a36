package daemon

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

// eventReporter sends Events to the owners of Services; it implements agent.EventSink. Without an
// API server the recorder is nil and sends none.
type eventReporter struct{ events *events.Recorder }

func (r eventReporter) Unbound(id model.ServiceID, addrs []netip.Addr, holder func(netip.Addr) string) {
	r.events.Service(id, events.VIPConflictsWithNode, list(addrs, func(a netip.Addr) string {
		return fmt.Sprintf("%s is not bound: it is %s", a, holder(a))
	}))
}

func (r eventReporter) Refused(id model.ServiceID, addrs []netip.Addr) {
	r.events.Service(id, events.ExternalIPRefused, list(addrs, func(a netip.Addr) string {
		return fmt.Sprintf("external IP %s is not served: it is not inside --external-ip-allowed-cidrs", a)
	}))
}

func (r eventReporter) BadAnnotations(id model.ServiceID, why []string) {
	r.events.Service(id, events.AnnotationRefused, strings.Join(why, "; "))
}

func (r eventReporter) TooMany(id model.ServiceID, beyond model.Beyond) {
	if n := beyond.Frontends; n > 0 {
		r.events.Service(id, events.TooManyFrontends, fmt.Sprintf("%d of its frontends (ports times addresses) are not served: the Service exceeds --service-frontends or --service-rows", n))
	}
	if n := beyond.SourceRanges; n > 0 {
		r.events.Service(id, events.TooManySourceRanges, fmt.Sprintf("clients in %d of its source ranges are not admitted: the Service exceeds --service-source-ranges", n))
	}
}

func (r eventReporter) BadNode(why []string) {
	r.events.Node(events.NodeAnnotationRefused, strings.Join(why, "; "))
}

func (r eventReporter) Lost(id model.ServiceID, conflicts []dataplane.Conflict) {
	r.events.Service(id, events.AddressConflict, list(conflicts, dataplane.Conflict.Public))
}

// list joins the texts of all; there may be more than an Event holds.
func list[T any](all []T, text func(T) string) string {
	var out []string
	for _, one := range all {
		out = append(out, text(one))
	}
	return strings.Join(out, "; ")
}

// sysctlRefused reports a refused sysctl without which nothing may be carried.
func (r eventReporter) sysctlRefused(why error) {
	r.events.Node(events.SysctlRefused, "the agent writes no new Services: "+printable.OneLine(why))
}

// firewallBlocks reports a filter that drops packets of Services.
func (r eventReporter) firewallBlocks(b firewall.Block) {
	r.events.Node(events.FirewallBlocksServices, b.String()+"; to let them pass: "+strings.Join(b.Fix, " && "))
}

// healthPortFailed reports a health-check port that could not be opened.
func (r eventReporter) healthPortFailed(id model.ServiceID, address netip.AddrPort, err error) {
	r.events.Service(id, events.FailedToStartServiceHealthcheck, fmt.Sprintf("cannot listen on health-check node port %d: %v", address.Port(), err))
}
