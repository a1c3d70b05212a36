package iptables_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/iptables"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/build"
)

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func coin(r *rand.Rand) bool { return r.IntN(2) == 0 }

// randomConfig turns every knob.
func randomConfig(r *rand.Rand) iptables.Config {
	c := config()
	c.MasqueradeAll, c.Localhost, c.DropInvalid, c.Both = coin(r), coin(r), coin(r), coin(r)
	c.Everywhere = pick(r, nil, c.Everywhere)
	c.Masquerade = netfilter.Masquerade{
		Bit: pick[uint8](r, 0, 14, 31), RandomFully: func(f model.Family) bool { return f == model.IPv4 },
		NodePorts: pick(r, netfilter.PortRange{}, netfilter.PortRange{First: 30000, Last: 32767}),
	}
	c.Local = pick(r, c.Local, netfilter.LocalPods{}, netfilter.LocalPods{Mode: netfilter.LocalNodeCIDR},
		netfilter.LocalPods{Mode: netfilter.LocalBridge, Interface: "cbr0"}, netfilter.LocalPods{Mode: netfilter.LocalInterfaceName, Interface: "veth"})
	return c
}

// randomPlan is one of a few Services; addresses are from small pools, so that Services
// fight for them.
func randomPlan(r *rand.Rand) model.ServicePlan {
	name := fmt.Sprintf("%s/s%d", pick(r, "default", "my-ns"), r.IntN(5))
	proto, port := pick(r, model.TCP, model.UDP, model.SCTP), pick(r, "", "http", "dns-tcp")
	svc := build.Service(name, build.IPs(fmt.Sprintf("10.96.0.%d", 1+r.IntN(6)), fmt.Sprintf("fd00:96::%d", 1+r.IntN(6))), build.PortOver(proto, port, pick[uint16](r, 53, 80)))
	if coin(r) {
		build.PortOver(model.TCP, "metrics", 9153)(svc)
	}
	svc.InternalLocal, svc.ExternalLocal = coin(r), coin(r)
	svc.Affinity = pick(r, 0, 0, time.Second, 3*time.Hour)
	svc.HealthCheckNodePort = pick[uint16](r, 0, 0, 32000, 32001)
	for _, option := range []func(*model.Service){
		nodePort(pick[uint16](r, 30001, 30002)), externalIPs("203.0.113.1", "2001:db8::1"), balancer("203.0.113.2", "2001:db8::2", "203.0.113.3"),
		ranges("192.0.2.0/24", "192.168.0.0/16", "2001:db8:7::/48"),
	} {
		if coin(r) {
			option(svc)
		}
	}
	var list []model.Slice
	for _, pods := range []string{"10.244.0.", "fd00:244::"} {
		s := build.Slice(name, strings.ReplaceAll(name, "/", "-")+pods, build.TargetOver(proto, port, 8053), build.Target("metrics", 9153))
		for range r.IntN(5) {
			build.Endpoints(build.Ready(fmt.Sprint(pods, 1+r.IntN(9)), pick(r, "here", "far")))(&s)
		}
		if len(s.Endpoints) > 0 {
			s.Family = model.FamilyOf(s.Endpoints[0].Addr)
			list = append(list, s)
		}
	}
	p := compile(svc, list...)
	if r.IntN(4) == 0 {
		p = fromFile(p)
	}
	return p
}

// randomHost has addresses for NodePorts and a range of pods, or not.
func randomHost(r *rand.Rand) model.Host {
	h := host()
	h.NodePorts = h.NodePorts[:r.IntN(len(h.NodePorts)+1)]
	if coin(r) {
		h.Node.PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/24"), netip.MustParsePrefix("fd00:244::/64")}
	}
	return h
}

// seeded gives a test its random numbers, and logs the seed that repeats them.
func seeded(t *testing.T, seed uint64) *rand.Rand {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // reproducible on purpose
}

// The rendered rules equal the output of iptables-save, or they would never compare equal; so a
// process that starts over the rules of another writes nothing.
func TestEveryRuleIsCanonical(t *testing.T) {
	for seed := range uint64(80) {
		r := seeded(t, seed)
		c, h, k := randomConfig(r), randomHost(r), newKernel()
		var plans []model.ServicePlan
		for range 8 {
			plans = append(plans, randomPlan(r))
		}
		begun := func() *iptables.Mode {
			m := iptables.New(zap.NewNop(), c, k.deps())
			m.SetHost(h)
			for _, p := range plans {
				m.Set(p)
			}
			if err := m.Load(t.Context()); err != nil {
				t.Fatal(err)
			}
			return m
		}
		m := begun()
		apply(t, m)
		canonicalText(t, m)
		if again := apply(t, begun()); len(again.Stages) != 0 {
			t.Fatalf("seed %d: a restart wrote %+v, %v", seed, again.Stages, k.batches)
		}
	}
}

func canonicalText(t *testing.T, m *iptables.Mode) {
	t.Helper()
	var b strings.Builder
	if err := m.WriteRows(&b, "rules"); err != nil {
		t.Fatal(err)
	}
	family := rules.IPv4
	for line := range strings.Lines(b.String()) {
		line = strings.TrimSuffix(line, "\n")
		if line == "# ip6" {
			family = rules.IPv6
		}
		if _, rule, ok := strings.Cut(strings.TrimPrefix(line, "-A "), " "); ok && strings.HasPrefix(line, "-A ") {
			if got := rules.Canonical(family, rule); got != rule {
				t.Fatalf("rule\n%s\nis read back as\n%s", rule, got)
			}
			readsBack(t, family, rule)
		}
	}
}

// story is a mode, its kernel, and what is wanted of it.
type story struct {
	*kernel
	r      *rand.Rand
	config iptables.Config
	mode   *iptables.Mode
	host   model.Host
	plans  map[model.ServiceID]model.ServicePlan
	log    []string
}

// restart is another process over the same kernel.
func (s *story) restart(t *testing.T) {
	s.failAt = 0
	s.mode = iptables.New(zap.NewNop(), s.config, s.deps())
	s.mode.SetHost(s.host)
	for _, p := range s.plans {
		s.mode.Set(p)
	}
	if err := s.mode.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (s *story) step(t *testing.T) {
	what := pick(s.r, "set", "set", "set", "delete", "host", "apply", "apply", "apply", "fault", "fault", "restart", "interfere", "reload", "audit", "lost chain")
	s.log = append(s.log, what)
	switch what {
	case "set":
		p := randomPlan(s.r)
		s.plans[p.ID] = p
		s.mode.Set(p)
	case "delete":
		if ids := slices.SortedFunc(maps.Keys(s.plans), model.ServiceID.Compare); len(ids) > 0 {
			id := pick(s.r, ids...)
			delete(s.plans, id)
			s.mode.Set(model.ServicePlan{ID: id})
		}
	case "host":
		s.host = randomHost(s.r)
		s.mode.SetHost(s.host)
	case "apply":
		s.mode.Apply(t.Context(), dataplane.ApplyOptions{KeepOrphans: s.r.IntN(4) == 0, Retry: coin(s.r)})
	case "fault":
		s.failAt, s.with, s.late = len(s.calls)+1+s.r.IntN(3), pick(s.r, errPlanned, rules.ErrBusy, context.DeadlineExceeded), false
		s.late = !errors.Is(s.with, errPlanned) && coin(s.r)
	case "restart":
		s.restart(t)
	case "interfere":
		s.edit(t, disorders[pick(s.r, "a rule twice", "the last is not last", "a foreign rule among ours", "nothing in it")])
	case "reload":
		_ = s.mode.ReloadRules(t.Context()) // it may be the call that fails
	case "audit":
		s.now = s.now.Add(time.Hour)
		_, _ = finish(t, s.mode)
	case "lost chain":
		s.Delete(natKey(pick(s.r, "KUBE-MARK-MASQ", "KUBE-NODEPORTS", "KUBE-SERVICES")))
	}
}

// edit leaves a chain alone that has too few rules to be disordered.
func (s *story) edit(t *testing.T, how func([]string) []string) {
	if lines := s.chain(t, rules.IPv4, "nat", "KUBE-SERVICES"); len(lines) > 1 {
		s.kernel.edit(t, how)
	}
}

// After any sequence of events the kernel has the same rows as a new kernel would get.
func TestAnyStoryEndsTheSame(t *testing.T) {
	seeds := uint64(150)
	if testing.Short() {
		seeds = 30
	}
	for seed := range seeds {
		s := &story{kernel: newKernelOf(kinds[seed%2]), r: seeded(t, seed), plans: map[model.ServiceID]model.ServicePlan{}}
		s.config, s.host = randomConfig(s.r), host()
		s.restart(t)
		for range 5 + s.r.IntN(40) {
			s.step(t)
		}
		s.failAt, s.now = 0, s.now.Add(time.Hour)
		if _, err := finish(t, s.mode); err != nil { // finds what others did
			t.Fatal(err)
		}
		for range 3 { // rows in doubt are read, then written
			s.mode.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
		}
		apply(t, s.mode)
		fresh := &story{kernel: newKernel(), config: s.config, host: s.host, plans: s.plans}
		fresh.restart(t)
		apply(t, fresh.mode)
		if diff := cmp.Diff(fresh.canonical(t), s.canonical(t)); diff != "" {
			t.Fatalf("seed %d: %v ends with (-want +got):\n%s", seed, s.log, diff)
		}
	}
}

// readsBack fails where the value of a rule does not have the text of the rule.
func readsBack(t *testing.T, f rules.Family, text string) {
	t.Helper()
	r := netfilter.ReadLine(text).Rule(f)
	if back := netfilter.NewLine(f, r); back.String() != text {
		t.Errorf("rule %q is read as %#v, which is written as %q", text, r, back)
	}
	for _, m := range r.Match {
		if _, unknown := m.(netfilter.Unknown); unknown {
			t.Errorf("rule %q has a condition without a type: %v", text, m)
		}
	}
}
