package ipvs_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap/zaptest"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/conntrack"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// swept keeps what was ordered, by key, and drops it when it is asked. A fresh address has a
// plus.
type swept struct {
	*kernel
	orders map[string]string
}

func (s *swept) Order(list ...conntrack.Order) {
	_ = s.note("order flows")
	for _, o := range list {
		text := "unserved"
		switch {
		case o.Untranslated:
			text = "untranslated"
		case !o.Unserved:
			text = "keep"
			for _, a := range o.Keep {
				mark := " "
				if slices.Contains(o.Fresh, a) {
					mark = " +"
				}
				text += mark + a.String()
			}
		}
		s.orders[netip.AddrPortFrom(o.Key.Addr, o.Key.Port).String()] = text
	}
}

func (s *swept) want(t *testing.T, when string, want map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, s.orders); diff != "" {
		t.Errorf("%s, orders (-want +got):\n%s", when, diff)
	}
	s.orders = map[string]string{}
}

// sweeping is a mode whose orders are kept.
func sweeping(t *testing.T, k *kernel, plans ...model.ServicePlan) (*ipvs.Mode, *swept) {
	t.Helper()
	s := &swept{k, map[string]string{}}
	deps := k.deps()
	deps.Flows = s
	m := ipvs.New(zaptest.NewLogger(t), config(), deps)
	m.SetHost(host())
	for _, p := range plans {
		m.Set(p)
	}
	if err := m.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return m, s
}

func over(p model.Protocol, plan model.ServicePlan) model.ServicePlan {
	return with(plan, func(f *model.Frontend) { f.Key.Protocol = p })
}

func TestFlowsOfUDP(t *testing.T) {
	k := newKernel()
	dns := func(backends ...string) model.ServicePlan { return over(model.UDP, draining(backends...)) }
	m, s := sweeping(t, k, dns(first, second))
	apply(t, m)
	s.want(t, "at the first start", map[string]string{vip + ":80": "keep +" + first + " +" + second})
	m.Set(dns(first, second, third))
	apply(t, m)
	s.want(t, "one more backend", map[string]string{vip + ":80": "keep " + first + " " + second + " +" + third})
	m.Set(dns(first))
	apply(t, m)
	s.want(t, "two less", map[string]string{vip + ":80": "keep " + first})
	if i, j := slices.Index(k.calls, "write destinations"), slices.Index(k.calls, "order flows"); i > j {
		t.Errorf("ordered before the kernel had it: %v", k.calls)
	}
	m.Set(dns())
	apply(t, m)
	s.want(t, "none", map[string]string{vip + ":80": "keep"})
	m.Set(dns(third))
	apply(t, m)
	s.want(t, "the first one again", map[string]string{vip + ":80": "keep +" + third})
	m.Set(gone("web"))
	apply(t, m)
	s.want(t, "without the Service", map[string]string{vip + ":80": "unserved"})
}

// TestFlowsOfTCPThatBeganBefore: those that no rule or server met go; IPVS looks after all others.
func TestFlowsOfTCPThatBeganBefore(t *testing.T) {
	began := map[string]string{vip + ":80": "untranslated"}
	k := newKernel()
	m, s := sweeping(t, k, draining(first, second))
	apply(t, m)
	s.want(t, "at the first start", began)
	if i, j := slices.Index(k.calls, "write addresses"), slices.Index(k.calls, "order flows"); i > j {
		t.Errorf("ordered before the address was bound: %v", k.calls)
	}
	m.Set(with(draining(first), func(f *model.Frontend) { f.Drain = 0 }))
	apply(t, m)
	s.want(t, "one less", map[string]string{})
	m.Set(draining(first, second, third))
	apply(t, m)
	s.want(t, "two more", map[string]string{})
	m.Set(gone("web"))
	apply(t, m)
	s.want(t, "without the Service", map[string]string{})
	m.Set(draining(first))
	apply(t, m)
	s.want(t, "with it again", began)
	m.Set(with(draining(first), func(f *model.Frontend) { f.Forward = model.ForwardTunnel }))
	apply(t, m)
	m.Set(gone("web"))
	apply(t, m)
	m.Set(with(draining(first), func(f *model.Frontend) { f.Forward = model.ForwardTunnel }))
	apply(t, m)
	s.want(t, "whose backends answer by themselves", map[string]string{})
}

// TestFlowsWaitForTheAddress: until it is bound, packets go past.
func TestFlowsWaitForTheAddress(t *testing.T) {
	for name, plan := range map[string]model.ServicePlan{"untranslated": draining(first), "keep +" + first: over(model.UDP, draining(first))} {
		k := newKernel()
		m, s := sweeping(t, k)
		apply(t, m)
		k.links.FailAddr(netip.MustParseAddr(vip), link.ErrBusy)
		m.Set(plan)
		m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
		s.orders = map[string]string{}
		k.links.Heal()
		apply(t, m)
		s.want(t, "with its address", map[string]string{vip + ":80": strings.Replace(name, "+", "", 1)})
	}
}

// An association that drains goes on.
func TestFlowsOfSCTPThatDrain(t *testing.T) {
	k := newKernel()
	m, s := sweeping(t, k, over(model.SCTP, draining(first, second)))
	apply(t, m)
	s.orders = map[string]string{}
	m.Set(over(model.SCTP, draining(first)))
	apply(t, m)
	s.want(t, "while it drains", map[string]string{})
	m.Set(over(model.SCTP, draining()))
	apply(t, m)
	m.Set(over(model.SCTP, draining(third)))
	apply(t, m)
	s.want(t, "another one begins", map[string]string{vip + ":80": "keep " + first + " " + second + " +" + third})
}

// TestFlowsOfSCTPWhoseServerGoes checks that the flows of an association end with its virtual server.
func TestFlowsOfSCTPWhoseServerGoes(t *testing.T) {
	m, s := sweeping(t, newKernel(), over(model.SCTP, draining(first, second)))
	apply(t, m)
	s.orders = map[string]string{}
	m.Set(gone("web"))
	apply(t, m)
	s.want(t, "without the Service", map[string]string{vip + ":80": "unserved"})
}

// Frontends that stay because some input cannot be read keep answering.
func TestFlowsWhileInputIsMissing(t *testing.T) {
	k := newKernel()
	apply(t, begin(t, k, over(model.UDP, draining(first, second))))
	m, s := sweeping(t, k, over(model.UDP, draining(first)))
	m.Apply(t.Context(), dataplane.ApplyOptions{KeepOrphans: true, Retry: true})
	for key := range s.orders {
		t.Errorf("%s: %s ordered with nothing new", key, s.orders[key])
	}
	m.Set(over(model.UDP, draining(first, third)))
	m.Apply(t.Context(), dataplane.ApplyOptions{KeepOrphans: true, Retry: true})
	s.want(t, "with a new backend", map[string]string{vip + ":80": "keep " + first + " " + second + " +" + third})
}

// Changes while no agent ran are unknown, and so is whether the previous agent swept their flows.
func TestFlowsAfterARestart(t *testing.T) {
	k := newKernel()
	apply(t, begin(t, k, over(model.UDP, draining(first))))
	m, s := sweeping(t, k, over(model.UDP, draining(first)))
	apply(t, m)
	s.want(t, "after the restart", map[string]string{vip + ":80": "keep " + first})
	apply(t, m)
	s.want(t, "with nothing new", map[string]string{})
}

// Flows that an earlier process left of a Service that was deleted meanwhile.
func TestFlowsOfAnOrphan(t *testing.T) {
	k := newKernel()
	apply(t, begin(t, k, over(model.UDP, draining(first))))
	m, s := sweeping(t, k)
	apply(t, m)
	s.want(t, "after the restart", map[string]string{vip + ":80": "unserved"})
}

// Clients of this node dial the load balancer and are answered by a backend of the cluster IP.
func TestFlowsOfADetour(t *testing.T) {
	const balancer = "203.0.113.7"
	plan := func(cluster ...string) model.ServicePlan {
		p := over(model.UDP, draining(cluster...))
		lb := over(model.UDP, service("web", balancer, first)).Frontends[0]
		lb.Kind, lb.Local, lb.Hairpin = model.KindLoadBalancer, true, nil
		lb.Detour = netip.MustParseAddrPort(vip + ":80")
		p.Frontends = append(p.Frontends, lb)
		return p
	}
	m, s := sweeping(t, newKernel(), plan(first, second))
	apply(t, m)
	s.want(t, "at the first start", map[string]string{
		vip + ":80": "keep +" + first + " +" + second, balancer + ":80": "keep +" + first + " " + second,
	})
	m.Set(plan(first))
	apply(t, m)
	s.want(t, "without the second", map[string]string{vip + ":80": "keep " + first, balancer + ":80": "keep " + first})
}
