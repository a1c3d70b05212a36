package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// A Report is what the agent knows about the subject of a query. Its field names in JSON are stable.
type Report struct {
	Asked string `json:"asked"`
	Node  string `json:"node"`
	Mode  string `json:"mode"`
	// Synced, Complete, Ready and LastError: see Status.
	Synced    bool   `json:"synced"`
	Complete  bool   `json:"complete"`
	Ready     bool   `json:"ready"`
	LastError string `json:"lastError,omitempty"`
	// Holder is the owner of the address, empty if no machine has it.
	Holder string `json:"holder,omitempty"`
	// Leaving are the frontends, with their Services, at which a destination with the address drains: it is
	// no endpoint any more.
	Leaving []string `json:"leaving"`
	// Services are those that have the subject, and those that want it.
	Services []ServiceReport `json:"services"`
	// Rows are those of the frontends that the query asks about, if they are in force.
	Rows dataplane.FrontendRows `json:"rows"`
}

// A ServiceReport is what the agent knows about one Service.
type ServiceReport struct {
	Name   string `json:"name"`
	Source string `json:"source"`
	Type   string `json:"type"`
	// InternalPolicy and ExternalPolicy are Cluster or Local.
	InternalPolicy string   `json:"internalTrafficPolicy"`
	ExternalPolicy string   `json:"externalTrafficPolicy"`
	Affinity       string   `json:"affinity,omitempty"`
	SourceRanges   []string `json:"sourceRanges"`
	Skipped        string   `json:"skipped,omitempty"`
	// Intended and Remarks: see model.ServicePlan.
	Intended bool     `json:"intended,omitempty"`
	Remarks  []string `json:"remarks,omitempty"`
	Notes    []string `json:"notes"`
	// Reasons are the notes with their codes.
	Reasons        []model.Note `json:"reasons"`
	BadAnnotations []string     `json:"badAnnotations"`
	Unbound        []netip.Addr `json:"unbound"`
	Refused        []netip.Addr `json:"refused"`
	// Frontends are those that it wants, by key, whether it has them or not.
	Frontends []FrontendReport `json:"frontends"`
	// Relays are its NodePorts on loopback addresses, by key.
	Relays []RelayReport `json:"relays,omitempty"`
	// Ports are the endpoints behind it.
	Ports []model.PortStory `json:"ports"`
	// Waiting: its latest state has not been compiled yet.
	Waiting bool `json:"waiting"`
}

// A FrontendReport is one frontend of a Service.
type FrontendReport struct {
	Key  string `json:"key"`
	Kind string `json:"kind"`
	// Asked: the query asks about it.
	Asked     bool   `json:"asked"`
	PortName  string `json:"portName,omitempty"`
	Scheduler string `json:"scheduler"`
	Forward   string `json:"forward"`
	// Bind, Capture, Local, NoLocal, SourceRanges and Detour: see model.Frontend.
	Bind         bool     `json:"bind"`
	Capture      bool     `json:"capture"`
	Local        bool     `json:"local"`
	NoLocal      bool     `json:"noLocal"`
	SourceRanges []string `json:"sourceRanges"`
	Detour       string   `json:"detour,omitempty"`
	// Backends, and how many of them take new connections.
	Backends int `json:"backends"`
	Taking   int `json:"taking"`
	// Announcement is whether routers learn of the address from this node; nil where no route announces
	// addresses, or none of the kind.
	Announcement *dataplane.Announcement `json:"announcement,omitempty"`
	// HeldBy is the Service that has the key instead, because it ranks before this one.
	HeldBy string `json:"heldBy,omitempty"`
	// HeldAs is the kind of that Service's frontend ("cluster IP"), if the kind decided; empty if age or name
	// did.
	HeldAs string `json:"heldAs,omitempty"`
	// Paths are those of packets to it, if it is in force and the query asks about it.
	Paths []PacketPath `json:"ways"`
}

// A RelayReport is one NodePort of a Service on a loopback address.
type RelayReport struct {
	Key string `json:"key"`
	// Asked: the query asks about it.
	Asked bool `json:"asked"`
	// Targets are where connections go; none is that they are refused.
	Targets []netip.AddrPort `json:"targets"`
	// Failure is why the port is not open although it has targets.
	Failure string `json:"failure,omitempty"`
}

// A PacketPath is the path of a packet from one origin.
type PacketPath struct {
	Origin dataplane.Origin `json:"origin"`
	Source string           `json:"source,omitempty"`
	dataplane.PacketPath
}

// An explainer answers one query from the state of the loop, on its goroutine.
type explainer struct {
	query    Query
	mode     *mode
	compiler Compiler
	host     *model.Host
	localPod func(netip.Addr, model.Node) bool // nil is never
	relay    Relay                             // nil is none
}

// report returns the answer; inputs are the Services that the query concerns.
func (e *explainer) report(s Status, inputs []catalog.Input) (Report, error) {
	q := e.query
	out := Report{
		Asked: q.String(), Node: s.Node, Mode: s.Mode, Synced: s.Synced, Complete: s.Complete, Ready: s.Ready, LastError: s.LastError,
		Leaving: []string{}, Services: []ServiceReport{},
	}
	if q.Address.IsValid() {
		out.Holder, out.Leaving = e.host.Reserved(q.Address), e.leaving()
	}
	var keys []model.FrontendKey
	for _, in := range inputs {
		one, asked := e.service(in)
		relayed := slices.ContainsFunc(one.Relays, func(r RelayReport) bool { return r.Asked })
		if q.Service == "" && len(asked) == 0 && !relayed && !q.concernsAddress(in) {
			continue // a NodePort of that number, at another address
		}
		out.Services = append(out.Services, one)
		keys = append(keys, asked...)
	}
	slices.SortFunc(keys, model.FrontendKey.Compare)
	rows, err := e.mode.RowsOf(slices.Compact(keys))
	if err != nil {
		return Report{}, fmt.Errorf("list the rows of %s: %w", q, err)
	}
	out.Rows = rows
	return out, nil
}

// maxLeaving bounds the frontends listed for one draining address.
const maxLeaving = 100

// leaving lists the frontends at which a destination with the address drains.
func (e *explainer) leaving() []string {
	q := e.query
	list := dataplane.MovingList{Most: maxLeaving, To: func(to netip.AddrPort) bool {
		return to.Addr() == q.Address && (q.Port == 0 || q.Port == to.Port())
	}}
	e.mode.Moving(&list)
	out := []string{}
	for _, m := range list.Rows {
		if !m.Climbs && (q.Protocol == 0 || q.Protocol == m.Frontend.Protocol) {
			out = append(out, fmt.Sprintf("%s of %s", m.Frontend, m.Service))
		}
	}
	slices.Sort(out)
	return out
}

// service returns the report on one Service, and the keys of its frontends that the query asks about and
// that it has.
func (e *explainer) service(in catalog.Input) (ServiceReport, []model.FrontendKey) {
	svc, now := in.Service, e.compiler.Compile(in.ID, in.Service, in.Slices)
	out := ServiceReport{
		Name: in.ID.String(), Source: string(in.ID.Origin), Type: svc.Type,
		InternalPolicy: policy(svc.InternalLocal), ExternalPolicy: policy(svc.ExternalLocal), SourceRanges: texts(svc.SourceRanges),
		Skipped: now.Skipped, Intended: now.Intended,
		Remarks: model.NoteTexts(now.Remarks), Notes: notNil(model.NoteTexts(now.Notes)), Reasons: notNil(now.Notes),
		BadAnnotations: notNil(now.BadAnnotations), Unbound: notNil(now.Unbound), Refused: notNil(now.Refused),
		Frontends: []FrontendReport{}, Ports: notNil(e.compiler.Explain(in.ID, svc, in.Slices)),
	}
	if svc.Affinity > 0 {
		out.Affinity = svc.Affinity.Round(time.Second).String()
	}
	wanted := e.mode.Frontends().Wanted(in.ID)
	out.Waiting = !slices.EqualFunc(wanted, now.Frontends, model.Frontend.Equal)
	var keys []model.FrontendKey
	for i := range wanted {
		one := e.frontend(&wanted[i])
		if one.Asked && one.HeldBy == "" {
			keys = append(keys, wanted[i].Key)
		}
		out.Frontends = append(out.Frontends, one)
	}
	for _, r := range now.Relays {
		out.Relays = append(out.Relays, e.relayed(in.ID, r))
	}
	return out, keys
}

func (e *explainer) relayed(id model.ServiceID, r model.Relay) RelayReport {
	out := RelayReport{Key: r.Key.String(), Asked: e.query.asks(r.Key), Targets: notNil(r.Targets)}
	if e.relay != nil {
		out.Failure = e.relay.State(r.Key, id)
	}
	return out
}

func policy(local bool) string {
	if local {
		return "Local"
	}
	return "Cluster"
}

// notNil returns a list that is [] in JSON where it is empty.
func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func texts[T fmt.Stringer](list []T) []string {
	out := make([]string, len(list))
	for i, one := range list {
		out[i] = one.String()
	}
	return out
}

func (e *explainer) frontend(f *model.Frontend) FrontendReport {
	out := FrontendReport{
		Key: f.Key.String(), Kind: f.Kind.String(), Asked: e.query.matches(f), PortName: f.PortName, Scheduler: f.Scheduler.String(), Forward: f.Forward.String(),
		Bind: f.Bind, Capture: f.Capture, Local: f.Local, NoLocal: f.NoLocal, SourceRanges: texts(f.SourceRanges), Backends: len(f.Backends), Paths: []PacketPath{},
	}
	if f.Kind == model.KindLoadBalancer || f.Kind == model.KindExternalIP {
		out.Announcement = e.mode.Announcement(f.Key.Addr)
	}
	for _, b := range f.Backends {
		if b.Weight > 0 {
			out.Taking++
		}
	}
	if f.Detour.IsValid() {
		out.Detour = detourKey(f).String()
	}
	if holder, _ := e.mode.Frontends().Get(f.Key); holder.Service != f.Service {
		out.HeldBy = holder.Service.String()
		if holder.Kind.Rank() != f.Kind.Rank() {
			out.HeldAs = holder.Kind.Noun()
		}
	} else if out.Asked && f.Kind != model.KindDetour {
		out.Paths = e.paths(f)
	}
	return out
}

func detourKey(f *model.Frontend) model.FrontendKey {
	return model.FrontendKey{Addr: f.Detour.Addr(), Port: f.Detour.Port(), Protocol: f.Key.Protocol}
}

// paths returns the path of packets from each origin, or from the source of the query.
func (e *explainer) paths(f *model.Frontend) []PacketPath {
	p, from := dataplane.Packet{To: *f, Node: e.host.Node}, e.query.From
	if f.Detour.IsValid() {
		if to, ok := e.mode.Frontends().Get(detourKey(f)); ok && to.Service == f.Service {
			p.Detour = &to
		}
	}
	if from.IsValid() {
		if from.Is4() != f.Key.Addr.Is4() {
			return []PacketPath{}
		}
		p.Source, p.Origin = from, e.originOf(from)
		return []PacketPath{{Origin: p.Origin, Source: from.String(), PacketPath: e.mode.PacketPath(p)}}
	}
	out := make([]PacketPath, 0, len(dataplane.Origins()))
	for _, o := range dataplane.Origins() {
		p.Origin = o
		out = append(out, PacketPath{Origin: o, PacketPath: e.mode.PacketPath(p)})
	}
	return out
}

// originOf returns the origin of packets with a source address: this machine, a pod of it by the range of
// its Node, or outside.
func (e *explainer) originOf(from netip.Addr) dataplane.Origin {
	_, here := e.host.Links[from]
	switch {
	case here:
		return dataplane.FromHost
	case e.localPod != nil && e.localPod(from, e.host.Node):
		return dataplane.FromPod
	case slices.ContainsFunc(e.host.Node.PodCIDRs, func(p netip.Prefix) bool { return p.Contains(from) }):
		return dataplane.FromPod
	}
	return dataplane.FromOutside
}
