package iptables_test

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/iptables"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/conntrack"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables/nftablestest"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules/rulestest"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/plan"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/build"
)

// kernel is the stateful fake with a count of its calls. One call can be made to fail, or to
// succeed with an error.
type kernel struct {
	*rulestest.Fake
	tables *nftablestest.Fake

	calls  []string
	failAt int   // the call that fails, counted from 1
	with   error // its error; nil is errPlanned
	late   bool  // it is carried out all the same
	// batches are the rows handed to Write, a line each.
	batches [][]string
	// reading runs in each List after the kernel was read.
	reading func()
	// generation is told instead of the fake's own, unless it is 0.
	generation uint64
	orders     map[string]string
	now        time.Time
}

func newKernel() *kernel { return newKernelOf(rules.NFT) }

var kinds = []rules.Backend{rules.NFT, rules.Legacy}

func newKernelOf(b rules.Backend) *kernel {
	return &kernel{
		Fake:   rulestest.New(rules.Options{Owned: netfilter.OfIPTables, Backend: b}),
		tables: nftablestest.New(),
		orders: map[string]string{},
		now:    time.Unix(1_000_000, 0),
	}
}

var errPlanned = errors.New("planned failure")

// note counts a call. failing reports whether the call fails, carried whether it has its effect.
func (k *kernel) note(call string) (err error, carried bool) {
	k.calls = append(k.calls, call)
	if len(k.calls) != k.failAt {
		return nil, true
	}
	if err = k.with; err == nil {
		err = errPlanned
	}
	return err, k.late
}

func (k *kernel) List(ctx context.Context) (map[rules.ChainKey]rules.Chain, map[rules.JumpKey]rules.Jump, error) {
	if err, _ := k.note("list"); err != nil {
		return nil, nil, err
	}
	chains, jumps, err := k.Fake.List(ctx)
	if k.reading != nil {
		k.reading()
	}
	return chains, jumps, err
}

func (k *kernel) Generation(ctx context.Context) uint64 {
	if k.generation != 0 {
		return k.generation
	}
	return k.Fake.Generation(ctx)
}

func (k *kernel) Write(ctx context.Context, chains []rules.ChainChange, edits []rules.RuleChange) (chainErrs, ruleErrs []error) {
	err, carried := k.note("write")
	k.batches = append(k.batches, rows(chains, edits))
	if carried {
		chainErrs, ruleErrs = k.Fake.Write(ctx, chains, edits)
	}
	if err != nil {
		return slices.Repeat([]error{err}, len(chains)), slices.Repeat([]error{err}, len(edits))
	}
	return chainErrs, ruleErrs
}

// rows prints what a write is to do: "update ip nat KUBE-SVC-X", and of single rules
// what they lead to: "add rule ip nat KUBE-SERVICES -j KUBE-SVC-X".
func rows(chains []rules.ChainChange, edits []rules.RuleChange) []string {
	var out []string
	for _, c := range chains {
		out = append(out, c.Op.String()+" "+c.Key.String())
	}
	for _, c := range edits {
		out = append(out, c.Op.String()+" rule "+c.Chain.String()+" -j "+rules.Targets(c.Rule)[0])
	}
	slices.Sort(out)
	return out
}

func (k *kernel) WriteJumps(ctx context.Context, changes []rules.JumpChange) []error {
	err, carried := k.note("write jumps")
	var errs []error
	if carried {
		errs = k.Fake.WriteJumps(ctx, changes)
	}
	if err != nil {
		return slices.Repeat([]error{err}, len(changes))
	}
	return errs
}

// Order keeps what was ordered, by what a client dials.
func (k *kernel) Order(list ...conntrack.Order) {
	k.calls = append(k.calls, "order flows")
	for _, o := range list {
		text := "unserved"
		switch {
		case !o.Unserved:
			text = "keep"
			for _, a := range o.Keep {
				text += " " + a.String()
			}
			for _, a := range o.Near {
				text += " near " + a.String()
			}
			for _, p := range o.From {
				text += " from " + p.String()
			}
		}
		if o.Connections {
			text = "spare connections, " + text
		}
		k.orders[o.Key.String()] = text
	}
}

// forget drops what was counted so far.
func (k *kernel) forget() { k.calls, k.batches, k.failAt = nil, nil, 0 }

func (k *kernel) deps() iptables.Deps {
	return iptables.Deps{Rules: k, Flows: k, Tables: k.tables, Now: func() time.Time { return k.now }}
}

// chain is the content of a chain, a rule each.
func (k *kernel) chain(t testing.TB, f rules.Family, table, name string) []string {
	t.Helper()
	chains, _, err := k.Fake.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, ok := chains[rules.ChainKey{Family: f, Table: table, Name: name}]
	switch {
	case !ok:
		return []string{"no such chain"}
	case c.Rules == "":
		return nil
	}
	return strings.Split(c.Rules, "\n")
}

// canonical is the whole kernel, rules of dispatch chains in no order but the last.
func (k *kernel) canonical(t testing.TB) map[string][]string {
	t.Helper()
	chains, jumps, err := k.Fake.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for key, c := range chains {
		lines := strings.Split(c.Rules, "\n")
		if dispatches(key) {
			slices.SortFunc(lines, func(a, b string) int {
				return strings.Compare(lastPart(a)+a, lastPart(b)+b)
			})
		}
		out[key.String()] = lines
	}
	for key, j := range jumps {
		out[key.String()] = []string{j.Args}
	}
	return out
}

func dispatches(k rules.ChainKey) bool {
	return slices.Contains([]string{"KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-EXTERNAL-SERVICES", "KUBE-PROXY-FIREWALL"}, k.Name)
}

// lastPart puts the rules for NodePorts behind the others.
func lastPart(rule string) string {
	if strings.HasSuffix(rule, "-j KUBE-NODEPORTS") {
		return "z"
	}
	return "a"
}

func config() iptables.Config {
	families := model.Families()
	return iptables.Config{
		Families:   families[:],
		Masquerade: netfilter.Masquerade{Bit: 14},
		Local: netfilter.LocalPods{Mode: netfilter.LocalClusterCIDR, ClusterCIDRs: []netip.Prefix{
			netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/48"),
		}},
		DropInvalid: true,
		Everywhere:  func(model.Family) bool { return true },
	}
}

// host is a machine with two addresses of IPv4 and one of IPv6.
func host() model.Host {
	h := model.Host{Links: map[netip.Addr]string{}, Node: model.Node{Name: "here"}}
	for _, a := range []string{"192.168.0.1", "192.168.0.2", "fd00:192::1"} {
		h.Links[netip.MustParseAddr(a)] = "eth0"
		h.NodePorts = append(h.NodePorts, netip.MustParseAddr(a))
	}
	h.Node.Addresses = []netip.Addr{h.NodePorts[0], h.NodePorts[2]}
	return h
}

// compile plans a Service for this node.
func compile(svc *model.Service, list ...model.Slice) model.ServicePlan {
	c := plan.New(plan.Options{Node: "here", IPv4: true, IPv6: true, NoBinding: true, Host: host()})
	return c.Compile(svc.ID, svc, list)
}

// start makes a mode over what the kernel holds, wants plans, and reads.
func start(t testing.TB, k *kernel, c iptables.Config, plans ...model.ServicePlan) *iptables.Mode {
	t.Helper()
	m := iptables.New(zaptest.NewLogger(t), c, k.deps())
	m.SetHost(host())
	for _, p := range plans {
		m.Set(p)
	}
	if err := errors.Join(m.Start(t.Context()), m.Load(t.Context())); err != nil {
		t.Fatal(err)
	}
	return m
}

func begin(t testing.TB, k *kernel, plans ...model.ServicePlan) *iptables.Mode {
	t.Helper()
	return start(t, k, config(), plans...)
}

// apply writes everything and fails the test if something stays pending.
func apply(t testing.TB, m *iptables.Mode) dataplane.Result {
	t.Helper()
	r := m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
	if r.Pending != 0 || r.Total().Err() != nil {
		t.Fatalf("%d rows pending: %v", r.Pending, r.Total().Err())
	}
	return r
}

// clean is what a kernel without a past comes to hold for these Services.
func clean(t testing.TB, c iptables.Config, plans ...model.ServicePlan) *kernel {
	t.Helper()
	k := newKernel()
	apply(t, start(t, k, c, plans...))
	return k
}

// service is a plan with one TCP port on a cluster IP; the first endpoint is on this node.
func service(name, ip string, endpoints ...string) model.ServicePlan {
	return over(model.TCP, name, ip, endpoints...)
}

func over(p model.Protocol, name, ip string, endpoints ...string) model.ServicePlan {
	svc := build.Service(name, build.IPs(ip), build.PortOver(p, "", 80))
	return compile(svc, backends(p, name, endpoints...))
}

// backends is a slice with endpoints on port 8080, the first on this node.
func backends(p model.Protocol, name string, endpoints ...string) model.Slice {
	s := build.Slice(name, name+"-a", build.TargetOver(p, "", 8080))
	node := "here"
	for _, e := range endpoints {
		build.Endpoints(build.Ready(e, node))(&s)
		s.Family = model.FamilyOf(s.Endpoints[0].Addr)
		node = "far"
	}
	return s
}

func gone(name string) model.ServicePlan { return model.ServicePlan{ID: build.ID(name)} }

// nodePort gives the first port of a Service a NodePort.
func nodePort(port uint16) func(*model.Service) {
	return func(s *model.Service) {
		if s.Type == "ClusterIP" {
			s.Type = "NodePort"
		}
		s.Ports[0].NodePort = port
	}
}

func externalIPs(addrs ...string) func(*model.Service) {
	return func(s *model.Service) {
		for _, a := range addrs {
			s.ExternalIPs = append(s.ExternalIPs, netip.MustParseAddr(a))
		}
	}
}

func balancer(addrs ...string) func(*model.Service) {
	return func(s *model.Service) {
		s.Type = "LoadBalancer"
		for _, a := range addrs {
			s.Ingress = append(s.Ingress, model.Ingress{Addr: netip.MustParseAddr(a)})
		}
	}
}

func ranges(list ...string) func(*model.Service) {
	return func(s *model.Service) {
		for _, r := range list {
			s.SourceRanges = append(s.SourceRanges, netip.MustParsePrefix(r))
		}
	}
}

func externalLocal() func(*model.Service) {
	return func(s *model.Service) { s.ExternalLocal = true }
}

// sortedKeys is for messages.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// silentRules keeps nothing and refuses nothing: benchmarks measure the mode alone.
type silentRules struct{}

func (*silentRules) Backend() rules.Backend { return rules.NFT }

func (*silentRules) Generation(context.Context) uint64 { return 0 }

func (*silentRules) List(context.Context) (map[rules.ChainKey]rules.Chain, map[rules.JumpKey]rules.Jump, error) {
	return nil, nil, nil
}

func (*silentRules) Write(context.Context, []rules.ChainChange, []rules.RuleChange) (chainErrs, ruleErrs []error) {
	return nil, nil
}

func (*silentRules) WriteJumps(context.Context, []rules.JumpChange) []error { return nil }
