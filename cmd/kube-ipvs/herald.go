package main

import (
	"fmt"
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/events"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// herald tells the owners of Services by Events; it implements agent.Herald. Without
// an API server the recorder is nil and tells nobody.
type herald struct{ events *events.Recorder }

func (h herald) Unbound(id model.ServiceID, addr netip.Addr, holder string) {
	h.events.Service(id, events.VIPConflictsWithNode, fmt.Sprintf("%s is not bound: it is %s", addr, holder))
}

func (h herald) Refused(id model.ServiceID, addr netip.Addr) {
	h.events.Service(id, events.ExternalIPRefused, fmt.Sprintf("external IP %s is not served: it is not inside --external-ip-allowed-cidrs of the node", addr))
}

func (h herald) Lost(c dataplane.Conflict) {
	h.events.Service(c.Loser, events.AddressConflict, c.String())
}

// noHealthPort is told by healthcheck.
func (h herald) noHealthPort(id model.ServiceID, address netip.AddrPort, err error) {
	h.events.Service(id, events.FailedToStartServiceHealthcheck, fmt.Sprintf("node cannot answer on health-check port %d: %v", address.Port(), err))
}
