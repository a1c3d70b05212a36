package iptables_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/iptables"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules/rulestest"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// history is what a mode goes through in the tests of failures: Services that come,
// change and go.
func history(do func(plans ...model.ServicePlan)) {
	do(web, twin)
	do(service("web", "10.96.0.10", "10.244.1.1", "10.244.1.2"), service("new", "10.96.0.11", "10.244.0.5"))
	do(gone("twin"), service("web", "10.96.0.10"))
	do(service("web", "10.96.0.10", "10.244.1.7"))
}

// afterHistory are the Services that are left.
var afterHistory = []model.ServicePlan{service("new", "10.96.0.11", "10.244.0.5"), service("web", "10.96.0.10", "10.244.1.7")}

func TestEveryCallFailsOnce(t *testing.T) {
	for _, b := range kinds {
		t.Run(string(b), func(t *testing.T) { everyCallFailsOnce(t, b) })
	}
}

func everyCallFailsOnce(t *testing.T, b rules.Backend) {
	want := clean(t, config(), afterHistory...).canonical(t)
	for _, fault := range []struct {
		name string
		err  error
		late bool
	}{
		{"refused", errPlanned, false}, {"busy", rules.ErrBusy, false},
		{"carried out without an answer", context.DeadlineExceeded, true}, {"no answer", context.DeadlineExceeded, false},
	} {
		for n := 2; ; n++ { // the first is the first reading
			k := newKernelOf(b)
			k.failAt, k.with, k.late = n, fault.err, fault.late
			m := begin(t, k)
			history(func(plans ...model.ServicePlan) {
				for _, p := range plans {
					m.Set(p)
				}
				m.Apply(t.Context(), dataplane.ApplyOptions{Retry: len(plans) == 1})
			})
			if len(k.calls) < n {
				if n < 6 {
					t.Fatalf("only %d calls", len(k.calls))
				}
				break
			}
			m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
			apply(t, m)
			if diff := cmp.Diff(want, k.canonical(t)); diff != "" {
				t.Errorf("%s: call %d (%s), kernel (-want +got):\n%s", fault.name, n, k.calls[n-1], diff)
			}
			if drift := round(t, m); drift != 0 {
				t.Errorf("%s: call %d (%s), and in the end %d rows are not what is believed", fault.name, n, k.calls[n-1], drift)
			}
		}
	}
}

// A rule that may exist is not added again before the chain is read.
func TestUnknownOutcomeIsReadBeforeTheRetry(t *testing.T) {
	k := newKernel()
	m := begin(t, k, twin)
	apply(t, m)
	k.forget()
	k.failAt, k.with, k.late = 1, context.DeadlineExceeded, true
	m.Set(web)
	m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
	m.Set(gone("web"))
	m.Set(web)
	m.Apply(t.Context(), dataplane.ApplyOptions{})
	if n := strings.Count(k.String(), "web cluster IP\" -m tcp --dport 80 -j KUBE-SVC"); n != 1 {
		t.Errorf("the rule is there %d times", n)
	}
	k.forget()
	apply(t, m)
	if diff := cmp.Diff([]string{"list", "order flows"}, k.calls); diff != "" {
		t.Errorf("calls of the retry (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(clean(t, config(), web, twin).canonical(t), k.canonical(t)); diff != "" {
		t.Errorf("kernel (-want +got):\n%s", diff)
	}
}

func TestReadErrorChangesNothing(t *testing.T) {
	k := newKernel()
	apply(t, begin(t, k, web))
	text := k.String()
	m := begin(t, k, web)
	apply(t, m)
	for name, read := range map[string]func() error{
		"load":   func() error { return m.Load(t.Context()) },
		"reload": func() error { return m.ReloadRules(t.Context()) },
		"audit":  func() error { _, err := finish(t, m); return err },
	} {
		k.forget()
		k.failAt = 1
		if err := read(); !errors.Is(err, errPlanned) {
			t.Errorf("%s: error %v", name, err)
		}
		k.forget()
		if r := apply(t, m); len(r.Stages) != 0 || len(k.calls) != 0 {
			t.Errorf("%s failed, and that wrote %+v", name, r.Stages)
		}
		k.now = k.now.Add(time.Hour)
	}
	if diff := cmp.Diff(text, k.String()); diff != "" {
		t.Errorf("kernel (-before +after):\n%s", diff)
	}
}

// While what is in doubt cannot be read nothing is written again.
func TestRetryWaitsForTheReading(t *testing.T) {
	k := newKernel()
	m := begin(t, k, web)
	k.forget()
	k.failAt, k.with = 1, context.DeadlineExceeded
	m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
	k.Plan.FailAlways = map[rulestest.Call]error{rulestest.CallList: errPlanned}
	k.forget()
	r := m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
	if r.Pending == 0 || !errors.Is(r.Total().Err(), errPlanned) || !slices.Equal(k.calls, []string{"list"}) {
		t.Errorf("%d pending, error %v, calls %v", r.Pending, r.Total().Err(), k.calls)
	}
	k.Plan.FailAlways = nil
	apply(t, m)
}

// natKey names a chain of nat of IPv4.
func natKey(name string) rules.ChainKey {
	return rules.ChainKey{Family: rules.IPv4, Table: "nat", Name: name}
}

// A row that is always refused does not affect other rows, not even at the first start.
func TestRefusedChainFailsAlone(t *testing.T) {
	more := service("more", "10.96.0.11", "10.244.0.2")
	pool, endpoints := chainsOf(t, web)
	for _, broken := range append(endpoints, pool) {
		for i := range 4 {
			backend, late := kinds[i%2], i > 1
			t.Run(fmt.Sprintf("%s, %s, late %t", broken, backend, late), func(t *testing.T) {
				k := newKernelOf(backend)
				if late {
					apply(t, begin(t, k))
				}
				k.Plan.FailChains = map[rules.ChainKey]error{natKey(strings.Fields(broken)[2]): rules.ErrUnsupported}
				m := begin(t, k, web, more, twin)
				r := m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
				if r.Total().Failed == 0 || r.Pending == 0 {
					t.Errorf("nothing failed: %+v", r)
				}
				served := func(when string) {
					t.Helper()
					if !slices.Equal(k.reaches(t, rules.IPv4, "10.96.0.11"), []string{"10.244.0.2:8080"}) || len(k.reaches(t, rules.IPv6, "fd00:96::10")) != 1 {
						t.Errorf("%s: the others are not served:\n%s", when, k)
					}
				}
				served("at first")
				k.forget()
				if r := m.Apply(t.Context(), dataplane.ApplyOptions{}); r.Total().Failed != 0 || len(k.calls) != 0 {
					t.Errorf("a pass that does not retry wrote %v", k.calls)
				}
				m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
				served("after a retry")
				m.Set(service("more", "10.96.0.11", "10.244.0.9"))
				m.Apply(t.Context(), dataplane.ApplyOptions{})
				if !slices.Equal(k.reaches(t, rules.IPv4, "10.96.0.11"), []string{"10.244.0.9:8080"}) {
					t.Error("a change of another Service did not come through")
				}
				k.Plan.FailChains = nil
				apply(t, m)
				if diff := cmp.Diff(clean(t, config(), web, service("more", "10.96.0.11", "10.244.0.9"), twin).canonical(t), k.canonical(t)); diff != "" {
					t.Errorf("when all is well (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// A Service that is served goes on as it was while its change is refused.
func TestRefusedChangeOfAServiceThatIsServed(t *testing.T) {
	k := newKernel()
	m := begin(t, k, web)
	apply(t, m)
	pool, _ := chainsOf(t, web)
	k.Plan.FailChains = map[rules.ChainKey]error{natKey(strings.Fields(pool)[2]): rules.ErrUnsupported}
	m.Set(service("web", "10.96.0.10", "10.244.5.5"))
	for range 3 {
		m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
		if got := k.reaches(t, rules.IPv4, "10.96.0.10"); !slices.Equal(got, []string{"10.244.0.1:8080", "10.244.1.1:8080"}) {
			t.Fatalf("leads to %v", got)
		}
		// The dispatch chain is lost and written whole.
		k.put(t, rules.IPv4, "nat", "KUBE-SERVICES", nil)
		if err := m.ReloadRules(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRefusedRuleFailsAlone(t *testing.T) {
	k := newKernel()
	m := begin(t, k)
	apply(t, m)
	rule := clean(t, config(), web).chain(t, rules.IPv4, "nat", "KUBE-SERVICES")[0]
	k.Plan.FailRules = map[rulestest.RuleKey]error{{Chain: natKey("KUBE-SERVICES"), Rule: rule}: rules.ErrUnsupported}
	m.Set(web)
	m.Set(service("more", "10.96.0.11", "10.244.0.2"))
	r := m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
	if r.Total().Failed != 1 || r.Pending != 1 || len(k.reaches(t, rules.IPv4, "10.96.0.11")) != 1 {
		t.Errorf("%d rows failed: %v", r.Total().Failed, r.Total().Err())
	}
	k.forget()
	m.Apply(t.Context(), dataplane.ApplyOptions{})
	if len(k.calls) != 0 {
		t.Errorf("the row does not rest: %v", k.calls)
	}
	// Written whole, the chain has all its rules, and none is added after.
	for i := range 70 {
		m.Set(service(fmt.Sprint("s", i), fmt.Sprintf("10.98.0.%d", i), "10.244.0.1"))
	}
	m.Apply(t.Context(), dataplane.ApplyOptions{})
	k.Plan.FailRules = nil
	apply(t, m)
	if n := len(k.chain(t, rules.IPv4, "nat", "KUBE-SERVICES")); n != 73 {
		t.Errorf("%d rules, want those of 72 Services and the last", n)
	}
}

func TestOneFamilyDoesNotStopTheOther(t *testing.T) {
	k := newKernel()
	k.Plan.FailChains = map[rules.ChainKey]error{{Family: rules.IPv6, Table: "nat", Name: "KUBE-MARK-MASQ"}: rules.ErrUnsupported}
	m := begin(t, k, web, twin)
	m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
	if len(k.reaches(t, rules.IPv4, "10.96.0.10")) != 2 {
		t.Errorf("IPv4 is not served:\n%s", k)
	}
}

// A jump waits for its chain, and no chain goes before the jump to it.
func TestJumpsComeLastAndGoFirst(t *testing.T) {
	k := newKernel()
	k.Plan.FailChains = map[rules.ChainKey]error{natKey("KUBE-POSTROUTING"): rules.ErrUnsupported}
	m := begin(t, k)
	m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
	if text := k.Save(rules.IPv4); strings.Contains(text, "-A POSTROUTING") || !strings.Contains(text, "-A PREROUTING") {
		t.Errorf("rules\n%s", text)
	}
	k.Plan.FailChains = nil
	apply(t, m)
	k.forget()
	m.Clear()
	apply(t, m)
	if diff := cmp.Diff([]string{"write jumps", "write"}, k.calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// finish audits until a round is complete, and counts what drifted.
func finish(t *testing.T, m *iptables.Mode) (int, error) {
	t.Helper()
	total := 0
	for {
		a, err := m.Audit(t.Context(), time.Second)
		total += a.Drift.Total()
		if a.Done {
			return total, err
		}
	}
}

func round(t *testing.T, m *iptables.Mode) int {
	t.Helper()
	n, err := finish(t, m)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// drifts are what others may do to the rules.
var drifts = map[string]func(t *testing.T, k *kernel){
	"a chain lost": func(t *testing.T, k *kernel) {
		pool, _ := chainsOf(t, web)
		k.Delete(natKey(strings.Fields(pool)[2]))
	},
	"a chain emptied":   func(t *testing.T, k *kernel) { k.put(t, rules.IPv4, "nat", "KUBE-MARK-MASQ", nil) },
	"a dispatch chain":  func(_ *testing.T, k *kernel) { k.Delete(natKey("KUBE-SERVICES")) },
	"an entry lost":     func(t *testing.T, k *kernel) { k.edit(t, func(l []string) []string { return l[1:] }) },
	"a foreign entry":   func(t *testing.T, k *kernel) { k.edit(t, disorders["a foreign rule among ours"]) },
	"an entry twice":    func(t *testing.T, k *kernel) { k.edit(t, disorders["a rule twice"]) },
	"the order changed": func(t *testing.T, k *kernel) { k.edit(t, disorders["the last is not last"]) },
	"a jump lost": func(t *testing.T, k *kernel) {
		key := rules.JumpKey{Family: rules.IPv4, Table: "nat", Hook: "POSTROUTING", Target: "KUBE-POSTROUTING"}
		if errs := k.Fake.WriteJumps(t.Context(), []rules.JumpChange{{Op: rules.Delete, Key: key}}); errs != nil {
			t.Fatal(errs)
		}
	},
	"a canary": func(_ *testing.T, k *kernel) {
		k.Delete(rules.ChainKey{Family: rules.IPv4, Table: "mangle", Name: "KUBE-PROXY-CANARY"})
	},
}

// edit changes nat KUBE-SERVICES behind the mode's back.
func (k *kernel) edit(t *testing.T, how func([]string) []string) {
	t.Helper()
	k.put(t, rules.IPv4, "nat", "KUBE-SERVICES", how(k.chain(t, rules.IPv4, "nat", "KUBE-SERVICES")))
	k.Delete(natKey("KUBE-NODE-PORT"))
}

func TestAuditFindsAndMendsDrift(t *testing.T) {
	for name, damage := range drifts {
		t.Run(name, func(t *testing.T) {
			k := newKernel()
			m := begin(t, k, web, twin)
			apply(t, m)
			if n := round(t, m); n != 0 {
				t.Fatalf("%d rows drifted without a reason", n)
			}
			want := k.canonical(t)
			damage(t, k)
			if round(t, m) == 0 {
				t.Error("the audit saw nothing")
			}
			apply(t, m)
			if diff := cmp.Diff(want, k.canonical(t), ignoring("KUBE-NODE-PORT")); diff != "" {
				t.Errorf("kernel (-before +after):\n%s", diff)
			}
		})
	}
}

// blocked has readings stop, after they have read, until they are let go.
func (k *kernel) blocked() (begun chan struct{}, letGo func()) {
	begun, gate := make(chan struct{}, 8), make(chan struct{})
	k.reading = func() { begun <- struct{}{}; <-gate }
	return begun, func() { k.reading = nil; close(gate) }
}

// during audits: changes while the reading is under way are judged by the audit.
func during(t *testing.T, k *kernel, m *iptables.Mode, happens func()) int {
	t.Helper()
	begun, letGo := k.blocked()
	if a, err := m.Audit(t.Context(), 0); a.Done || err != nil {
		t.Fatalf("a reading that is under way is done (%v)", err)
	}
	<-begun
	happens()
	letGo()
	return round(t, m)
}

func TestWhatIsWrittenDuringAnAuditIsNoDrift(t *testing.T) {
	c := config()
	c.Everywhere = nil
	h := host()
	h.NodePorts = h.NodePorts[:1]
	lost := rules.JumpKey{Family: rules.IPv4, Table: "nat", Hook: "POSTROUTING", Target: "KUBE-POSTROUTING"}
	for name, happens := range map[string]func(t *testing.T, k *kernel, m *iptables.Mode){
		"a new Service":      func(_ *testing.T, _ *kernel, m *iptables.Mode) { m.Set(service("new", "10.96.0.12", "10.244.0.7")) },
		"a deleted Service":  func(_ *testing.T, _ *kernel, m *iptables.Mode) { m.Set(gone("web")) },
		"another endpoint":   func(_ *testing.T, _ *kernel, m *iptables.Mode) { m.Set(service("web", "10.96.0.10", "10.244.0.7")) },
		"a chain as a whole": func(_ *testing.T, _ *kernel, m *iptables.Mode) { m.SetHost(h) },
		"both": func(_ *testing.T, _ *kernel, m *iptables.Mode) {
			m.SetHost(h)
			m.Set(service("new", "10.96.0.12", "10.244.0.7"))
		},
		"a jump": func(_ *testing.T, k *kernel, _ *iptables.Mode) { k.Plan.FailJumps = nil },
	} {
		t.Run(name, func(t *testing.T) {
			k := newKernel()
			k.Plan.FailJumps = map[rules.JumpKey]error{lost: rules.ErrUnsupported}
			if name != "a jump" {
				k.Plan.FailJumps = nil
			}
			m := start(t, k, c, web, twin)
			m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
			if n := during(t, k, m, func() { happens(t, k, m); apply(t, m) }); n != 0 {
				t.Errorf("%d rows were taken for drift", n)
			}
			before := k.String()
			if r := apply(t, m); len(r.Stages) != 0 {
				t.Errorf("the audit had %+v written", r.Stages)
			}
			if n := round(t, m); n != 0 || k.String() != before {
				t.Errorf("the next round found %d rows", n)
			}
		})
	}
}

// Changes by other programs during that time are found, at the latest one audit later.
func TestDriftDuringAnAudit(t *testing.T) {
	k := newKernel()
	m := begin(t, k, web, twin)
	apply(t, m)
	want := clean(t, config(), service("web", "10.96.0.10", "10.244.0.7"), twin).canonical(t)
	during(t, k, m, func() {
		m.Set(service("web", "10.96.0.10", "10.244.0.7"))
		apply(t, m)
		k.edit(t, func(l []string) []string { return l[1:] })
	})
	if round(t, m) == 0 {
		t.Error("the next round saw nothing")
	}
	apply(t, m)
	if diff := cmp.Diff(want, k.canonical(t), ignoring("KUBE-NODE-PORT")); diff != "" {
		t.Errorf("kernel (-want +got):\n%s", diff)
	}
}

// A reading passes over the rows that are written meanwhile, so it proves nothing about those:
// they are read again, though the generation that it began with has them already.
func TestRowsWrittenDuringAReadingAreReadAgain(t *testing.T) {
	k := newKernel()
	m := begin(t, k, web)
	apply(t, m)
	more := service("new", "10.96.0.12", "10.244.0.7")
	want := clean(t, config(), web, more).canonical(t)
	k.edit(t, func(l []string) []string { return append(l, "-d 203.0.113.9/32 -j KUBE-MARK-MASQ") })
	k.generation = 7 // asked for when all below was written
	during(t, k, m, func() {
		m.Set(more)
		apply(t, m)
	})
	if round(t, m) == 0 {
		t.Error("the next round saw nothing")
	}
	apply(t, m)
	if diff := cmp.Diff(want, k.canonical(t), ignoring("KUBE-NODE-PORT")); diff != "" {
		t.Errorf("kernel (-want +got):\n%s", diff)
	}
}

// Rules that were not written since the last read are not read again, if the kernel reports that.
func TestUnchangedRulesAreNotRead(t *testing.T) {
	k := newKernel()
	m := begin(t, k, web, twin)
	apply(t, m)
	for _, tt := range []struct {
		name    string
		happens func()
		reads   bool
	}{
		{"after our own writes", func() {}, true},
		{"nothing", func() {}, false},
		{"a rule of a stranger", func() { k.put(t, rules.IPv4, "nat", "PREROUTING", []string{"-j ACCEPT"}) }, true},
		{"nothing more", func() {}, false},
		{"a rule of ours is lost", func() { k.edit(t, func(l []string) []string { return l[1:] }) }, true},
		{"what was written for it", func() { apply(t, m) }, true},
		{"nothing is left", func() {}, false},
	} {
		tt.happens()
		k.forget()
		round(t, m)
		if read := slices.Contains(k.calls, "list"); read != tt.reads {
			t.Errorf("%s: read %t, want %t", tt.name, read, tt.reads)
		}
	}
}

// A Load ends a concurrent read, and its newer result is used.
func TestLoadDuringAReading(t *testing.T) {
	for name, load := range map[string]func(*iptables.Mode, context.Context) error{"load": (*iptables.Mode).Load, "reload": (*iptables.Mode).ReloadRules} {
		t.Run(name, func(t *testing.T) {
			k := newKernel()
			m := begin(t, k, web)
			apply(t, m)
			whole := k.chain(t, rules.IPv4, "nat", "KUBE-SERVICES")
			k.edit(t, func(l []string) []string { return l[1:] })
			begun, letGo := k.blocked()
			if a, err := m.Audit(t.Context(), 0); a.Done || err != nil {
				t.Fatalf("done %t, %v", a.Done, err)
			}
			<-begun
			k.edit(t, func([]string) []string { return whole })
			letGo()
			if err := load(m, t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := round(t, m); n != 0 {
				t.Errorf("%d rows drifted, as the older reading had them", n)
			}
			if r := apply(t, m); len(r.Stages) != 0 {
				t.Errorf("wrote %+v", r.Stages)
			}
		})
	}
}

func TestAuditStopsWithItsContext(t *testing.T) {
	k := newKernel()
	m := begin(t, k, web)
	apply(t, m)
	begun, letGo := k.blocked()
	ctx, stop := context.WithCancel(t.Context())
	if a, _ := m.Audit(ctx, 0); a.Done {
		t.Fatal("done")
	}
	<-begun
	stop()
	if a, err := m.Audit(ctx, time.Minute); !a.Done || !errors.Is(err, context.Canceled) {
		t.Errorf("done %t, %v", a.Done, err)
	}
	letGo()
}

// Something removed every rule on the node.
func TestFlush(t *testing.T) {
	k := newKernel()
	m := begin(t, k, everyKind()...)
	apply(t, m)
	want := k.String()
	k.Fake = newKernel().Fake
	if err := m.ReloadRules(t.Context()); err != nil {
		t.Fatal(err)
	}
	clear(k.orders)
	apply(t, m)
	if diff := cmp.Diff(want, k.String()); diff != "" {
		t.Errorf("kernel (-before +after):\n%s", diff)
	}
	for key, order := range k.orders { // connections that began meanwhile would stay as they are
		if tcp := strings.HasSuffix(key, "/tcp"); tcp != strings.HasPrefix(order, "spare connections, keep") {
			t.Errorf("%s: ordered %q", key, order)
		}
	}
	if len(k.orders) == 0 {
		t.Error("no flows were ordered to be looked at")
	}
}

// No notification of the flush came: the next change fails because of it, and the retry repairs
// all.
func TestFlushThatNobodySaw(t *testing.T) {
	k := newKernel()
	m := begin(t, k, web)
	apply(t, m)
	k.Fake = newKernel().Fake
	more := service("more", "10.96.0.11", "10.244.0.2")
	m.Set(more)
	m.Apply(t.Context(), dataplane.ApplyOptions{})
	clear(k.orders)
	apply(t, m)
	if diff := cmp.Diff(clean(t, config(), web, more).canonical(t), k.canonical(t)); diff != "" {
		t.Errorf("kernel (-want +got):\n%s", diff)
	}
	if got := k.orders["10.96.0.10:80/tcp"]; !strings.HasPrefix(got, "spare connections, keep 10") { // those that began meanwhile would stay as they are
		t.Errorf("connections of the Service that was flushed: ordered %q", got)
	}
}

// iptables-legacy-restore reads and writes the whole table however little it is told, so
// what is two writes by nft is one: what the entries lead to comes with them.
func TestFirstLoadOfLegacyIsOneWrite(t *testing.T) {
	writes := map[rules.Backend]int{}
	for _, b := range kinds {
		k := newKernelOf(b)
		apply(t, begin(t, k, afterHistory...))
		for _, call := range k.calls {
			if call == "write" {
				writes[b]++
			}
		}
		if diff := cmp.Diff(clean(t, config(), afterHistory...).canonical(t), k.canonical(t)); diff != "" {
			t.Errorf("%s: kernel (-want +got):\n%s", b, diff)
		}
	}
	if writes[rules.NFT] != 2 || writes[rules.Legacy] != 1 {
		t.Errorf("%v writes, want 2 by nft and 1 by legacy", writes)
	}
}
