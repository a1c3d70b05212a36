package inspect

import (
	"net/netip"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// List is the result for a reader: rows, and the number of rows that were not sent, by their kind.
// The JSON of lists and rows never changes: manifests/schemas lists what it may have.
type List[R any] struct {
	Items []R            `json:"items"`
	More  map[string]int `json:"more,omitempty"`
}

// ServiceState is the state of a Service, in a word.
type ServiceState string

// The states. Where several hold it is the first of them.
const (
	StateSkipped    ServiceState = "skipped"     // nothing of it is served, see Reason and Intended
	StateConflict   ServiceState = "conflict"    // another Service has a frontend that it wants
	StateNoBackends ServiceState = "no backends" // it has frontends, and none of them a backend
	StateNoted      ServiceState = "noted"       // it lacks something that it asks for, see Notes
	StateServing    ServiceState = "serving"
)

// ServiceRow is what the agent knows of one Service.
type ServiceRow struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Source is where it comes from: kube or file.
	Source string       `json:"source"`
	State  ServiceState `json:"state"`
	Reason string       `json:"reason,omitempty"`
	// Kinds are those of its frontends, VIPs their addresses but for NodePorts, which are on addresses of the
	// node, and Ports those that a client dials: 80/tcp.
	Kinds []string     `json:"kinds"`
	VIPs  []netip.Addr `json:"vips"`
	Ports []string     `json:"ports"`
	// Backends is the number of different ones that take new connections, Frontends that of its frontends.
	Backends   int      `json:"backends"`
	Frontends  int      `json:"frontends"`
	Schedulers []string `json:"schedulers"`
	ServicePolicy
	Shortfall
}

// ServicePolicy is what a Service asks for beside addresses and ports.
type ServicePolicy struct {
	// Affinity, Drain and SlowStart are the longest of its frontends.
	Affinity      float64  `json:"affinitySeconds,omitempty"`
	Drain         float64  `json:"drainSeconds,omitempty"`
	SlowStart     float64  `json:"slowStartSeconds,omitempty"`
	Forward       []string `json:"forward,omitempty"`
	InternalLocal bool     `json:"internalLocal,omitempty"`
	ExternalLocal bool     `json:"externalLocal,omitempty"`
}

// Shortfall is what a Service asks for and does not get, with the reasons.
type Shortfall struct {
	Notes []string `json:"notes,omitempty"`
	// Reasons are the notes with their codes.
	Reasons []model.Note `json:"reasons,omitempty"`
	// Intended: it is skipped as it asks to be. Remarks say what of it is left out as it asks.
	Intended bool     `json:"intended,omitempty"`
	Remarks  []string `json:"remarks,omitempty"`
	// BadAnnotations are the notes about annotations that are not followed.
	BadAnnotations []string     `json:"badAnnotations,omitempty"`
	Unbound        []netip.Addr `json:"unboundAddresses,omitempty"`
	Refused        []netip.Addr `json:"refusedAddresses,omitempty"`
	// Lost are the frontends that another Service has.
	Lost []string `json:"lostFrontends,omitempty"`
}

// FrontendRow is one address, port and protocol on which a Service answers.
type FrontendRow struct {
	Frontend  string     `json:"frontend"`
	Address   netip.Addr `json:"address"`
	Port      uint16     `json:"port"`
	Protocol  string     `json:"protocol"`
	Kind      string     `json:"kind"`
	Namespace string     `json:"namespace"`
	Name      string     `json:"name"`
	PortName  string     `json:"portName,omitempty"`
	Scheduler string     `json:"scheduler"`
	// Backends take new connections, Kept are endpoints that only keep existing ones.
	Backends int      `json:"backends"`
	Kept     int      `json:"kept"`
	Flags    []string `json:"flags,omitempty"`
	// Why is why its address is captured by port and not bound.
	Why string `json:"why,omitempty"`
	// Winner is the Service that has it instead.
	Winner string `json:"winner,omitempty"`
}

// BackendState is the kind of connections that a backend takes.
type BackendState string

// The states.
const (
	BackendServing BackendState = "serving" // new connections
	BackendClosed  BackendState = "closed"  // none, for its weight is 0
	BackendKept    BackendState = "kept"    // no new connections; existing ones continue
)

// BackendRow is one backend of a Service.
type BackendRow struct {
	Backend   string     `json:"backend"`
	Address   netip.Addr `json:"address"`
	Port      uint16     `json:"port"`
	Protocol  string     `json:"protocol"`
	Namespace string     `json:"namespace"`
	Name      string     `json:"name"`
	PortName  string     `json:"portName,omitempty"`
	// Frontends is how many of the Service send there.
	Frontends int          `json:"frontends"`
	Weight    uint16       `json:"weight"`
	State     BackendState `json:"state"`
}

// PendingRow is a row of the kernel that is not in place.
type PendingRow struct {
	Table string `json:"table"`
	Op    string `json:"op"`
	// Row is the command that an operator would type for it.
	Row string `json:"row"`
	// Failed: writing it was tried, and it rests until the next retry.
	Failed bool `json:"failed,omitempty"`
	// Orphan: no Service ever wanted the row. It stays while some input cannot be read.
	Orphan bool `json:"orphan,omitempty"`
}

// ConflictRow is a frontend that two Services want.
type ConflictRow struct {
	Frontend string `json:"frontend"`
	Holder   string `json:"holder"`
	Loser    string `json:"loser"`
	Why      string `json:"why"`
}

// HealthRow is one thing that must hold for the agent to be well.
type HealthRow struct {
	Check string `json:"check"`
	OK    bool   `json:"ok"`
	// Paths of the health listener that answer 503 while it does not hold: healthz, livez, readyz.
	Paths []string `json:"paths"`
	// Reason is why it does not hold.
	Reason string `json:"reason,omitempty"`
}

// States of a MovingRow.
const (
	Draining = "draining" // it has lost its endpoint and keeps its connections
	Climbing = "climbing" // in slow start: it is new, and its weight rises to the full weight
)

// MovingRow is a destination that drains or is in slow start.
type MovingRow struct {
	Frontend  string `json:"frontend"`
	Backend   string `json:"backend"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	PortName  string `json:"portName,omitempty"`
	// State is Draining or Climbing.
	State string `json:"state"`
	// Since is when it began; without it the endpoint is kept for as long as its connections last. Until is when
	// it ends at the latest.
	Since *time.Time `json:"since,omitempty"`
	Until *time.Time `json:"until,omitempty"`
	// Connections of one that drains, as they were counted last: none, open (some are established), closed (closed
	// ones are kept) or unknown (not counted yet). Without the last, Active are established and Inactive all
	// others.
	Connections string  `json:"connections,omitempty"`
	Active      *uint32 `json:"active,omitempty"`
	Inactive    *uint32 `json:"inactive,omitempty"`
	// Weight rises to FullWeight.
	Weight     uint16 `json:"weight"`
	FullWeight uint16 `json:"fullWeight,omitempty"`
}
