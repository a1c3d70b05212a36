package agent

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Query asks for the story of one Service or of one address.
type Query struct {
	// Service is namespace/name; empty asks for an address.
	Service string
	// Address is what somebody dials, or where a backend listens. Port 0 is all of its ports,
	// Protocol 0 all protocols.
	Address  netip.Addr
	Port     uint16
	Protocol model.Protocol
	// From is the source of packets; the zero Addr has one of each origin tell its way.
	From netip.Addr
}

// String prints what is asked for.
func (q Query) String() string {
	switch {
	case q.Service != "":
		return q.Service
	case q.Port == 0:
		return q.Address.String()
	case q.Protocol == 0:
		return netip.AddrPortFrom(q.Address, q.Port).String()
	}
	return model.FrontendKey{Addr: q.Address, Port: q.Port, Protocol: q.Protocol}.String()
}

// Report is all that the agent knows of what was asked for. Field names in JSON are kept for
// good.
type Report struct {
	Asked string `json:"asked"`
	Node  string `json:"node"`
	Mode  string `json:"mode"`
	// Synced, Complete, Ready and LastError: see Status.
	Synced    bool   `json:"synced"`
	Complete  bool   `json:"complete"`
	Ready     bool   `json:"ready"`
	LastError string `json:"lastError,omitempty"`
	// Holder says whose an address is that was asked for, empty if it is no machine's.
	Holder string `json:"holder,omitempty"`
	// Leaving are the frontends, with their Services, at which a destination drains that listens
	// at the address and is no endpoint any more.
	Leaving []string `json:"leaving"`
	// Services that have what was asked for, and those that would like to.
	Services []ServiceReport `json:"services"`
	// Rows are those of the frontends that were asked for, if they are in force.
	Rows dataplane.FrontendRows `json:"rows"`
}

// ServiceReport is what is known of one Service.
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
	// Frontends are what it wants, by key, whether it has it or not.
	Frontends []FrontendReport `json:"frontends"`
	// Ports are the endpoints behind it.
	Ports []model.PortStory `json:"ports"`
	// Waiting: it has not been compiled yet as it stands now.
	Waiting bool `json:"waiting"`
}

// FrontendReport is one frontend of a Service.
type FrontendReport struct {
	Key  string `json:"key"`
	Kind string `json:"kind"`
	// Asked: it is what was asked for.
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
	// HeldBy is the Service that has the key instead, and ranks before this one.
	HeldBy string `json:"heldBy,omitempty"`
	// HeldAs is what that Service has the key as ("cluster IP"), where that decided; empty where age or name did.
	HeldAs string `json:"heldAs,omitempty"`
	// Paths are those of packets to it, if it is in force and was asked for.
	Paths []PacketPath `json:"ways"`
}

// PacketPath is that of a packet from one origin.
type PacketPath struct {
	Origin dataplane.Origin `json:"origin"`
	Source string           `json:"source,omitempty"`
	dataplane.Walk
}

// Explain answers a question. The loop is asked once, for a Service or the few that have to do
// with an address.
func (a *Agent) Explain(ctx context.Context, q Query) (Report, error) {
	inputs := a.opts.Catalog.Matching(func(s *model.Service, behind []*model.Slice) bool { return q.concerns(s, behind) })
	var told Report
	var failed error
	err := a.Do(ctx, func(context.Context) { told, failed = a.tell(q, inputs) })
	if err != nil {
		return Report{}, err // the loop may be writing told just now
	}
	return told, failed
}

// concerns tells whether a Service has to do with what is asked for.
func (q Query) concerns(s *model.Service, behind []*model.Slice) bool {
	if q.Service != "" {
		return s.ID.String() == q.Service
	}
	has := func(a netip.Addr) bool { return a == q.Address }
	return slices.ContainsFunc(s.ClusterIPs, has) || slices.ContainsFunc(s.ExternalIPs, has) ||
		slices.ContainsFunc(s.Ingress, func(in model.Ingress) bool { return has(in.Addr) }) ||
		q.Port != 0 && slices.ContainsFunc(s.Ports, func(p model.ServicePort) bool { return p.NodePort == q.Port }) ||
		slices.ContainsFunc(behind, func(sl *model.Slice) bool { return q.behind(sl) })
}

// behind tells whether a slice lists the address as an endpoint.
func (q Query) behind(s *model.Slice) bool {
	return slices.ContainsFunc(s.Endpoints, func(e model.Endpoint) bool { return e.Addr == q.Address }) &&
		(q.Port == 0 || slices.ContainsFunc(s.Ports, func(p model.SlicePort) bool { return p.Port == q.Port }))
}

func (a *Agent) tell(q Query, inputs []catalog.Input) (Report, error) {
	s := a.status()
	out := Report{
		Asked: q.String(), Node: s.Node, Mode: s.Mode, Synced: s.Synced, Complete: s.Complete, Ready: s.Ready, LastError: s.LastError,
		Leaving: []string{}, Services: []ServiceReport{},
	}
	if q.Address.IsValid() {
		out.Holder, out.Leaving = a.host.Reserved(q.Address), a.leaving(q)
	}
	var keys []model.FrontendKey
	for _, in := range inputs {
		one, asked := a.tellService(q, in)
		if q.Service == "" && len(asked) == 0 && !concernsSpec(q, in) {
			continue // a NodePort of that number, elsewhere
		}
		out.Services = append(out.Services, one)
		keys = append(keys, asked...)
	}
	slices.SortFunc(keys, model.FrontendKey.Compare)
	rows, err := a.mode.RowsOf(slices.Compact(keys))
	if err != nil {
		return Report{}, fmt.Errorf("tell the rows of %s: %w", q, err)
	}
	out.Rows = rows
	return out, nil
}

// mostLeaving bounds what is told of one address that drains.
const mostLeaving = 100

// leaving lists where a destination at the address drains.
func (a *Agent) leaving(q Query) []string {
	list := dataplane.MovingList{Most: mostLeaving, To: func(to netip.AddrPort) bool {
		return to.Addr() == q.Address && (q.Port == 0 || q.Port == to.Port())
	}}
	a.mode.Moving(&list)
	out := []string{}
	for _, m := range list.Rows {
		if !m.Climbs && (q.Protocol == 0 || q.Protocol == m.Frontend.Protocol) {
			out = append(out, fmt.Sprintf("%s of %s", m.Frontend, m.Service))
		}
	}
	slices.Sort(out)
	return out
}

// concernsSpec tells whether a Service has to do with an address but for a NodePort.
func concernsSpec(q Query, in catalog.Input) bool {
	q.Port = 0
	behind := make([]*model.Slice, len(in.Slices))
	for i := range in.Slices {
		behind[i] = &in.Slices[i]
	}
	return q.concerns(in.Service, behind)
}

// tellService tells of one Service, and which of its frontends are asked for.
func (a *Agent) tellService(q Query, in catalog.Input) (ServiceReport, []model.FrontendKey) {
	svc, now := in.Service, a.compiler.Compile(in.ID, in.Service, in.Slices)
	out := ServiceReport{
		Name: in.ID.String(), Source: string(in.ID.Origin), Type: svc.Type,
		InternalPolicy: policy(svc.InternalLocal), ExternalPolicy: policy(svc.ExternalLocal), SourceRanges: texts(svc.SourceRanges),
		Skipped: now.Skipped, Intended: now.Intended, Remarks: model.NoteTexts(now.Remarks), Notes: filled(model.NoteTexts(now.Notes)), Reasons: filled(now.Notes), BadAnnotations: filled(now.BadAnnotations), Unbound: filled(now.Unbound), Refused: filled(now.Refused),
		Frontends: []FrontendReport{}, Ports: filled(a.compiler.Explain(in.ID, svc, in.Slices)),
	}
	if svc.Affinity > 0 {
		out.Affinity = svc.Affinity.Round(time.Second).String()
	}
	wanted := a.mode.Frontends().Wanted(in.ID)
	out.Waiting = !slices.EqualFunc(wanted, now.Frontends, model.Frontend.Equal)
	var keys []model.FrontendKey
	for i := range wanted {
		one := a.tellFrontend(q, &wanted[i])
		if one.Asked && one.HeldBy == "" {
			keys = append(keys, wanted[i].Key)
		}
		out.Frontends = append(out.Frontends, one)
	}
	return out, keys
}

func policy(local bool) string {
	if local {
		return "Local"
	}
	return "Cluster"
}

// filled is a list that is [] in JSON where it is empty.
func filled[T any](list []T) []T {
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

// asks tells whether a frontend is what is asked for: all of a Service, or those at an address
// or with it as a backend.
func (q Query) asks(f *model.Frontend) bool {
	if q.Service != "" {
		return true
	}
	if q.Protocol != 0 && q.Protocol != f.Key.Protocol {
		return false
	}
	return f.Key.Addr == q.Address && (q.Port == 0 || q.Port == f.Key.Port) ||
		slices.ContainsFunc(f.Backends, func(b model.Backend) bool {
			return b.Addr.Addr() == q.Address && (q.Port == 0 || q.Port == b.Addr.Port())
		})
}

func (a *Agent) tellFrontend(q Query, f *model.Frontend) FrontendReport {
	out := FrontendReport{
		Key: f.Key.String(), Kind: f.Kind.String(), Asked: q.asks(f), PortName: f.PortName, Scheduler: f.Scheduler.String(), Forward: f.Forward.String(),
		Bind: f.Bind, Capture: f.Capture, Local: f.Local, NoLocal: f.NoLocal, SourceRanges: texts(f.SourceRanges), Backends: len(f.Backends), Paths: []PacketPath{},
	}
	for _, b := range f.Backends {
		if b.Weight > 0 {
			out.Taking++
		}
	}
	if f.Detour.IsValid() {
		out.Detour = model.FrontendKey{Addr: f.Detour.Addr(), Port: f.Detour.Port(), Protocol: f.Key.Protocol}.String()
	}
	if holder, _ := a.mode.Frontends().Get(f.Key); holder.Service != f.Service {
		out.HeldBy = holder.Service.String()
		if holder.Kind.Rank() != f.Kind.Rank() {
			out.HeldAs = holder.Kind.Noun()
		}
	} else if out.Asked && f.Kind != model.KindDetour {
		out.Paths = a.ways(q, f)
	}
	return out
}

// ways are those of packets of each origin, or of the source that is asked for.
func (a *Agent) ways(q Query, f *model.Frontend) []PacketPath {
	p := dataplane.Packet{To: *f, Node: a.host.Node}
	if f.Detour.IsValid() {
		key := model.FrontendKey{Addr: f.Detour.Addr(), Port: f.Detour.Port(), Protocol: f.Key.Protocol}
		if to, ok := a.mode.Frontends().Get(key); ok && to.Service == f.Service {
			p.Detour = &to
		}
	}
	if q.From.IsValid() {
		if q.From.Is4() != f.Key.Addr.Is4() {
			return []PacketPath{}
		}
		p.Source, p.Origin = q.From, a.originOf(q.From)
		return []PacketPath{{Origin: p.Origin, Source: q.From.String(), Walk: a.mode.Walk(p)}}
	}
	out := make([]PacketPath, 0, len(dataplane.Origins()))
	for _, o := range dataplane.Origins() {
		p.Origin = o
		out = append(out, PacketPath{Origin: o, Walk: a.mode.Walk(p)})
	}
	return out
}

// originOf tells where packets of an address come from: this machine, a pod of it by the range
// that its Node has, or outside.
func (a *Agent) originOf(from netip.Addr) dataplane.Origin {
	_, here := a.host.Links[from]
	switch {
	case here:
		return dataplane.FromHost
	case a.opts.LocalPod != nil && a.opts.LocalPod(from, a.host.Node):
		return dataplane.FromPod
	case slices.ContainsFunc(a.host.Node.PodCIDRs, func(p netip.Prefix) bool { return p.Contains(from) }):
		return dataplane.FromPod
	}
	return dataplane.FromOutside
}

// ParseQuery reads what is asked for: namespace/name, or ip[:port[/protocol]]. A name without a
// namespace is one in the namespace default.
func ParseQuery(text, from string) (q Query, err error) {
	if from != "" {
		if q.From, err = netip.ParseAddr(from); err != nil {
			return q, fmt.Errorf("%q is not an IP address", from)
		}
		q.From = q.From.Unmap()
	}
	rest, proto, named := strings.Cut(text, "/")
	addr, port, isAddr := parseAddress(rest)
	if !isAddr {
		if !named {
			rest, proto = "default", text
		}
		if rest == "" || proto == "" || strings.ContainsAny(proto, "/:") {
			return q, fmt.Errorf("%q is neither namespace/name nor ip[:port[/protocol]]", text)
		}
		q.Service = rest + "/" + proto
		return q, nil
	}
	q.Address, q.Port = addr, port
	if named {
		if q.Protocol, err = model.ParseProtocol(cmp.Or(strings.ToUpper(proto), "?")); err != nil {
			return q, err
		}
	}
	return q, nil
}

// parseAddress reads an address with a port or without.
func parseAddress(text string) (netip.Addr, uint16, bool) {
	if a, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		return a.Unmap(), 0, true
	}
	ap, err := netip.ParseAddrPort(text)
	return ap.Addr().Unmap(), ap.Port(), err == nil
}

// Rows copies the desired rows of one kind between two cycles, and returns who prints the copy.
func (a *Agent) Rows(ctx context.Context, kind string) (func(io.Writer) error, error) {
	var out func(io.Writer) error
	var failed error
	if err := a.Do(ctx, func(context.Context) { out, failed = a.mode.Snapshot(kind) }); err != nil {
		return nil, err // the loop may be writing out just now
	}
	return out, failed
}
