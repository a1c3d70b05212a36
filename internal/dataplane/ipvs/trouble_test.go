package ipvs_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/ipset"
	"github.com/kube-ipvs/kube-ipvs/ipset/ipsettest"
)

// This file holds what goes wrong together, and what must not follow from it.

func TestFailedReadIsNoDrift(t *testing.T) {
	clean := newKernel()
	m := begin(t, clean, web)
	apply(t, m)
	clean.calls = nil
	round(t, m)
	for n := 1; n <= len(clean.calls); n++ {
		k := newKernel()
		m := begin(t, k, web)
		apply(t, m)
		k.calls, k.failAt = nil, n
		failed := false
		for done := false; !done; {
			a, err := m.Audit(t.Context(), 0)
			failed, done = failed || err != nil, a.Done
			if a.Drift.Total() != 0 {
				t.Errorf("call %d (%s) failed and was taken for drift: %v", n, k.calls[n-1], a.Drift)
			}
		}
		if call := k.calls[n-1]; strings.HasSuffix(call, "survey") {
			failed = slices.Contains(k.calls, "get servers") // instead of it
		}
		if !failed {
			t.Errorf("call %d (%s) failed and was not reported", n, k.calls[n-1])
		}
	}
}

// Each call that the kernel does not answer costs its deadline of seconds, and the loop
// waits for it: one is enough to know.
func TestSilentKernelIsNotAskedAgain(t *testing.T) {
	for _, tt := range []struct {
		silent string
		begun  bool // all desired rows are in place already
		do     func(m *ipvs.Mode)
	}{
		{"write sets", false, func(m *ipvs.Mode) { m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true}) }},
		{"write members", false, func(m *ipvs.Mode) { m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true}) }},
		{"write members", true, func(m *ipvs.Mode) { m.Clear(); m.Apply(t.Context(), dataplane.ApplyOptions{}) }},
		{"list members", true, wholeRound(t)},
		{"get servers", true, wholeRound(t)},
	} {
		t.Run(fmt.Sprintf("%s/%t", tt.silent, tt.begun), func(t *testing.T) {
			k := newKernel()
			k.servers.FailSurveys(errPlanned) // each server is read by itself
			m := begin(t, k, bothFamilies()...)
			if tt.begun {
				apply(t, m)
			}
			k.calls, k.silent = nil, tt.silent
			tt.do(m)
			asked := 0
			for _, call := range k.calls {
				if call == tt.silent {
					asked++
				}
			}
			if asked != 1 {
				t.Errorf("asked %d times, want once", asked)
			}
			k.silent = ""
			apply(t, m)
			round(t, m)
		})
	}
}

// bothFamilies are Services of two families enough for several pieces of a round.
func bothFamilies() (plans []model.ServicePlan) {
	for i := range 130 {
		vip := netip.AddrFrom4([4]byte{10, 96, 1, byte(i)}).String()
		if i%2 == 0 {
			vip = fmt.Sprintf("fd00::%d", i+1)
		}
		plans = append(plans, service(fmt.Sprint("svc", i), vip))
	}
	return plans
}

func wholeRound(t *testing.T) func(m *ipvs.Mode) {
	return func(m *ipvs.Mode) {
		failed := false
		for done := false; !done; {
			a, err := m.Audit(t.Context(), 0)
			failed, done = failed || err != nil, a.Done
		}
		if !failed {
			t.Error("the round said nothing")
		}
	}
}

func TestDeviceGoneWithoutAnEvent(t *testing.T) {
	for name, notice := range map[string]func(t *testing.T, m *ipvs.Mode){
		"told to read again": func(t *testing.T, m *ipvs.Mode) {
			if err := m.ReloadAddresses(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
		"noticed by the next address": func(_ *testing.T, m *ipvs.Mode) {
			m.AddressLost(netip.MustParseAddr("10.96.0.10"))
			m.Set(service("more", "10.96.0.11"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKernel()
			m := begin(t, k, web)
			apply(t, m)
			k.links.LoseLink()
			notice(t, m)
			apply(t, m)
			if !strings.Contains(k.links.String(), "10.96.0.10/32") {
				t.Errorf("the address is not back:\n%s", k.links)
			}
		})
	}
}

func TestOneFamilyDoesNotStopTheOther(t *testing.T) {
	k := newKernel()
	broken := rules.ChainKey{Family: rules.IPv6, Table: "filter", Name: "KUBE-IPVS-FILTER"}
	k.rules.Plan.FailChains = map[rules.ChainKey]error{broken: rules.ErrUnsupported}
	m := begin(t, k, web, dual)
	m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
	if !strings.Contains(k.servers.String(), "10.96.0.10:80") || !strings.Contains(k.links.String(), "10.96.0.10/32") {
		t.Errorf("IPv4 is not served:\n%s", k)
	}
	if strings.Contains(k.servers.String(), "fd00:96::10") {
		t.Error("IPv6 attracts traffic although its filter is missing")
	}
	m.Set(service("web", "10.96.0.10", "10.244.0.1:8080", "10.244.5.5:8080"))
	if r := m.Apply(t.Context(), dataplane.ApplyOptions{}); r.Total().Written() != 2 || r.Total().Failed != 0 {
		t.Errorf("a change did %+v, want one destination in and one out, and the broken row at rest", r.Stages)
	}
}

func TestAddressWaitsForItsServer(t *testing.T) {
	k := newKernel()
	k.servers.FailRow(webKey, errors.New("no memory"))
	m := begin(t, k, web)
	m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
	if strings.Contains(k.links.String(), "10.96.0.10") {
		t.Error("the host itself answers at an address without a Service")
	}
	k.servers.Heal()
	apply(t, m)
	if !strings.Contains(k.links.String(), "10.96.0.10") {
		t.Error("the address stays away")
	}
}

func TestReplacedSetKeepsWhatMayNotGo(t *testing.T) {
	k := newKernel()
	apply(t, begin(t, k, web, service("unread", "10.96.0.20", "10.244.0.9:8080")))
	k.sets.Inject(ipsettest.Fault{Op: ipset.OpAdd, Set: "KUBE-CLUSTER-IP", Nth: 1, Err: ipset.ErrFull})
	m := begin(t, k, web)
	m.Set(service("new", "10.96.0.30", "10.244.0.9:8080"))
	for range 2 {
		m.Apply(t.Context(), dataplane.ApplyOptions{KeepOrphans: true, Retry: true})
	}
	for _, want := range []string{"maxelem 131072", "10.96.0.10,tcp:80", "10.96.0.20,tcp:80", "10.96.0.30,tcp:80"} {
		if !strings.Contains(k.sets.String(), want) {
			t.Errorf("sets lack %s:\n%s", want, k.sets)
		}
	}
}

// A set that could not be created, and is no longer desired, leaves no entry to delete.
func TestEntryOfASetThatNeverExistedIsGone(t *testing.T) {
	k := newKernel()
	k.sets.Inject(ipsettest.Fault{Set: "KUBE-CAPTURE", Err: errors.New("no memory")})
	m := begin(t, k, external("web", "10.96.0.10", "192.0.2.1", model.KindExternalIP, func(f *model.Frontend) {
		f.Bind, f.Capture = false, true
	}))
	m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
	m.Set(service("web", "10.96.0.10", "10.244.0.1:8080"))
	m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
	k.sets.Heal()
	apply(t, m)
}

func TestForeignRuleThatHoldsASetCostsOurRulesNothing(t *testing.T) {
	k := newKernel()
	k.sets.Plant(ipset.Set{Name: "KUBE-LOOP-BACK", Type: ipset.HashIP, Family: ipset.IPv4}.WithDefaults())
	k.sets.Refer("KUBE-LOOP-BACK", 1) // a rule that is not ours
	apply4 := newKernel()
	apply(t, begin(t, apply4, web))
	if err := k.rules.Load(rules.IPv4, apply4.rules.Save(rules.IPv4)); err != nil {
		t.Fatal(err)
	}
	m := begin(t, k, web)
	m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
	if diff := cmp.Diff(apply4.rules.Save(rules.IPv4), k.rules.Save(rules.IPv4)); diff != "" {
		t.Errorf("rules (-before +after):\n%s", diff)
	}
}

// One pass that overflows a set in many batches asks for growth once.
func TestSetGrowsOnce(t *testing.T) {
	k := newKernel()
	k.sets.Plant(ipset.Set{Name: "KUBE-CLUSTER-IP", Type: ipset.HashIPPort, Family: ipset.IPv4, HashSize: 64, MaxElem: 65536})
	m := ipvs.New(zap.NewNop(), config(), k.deps())
	const ports = 72_000
	p := model.ServicePlan{ID: model.ServiceID{Name: "many"}}
	for i := range ports {
		key := model.FrontendKey{Addr: netip.AddrFrom4([4]byte{10, 96, byte(i >> 16), byte(i >> 8)}), Port: uint16(i&255 + 1), Protocol: model.TCP}
		p.Frontends = append(p.Frontends, model.Frontend{Key: key, Kind: model.KindClusterIP, Scheduler: rr})
	}
	m.Set(p)
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
	apply(t, m)
	set, entries, err := k.sets.List(t.Context(), "KUBE-CLUSTER-IP")
	if err != nil || len(entries) != ports || set.MaxElem != 262144 {
		t.Errorf("%d entries of at most %d (%v), want %d of 262144", len(entries), set.MaxElem, err, ports)
	}
}

// BenchmarkOneEndpointBesideOrphans shows that orphans that have to be kept cost
// a change nothing.
func BenchmarkOneEndpointBesideOrphans(b *testing.B) {
	for _, n := range []int{0, 1_000, 10_000} {
		b.Run(fmt.Sprintf("orphans=%d", n), func(b *testing.B) {
			k := newKernel()
			before := ipvs.New(zap.NewNop(), config(), k.deps())
			for i := range n + 1 {
				before.Set(tenEndpoints(i, 0))
			}
			if err := errors.Join(before.Start(b.Context()), before.Load(b.Context())); err != nil {
				b.Fatal(err)
			}
			apply(b, before)
			m := ipvs.New(zap.NewNop(), config(), k.deps())
			m.Set(tenEndpoints(0, 0))
			if err := m.Load(b.Context()); err != nil {
				b.Fatal(err)
			}
			for i := 0; b.Loop(); i++ {
				m.Set(tenEndpoints(0, i%2))
				m.Apply(b.Context(), dataplane.ApplyOptions{KeepOrphans: true})
				k.calls = k.calls[:0]
			}
		})
	}
}
