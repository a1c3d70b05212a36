package ipvs_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// rotation is in how many rounds each server is read exactly.
const rotation = 16

// crowd is many Services, web among them.
func crowd() []model.ServicePlan {
	plans := []model.ServicePlan{web, dual}
	for i := range 60 {
		p := service(fmt.Sprintf("s%d", i), fmt.Sprintf("10.96.%d.7", 1+i), fmt.Sprintf("10.244.2.%d:80", i), fmt.Sprintf("10.244.3.%d:80", i))
		if i%3 == 0 {
			p.Frontends[0].Affinity = time.Duration(1+i) * time.Minute
		}
		plans = append(plans, p)
	}
	return plans
}

// exact counts the servers that were read by themselves.
func (k *kernel) exact() (n int) {
	for _, call := range k.calls {
		if call == "list destinations" {
			n++
		}
	}
	return n
}

// A server without faults is read once in many audits, and is no drift.
func TestRoundsReadEachServerSeldom(t *testing.T) {
	k := newKernel()
	m := begin(t, k, crowd()...)
	apply(t, m)
	k.calls = nil
	most := 0
	for range rotation {
		before := k.exact()
		if n := round(t, m); n != 0 {
			t.Errorf("%d rows drifted without a reason", n)
		}
		most = max(most, k.exact()-before)
	}
	if got := k.exact(); got != len(crowd()) {
		t.Errorf("%d servers were read in %d rounds, want each of %d once", got, rotation, len(crowd()))
	}
	if most > len(crowd())/2 {
		t.Errorf("%d servers were read in one round", most)
	}
	if n := len(k.calls) - len(slices.DeleteFunc(slices.Clone(k.calls), func(call string) bool { return call == "list servers" })); n != 1 {
		t.Errorf("all servers were listed %d times in %d rounds, want once", n, rotation)
	}
}

// A list that passes over what is strange hides it no longer than many rounds, and one
// that passes over servers of ours, too, for none.
func TestStrangersThatAreNotShown(t *testing.T) {
	for name, tt := range map[string]struct {
		order  func([]vserver.ServerKey) []vserver.ServerKey
		rounds int
	}{
		"the stranger alone": {func(keys []vserver.ServerKey) []vserver.ServerKey {
			return slices.DeleteFunc(keys, func(k vserver.ServerKey) bool { return k.Port == 99 })
		}, rotation},
		"ours, too": {func([]vserver.ServerKey) []vserver.ServerKey { return nil }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKernel()
			m := begin(t, k, crowd()...)
			apply(t, m)
			text := k.String()
			k.servers.ReorderSurveys(tt.order)
			drifts["strange server"](t, k)
			found := 0
			for range tt.rounds {
				found += round(t, m)
			}
			apply(t, m)
			if found == 0 || k.String() != text {
				t.Errorf("%d rows drifted in %d rounds, want the stranger found", found, tt.rounds)
			}
		})
	}
}

// A difference that the survey shows is found in each audit, not only when it is the server's turn.
func TestEachRoundFindsWhatIsShown(t *testing.T) {
	for _, name := range []string{"server and its destinations", "all servers", "scheduler", "destination", "weight", "strange destination", "strange server"} {
		t.Run(name, func(t *testing.T) {
			k := newKernel()
			m := begin(t, k, web, dual)
			apply(t, m)
			text := k.String()
			for i := range rotation {
				drifts[name](t, k)
				if round(t, m) == 0 {
					t.Fatalf("round %d saw nothing", i)
				}
				apply(t, m)
				if k.String() != text {
					t.Fatalf("round %d mended nothing", i)
				}
			}
		})
	}
}

// A difference that the survey does not show is found when it is the server's turn.
func TestRoundsFindWhatIsNotShown(t *testing.T) {
	six := vserver.ServerKey{Addr: netip.MustParseAddr("fd00:96::10"), Port: 80, Protocol: 6}
	for name, damage := range map[string]func(t *testing.T, k *kernel){
		"scheduler's flag": func(t *testing.T, k *kernel) {
			flagged := vserver.Server{Scheduler: "rr", Flags: vserver.FlagSched2}
			mustWrite(t, k.servers.WriteServers(t.Context(), []vserver.ServerChange{{Op: vserver.Update, Key: webKey, Server: flagged}}))
		},
		"one packet of IPv6": func(t *testing.T, k *kernel) {
			flagged := vserver.Server{Scheduler: "rr", Flags: vserver.FlagOnePacket}
			mustWrite(t, k.servers.WriteServers(t.Context(), []vserver.ServerChange{{Op: vserver.Update, Key: six, Server: flagged}}))
		},
		"threshold": func(t *testing.T, k *kernel) {
			bounded := vserver.Destination{Weight: model.DefaultWeight, Upper: 1}
			mustWrite(t, k.servers.WriteDestinations(t.Context(), []vserver.DestinationChange{{Op: vserver.Update, Key: webDestination, Destination: bounded}}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKernel()
			m := begin(t, k, web, dual)
			apply(t, m)
			text := k.String()
			damage(t, k)
			found := 0
			for range rotation {
				found += round(t, m)
			}
			if found != 1 {
				t.Errorf("%d rows drifted in %d rounds, want 1", found, rotation)
			}
			apply(t, m)
			if k.String() != text {
				t.Error("it was not mended")
			}
		})
	}
}

// A survey that passes servers over, or shows them twice, costs reads and makes no drift.
func TestSurveyIsNotTheTruth(t *testing.T) {
	for name, order := range map[string]func([]vserver.ServerKey) []vserver.ServerKey{
		"half":    func(keys []vserver.ServerKey) []vserver.ServerKey { return keys[len(keys)/2:] },
		"none":    func([]vserver.ServerKey) []vserver.ServerKey { return nil },
		"twice":   func(keys []vserver.ServerKey) []vserver.ServerKey { return append(keys, keys...) },
		"shifted": func(keys []vserver.ServerKey) []vserver.ServerKey { return append(keys[5:], keys[5:20]...) },
	} {
		t.Run(name, func(t *testing.T) {
			k := newKernel()
			m := begin(t, k, crowd()...)
			apply(t, m)
			k.servers.ReorderSurveys(order)
			for range rotation {
				if n := round(t, m); n != 0 {
					t.Errorf("%d rows drifted without a reason", n)
				}
			}
			drifts["weight"](t, k)
			if n := round(t, m); n != 1 {
				t.Errorf("%d rows drifted, want 1", n)
			}
		})
	}
}

// A list that cannot be read costs reads and hides nothing, and is told of once.
func TestRoundsWithoutSurvey(t *testing.T) {
	core, said := observer.New(zap.WarnLevel)
	k := newKernel()
	m := ipvs.New(zap.New(core), config(), k.deps())
	m.SetHost(host())
	for _, p := range crowd() {
		m.Set(p)
	}
	if err := m.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	apply(t, m)
	text := k.String()
	for _, fails := range []error{errors.New("malformed"), nil, errors.New("hidden")} {
		k.servers.FailSurveys(fails)
		said.TakeAll()
		for range 3 {
			k.calls = nil
			if n := round(t, m); n != 0 {
				t.Errorf("%d rows drifted without a reason", n)
			}
			if all := k.exact() == len(crowd()); all != (fails != nil) {
				t.Errorf("%v: %d servers were read, want all: %t", fails, k.exact(), fails != nil)
			}
			for _, name := range []string{"weight", "strange server", "all servers"} {
				drifts[name](t, k)
				if round(t, m) == 0 {
					t.Errorf("%v: %s was not seen", fails, name)
				}
				apply(t, m)
				if k.String() != text {
					t.Fatalf("%v: %s was not mended", fails, name)
				}
			}
		}
		want := 1
		if fails == nil {
			want = 0
		}
		if got := said.Len(); got != want {
			t.Errorf("%v: %d warnings, want %d", fails, got, want)
		}
	}
}

// A survey that breaks off in the middle is no list of what is there.
func TestSurveyBreaksOff(t *testing.T) {
	k := newKernel()
	m := begin(t, k, crowd()...)
	apply(t, m)
	k.calls, k.watch = nil, func() {
		if n := len(k.calls); n > 0 && k.calls[n-1] == "survey" {
			k.servers.FailSurveys(errPlanned)
		}
	}
	if n := round(t, m); n != 0 {
		t.Errorf("%d rows drifted without a reason", n)
	}
	if n := k.exact(); n != len(crowd()) {
		t.Errorf("%d servers were read, want all %d", n, len(crowd()))
	}
}

// Rows that are not as they are wanted, and known not to be, are no drift and no doubt.
func TestPendingRowsAreNoDoubt(t *testing.T) {
	k := newKernel()
	m := begin(t, k, crowd()...)
	apply(t, m)
	k.servers.FailRow(vserver.DestinationKey{Server: webKey, Addr: netip.MustParseAddr("10.244.1.2"), Port: 8080}, errPlanned)
	m.Set(service("web", "10.96.0.10", "10.244.0.1:8080", "10.244.1.1:8080", "10.244.1.2:8080"))
	if r := m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true}); r.Pending != 1 {
		t.Fatalf("%d rows pending, want 1", r.Pending)
	}
	wantQuiet(t, k, m, len(crowd()))
}

// So are orphans, which are kept while some input is missing.
func TestOrphansAreNoDoubt(t *testing.T) {
	k := newKernel()
	apply(t, begin(t, k, crowd()...))
	m := begin(t, k, crowd()[1:]...)
	m.Apply(t.Context(), dataplane.ApplyOptions{KeepOrphans: true, Retry: true})
	wantQuiet(t, k, m, len(crowd()))
}

// wantQuiet takes all turns, in which each server is read once.
func wantQuiet(t *testing.T, k *kernel, m *ipvs.Mode, servers int) {
	t.Helper()
	k.calls = nil
	for range rotation {
		if n := round(t, m); n != 0 {
			t.Errorf("%d rows drifted without a reason", n)
		}
	}
	if got := k.exact(); got != servers {
		t.Errorf("%d servers were read, want each of %d once", got, servers)
	}
}

// replayed shows the same in each survey, and is everything else of a fake.
type replayed struct {
	servers
	keys  []vserver.ServerKey
	shown []vserver.Digest
	next  *int
}

func (r replayed) BeginSurvey(context.Context) error { *r.next = 0; return nil }

func (r replayed) Survey(_ context.Context, visit func(vserver.ServerKey, vserver.Digest)) (bool, error) {
	for range 100 {
		if *r.next == len(r.keys) {
			return true, nil
		}
		visit(r.keys[*r.next], r.shown[*r.next])
		*r.next++
	}
	return false, nil
}

// BenchmarkAudit is a whole round in which nothing is wrong. The survey costs nothing here, because
// reading the kernel's list is a benchmark of its own package. Exact reads of one server in
// sixteen, and the entries of sets, come from fakes.
func BenchmarkAudit(b *testing.B) {
	for _, services := range []int{1_000, 10_000} {
		b.Run(fmt.Sprintf("services=%d", services), func(b *testing.B) {
			k := newKernel()
			list := replayed{servers: servers{k}, next: new(int)}
			deps := k.deps()
			deps.Servers = &list
			m := ipvs.New(zap.NewNop(), config(), deps)
			for i := range services {
				m.Set(tenEndpoints(i, 0))
			}
			if err := m.Load(b.Context()); err != nil {
				b.Fatal(err)
			}
			apply(b, m)
			if err := k.servers.BeginSurvey(b.Context()); err != nil {
				b.Fatal(err)
			}
			for done := false; !done; {
				var err error
				if done, err = k.servers.Survey(b.Context(), func(k vserver.ServerKey, s vserver.Digest) {
					list.keys, list.shown = append(list.keys, k), append(list.shown, s)
				}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				for done := false; !done; {
					a, err := m.Audit(b.Context(), time.Hour)
					if err != nil || a.Drift.Total() != 0 {
						b.Fatal(a.Drift, err)
					}
					done = a.Done
				}
			}
		})
	}
}
