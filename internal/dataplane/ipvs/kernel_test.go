package ipvs_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"go.uber.org/zap/zaptest"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link/linktest"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules/rulestest"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver/vservertest"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/ipset"
	"github.com/kube-ipvs/kube-ipvs/ipset/ipsettest"
)

// kernel is the four fakes behind one door that notes every call in order and
// fails the one it is told to.
type kernel struct {
	servers *vservertest.Fake
	sets    *ipsettest.Fake
	rules   *rulestest.Fake
	links   *linktest.Fake

	calls  []string
	failAt int    // the number of the call that fails, from 1
	lose   bool   // the reply to the first row of the next call that writes routes
	refuse string // a call that always fails
	silent string // a call that is never answered in time
	diesAt int    // all calls from this number on fail, because the process has died
	// watch, if set, is called before each call.
	watch func()
}

func newKernel() *kernel {
	return &kernel{
		servers: vservertest.NewFake(),
		sets:    ipsettest.New(),
		rules:   rulestest.New(rules.Options{Owned: netfilter.Owned, Families: []rules.Family{rules.IPv4, rules.IPv6}}),
		links:   linktest.New(),
	}
}

var errPlanned = errors.New("planned failure")

// note counts a call and returns an error if it is the one to fail.
func (k *kernel) note(call string) error {
	if k.watch != nil {
		k.watch()
	}
	k.calls = append(k.calls, call)
	if len(k.calls) == k.failAt || call == k.refuse || k.diesAt > 0 && len(k.calls) >= k.diesAt {
		return errPlanned
	}
	if call == k.silent {
		return fmt.Errorf("no reply: %w", context.DeadlineExceeded)
	}
	return nil
}

func (k *kernel) deps() ipvs.Deps {
	return ipvs.Deps{Servers: servers{k}, Sets: sets{k}, Rules: ruleset{k}, Links: links{k}}
}

// String is everything in the kernel, the way the tools print it.
func (k *kernel) String() string {
	return k.servers.String() + k.sets.String() + k.rules.String() + k.links.String()
}

// many fails all rows of a batch.
func many(n int, err error) []error {
	out := make([]error, n)
	for i := range out {
		out[i] = err
	}
	return out
}

type servers struct{ *kernel }

func (s servers) ListServers(ctx context.Context) (map[vserver.ServerKey]vserver.Server, error) {
	if err := s.note("list servers"); err != nil {
		return nil, err
	}
	return s.servers.ListServers(ctx)
}

func (s servers) GetServers(ctx context.Context, keys []vserver.ServerKey) (map[vserver.ServerKey]vserver.Server, error) {
	if err := s.note("get servers"); err != nil {
		return nil, err
	}
	return s.servers.GetServers(ctx, keys)
}

func (s servers) ListDestinations(ctx context.Context, k vserver.ServerKey) (map[vserver.DestinationKey]vserver.Destination, error) {
	if err := s.note("list destinations"); err != nil {
		return nil, err
	}
	return s.servers.ListDestinations(ctx, k)
}

func (s servers) BeginSurvey(ctx context.Context) error {
	if err := s.note("begin survey"); err != nil {
		return err
	}
	return s.servers.BeginSurvey(ctx)
}

func (s servers) Survey(ctx context.Context, visit func(vserver.ServerKey, vserver.Digest)) (bool, error) {
	if err := s.note("survey"); err != nil {
		return false, err
	}
	return s.servers.Survey(ctx, visit)
}

func (s servers) Count(wanted map[vserver.DestinationKey]struct{}) vserver.Counting {
	return tallied{s, s.servers.Count(wanted), new(bool)}
}

// tallied is a counting of which the beginning is noted.
type tallied struct {
	servers
	vserver.Counting
	begun *bool
}

func (n tallied) Next(ctx context.Context) (map[vserver.DestinationKey]vserver.Connections, bool, error) {
	if !*n.begun {
		*n.begun = true
		if err := n.note("count connections"); err != nil {
			return nil, false, err
		}
	}
	return n.Counting.Next(ctx)
}

func (s servers) WriteServers(ctx context.Context, c []vserver.ServerChange) []error {
	if err := s.note("write servers"); err != nil {
		return many(len(c), err)
	}
	return s.servers.WriteServers(ctx, c)
}

func (s servers) WriteDestinations(ctx context.Context, c []vserver.DestinationChange) []error {
	if err := s.note("write destinations"); err != nil {
		return many(len(c), err)
	}
	return s.servers.WriteDestinations(ctx, c)
}

type sets struct{ *kernel }

func (s sets) Stat(ctx context.Context) ([]ipset.Info, error) {
	if err := s.note("stat sets"); err != nil {
		return nil, err
	}
	return s.sets.Stat(ctx)
}

func (s sets) ListSets(ctx context.Context) ([]ipset.Set, error) {
	if err := s.note("list sets"); err != nil {
		return nil, err
	}
	return s.sets.ListSets(ctx)
}

func (s sets) List(ctx context.Context, name string) (ipset.Set, []ipset.Entry, error) {
	if err := s.note("list members"); err != nil {
		return ipset.Set{}, nil, err
	}
	return s.sets.List(ctx, name)
}

func (s sets) CreateAll(ctx context.Context, list ...ipset.Set) []error {
	if err := s.note("write sets"); err != nil {
		return many(len(list), err)
	}
	return s.sets.CreateAll(ctx, list...)
}

func (s sets) Replace(ctx context.Context, set ipset.Set, e []ipset.Entry) error {
	if err := s.note("write sets"); err != nil {
		return err
	}
	return s.sets.Replace(ctx, set, e)
}

func (s sets) Destroy(ctx context.Context, name string) error {
	if err := s.note("write sets"); err != nil {
		return err
	}
	return s.sets.Destroy(ctx, name)
}

func (s sets) Write(ctx context.Context, set ipset.Set, c []ipset.Change) []error {
	if err := s.note("write members"); err != nil {
		return many(len(c), err)
	}
	return s.sets.Write(ctx, set, c)
}

func (s sets) WriteAll(ctx context.Context, batches ...ipset.Batch) [][]error {
	if err := s.note("write members"); err != nil {
		out := make([][]error, len(batches))
		for i, b := range batches {
			out[i] = many(len(b.Changes), err)
		}
		return out
	}
	return s.sets.WriteAll(ctx, batches...)
}

type ruleset struct{ *kernel }

func (r ruleset) List(ctx context.Context) (map[rules.ChainKey]rules.Chain, map[rules.JumpKey]rules.Jump, error) {
	if err := r.note("list rules"); err != nil {
		return nil, nil, err
	}
	return r.rules.List(ctx)
}

func (r ruleset) Generation(ctx context.Context) uint64 { return r.rules.Generation(ctx) }

func (r ruleset) WriteChains(ctx context.Context, c []rules.ChainChange) []error {
	if err := r.note("write chains"); err != nil {
		return many(len(c), err)
	}
	return r.rules.WriteChains(ctx, c)
}

func (r ruleset) WriteJumps(ctx context.Context, c []rules.JumpChange) []error {
	if err := r.note("write jumps"); err != nil {
		return many(len(c), err)
	}
	return r.rules.WriteJumps(ctx, c)
}

type links struct{ *kernel }

func (l links) Ensure(ctx context.Context) (bool, error) {
	if err := l.note("ensure link"); err != nil {
		return false, err
	}
	return l.links.Ensure(ctx)
}

func (l links) List(ctx context.Context) (map[netip.Addr]struct{}, error) {
	if err := l.note("list addresses"); err != nil {
		return nil, err
	}
	return l.links.List(ctx)
}

func (l links) Write(ctx context.Context, c []link.Change) []error {
	if err := l.note("write addresses"); err != nil {
		return many(len(c), err)
	}
	return l.links.Write(ctx, c)
}

func (l links) ListRoutes(ctx context.Context) (map[netip.Prefix]struct{}, error) {
	if err := l.note("list routes"); err != nil {
		return nil, err
	}
	return l.links.ListRoutes(ctx)
}

func (l links) WriteRoutes(ctx context.Context, c []link.RouteChange) []error {
	if err := l.note("write routes"); err != nil {
		return many(len(c), err)
	}
	errs := l.links.WriteRoutes(ctx, c)
	if l.lose && errs == nil {
		l.lose = false
		errs = make([]error, len(c))
		errs[0] = errPlanned
	}
	return errs
}

func (l links) ListDetached(ctx context.Context) (map[netip.Addr]bool, error) {
	if err := l.note("list detached"); err != nil {
		return nil, err
	}
	return l.links.ListDetached(ctx)
}

func (l links) WriteDetached(ctx context.Context, c []link.Change) []error {
	if err := l.note("write detached"); err != nil {
		return many(len(c), err)
	}
	return l.links.WriteDetached(ctx, c)
}

func (l links) Remove(ctx context.Context) error {
	if err := l.note("remove link"); err != nil {
		return err
	}
	return l.links.Remove(ctx)
}

// config is a node with pods in 10.244.0.0/16.
func config() ipvs.Config {
	families := model.Families()
	return ipvs.Config{
		Families:   families[:],
		Masquerade: netfilter.Masquerade{Bit: 14},
		Local: netfilter.LocalPods{
			Mode:         netfilter.LocalClusterCIDR,
			ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")},
		},
	}
}

// host is a machine with two addresses on which NodePorts answer.
func host() model.Host {
	h := model.Host{Links: map[netip.Addr]string{}}
	for _, a := range []string{"192.168.0.1", "192.168.0.2", "fd00:192::1"} {
		h.Links[netip.MustParseAddr(a)] = "eth0"
		h.NodePorts = append(h.NodePorts, netip.MustParseAddr(a))
	}
	return h
}

// begin starts a new mode over what the kernel holds, wants plans, and reads.
func begin(t testing.TB, k *kernel, plans ...model.ServicePlan) *ipvs.Mode {
	t.Helper()
	m := ipvs.New(zaptest.NewLogger(t), config(), k.deps())
	m.SetHost(host())
	for _, p := range plans {
		m.Set(p)
	}
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return m
}

// apply writes everything and fails the test if something stays pending.
func apply(t testing.TB, m *ipvs.Mode) dataplane.Result {
	t.Helper()
	r := m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
	if r.Pending != 0 || r.Total().Err() != nil {
		t.Fatalf("%d rows pending: %v", r.Pending, r.Total().Err())
	}
	return r
}

// service is a plan with one port on vip and the given backends; the first is
// on this node.
func service(name, vip string, backends ...string) model.ServicePlan {
	p := model.ServicePlan{ID: model.ServiceID{Origin: model.FromFile, Namespace: "default", Name: name}}
	f := model.Frontend{
		Key: model.FrontendKey{Addr: netip.MustParseAddr(vip), Port: 80, Protocol: model.TCP}, Kind: model.KindClusterIP,
		Service: p.ID, Scheduler: rr, Bind: true,
	}
	for i, b := range backends {
		addr := netip.MustParseAddrPort(b)
		f.Backends = append(f.Backends, model.Backend{Addr: addr, Weight: model.DefaultWeight})
		if i == 0 {
			f.Hairpin = append(f.Hairpin, addr)
		}
	}
	p.Frontends = []model.Frontend{f}
	return p
}

// gone is the plan of a deleted Service.
func gone(name string) model.ServicePlan {
	return model.ServicePlan{ID: model.ServiceID{Origin: model.FromFile, Namespace: "default", Name: name}}
}
