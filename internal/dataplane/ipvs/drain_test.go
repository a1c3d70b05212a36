package ipvs_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

const (
	first, second, third = "10.244.0.1:8080", "10.244.1.1:8080", "10.244.2.1:8080"
	vip                  = "10.96.0.10"
)

// draining is a Service whose connections go on for half a minute.
func draining(backends ...string) model.ServicePlan {
	p := service("web", vip, backends...)
	p.Frontends[0].Drain = 30 * time.Second
	return p
}

// with changes the frontend of a plan.
func with(p model.ServicePlan, change func(*model.Frontend)) model.ServicePlan {
	change(&p.Frontends[0])
	return p
}

// keeping keeps connections of endpoints that are no backends.
func keeping(p model.ServicePlan, kept ...string) model.ServicePlan {
	return with(p, func(f *model.Frontend) {
		for _, k := range kept {
			f.Kept = append(f.Kept, netip.MustParseAddrPort(k))
		}
	})
}

func destination(to string) vserver.DestinationKey {
	a := netip.MustParseAddrPort(to)
	server := vserver.ServerKey{Addr: netip.MustParseAddr(vip), Port: 80, Protocol: vserver.ProtocolTCP}
	return vserver.DestinationKey{Server: server, Addr: a.Addr(), Port: a.Port()}
}

// busy gives destinations a connection that stays open.
func (k *kernel) busy(to ...string) {
	for _, d := range to {
		k.servers.SetConnections(destination(d), vserver.Connections{Active: 1})
	}
}

// weights are those of the destinations in the kernel.
func (k *kernel) weights(t *testing.T) map[string]uint16 {
	t.Helper()
	out := map[string]uint16{}
	found, err := k.servers.ListDestinations(t.Context(), destination(first).Server)
	if err != nil {
		t.Fatal(err)
	}
	for key, d := range found {
		out[netip.AddrPortFrom(key.Addr, key.Port).String()] = d.Weight
	}
	return out
}

// wait lets time pass as the loop does: it applies whenever the mode is due.
func wait(t *testing.T, m *ipvs.Mode, d time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); ; {
		due := m.Due()
		if due.IsZero() || due.After(end) {
			time.Sleep(time.Until(end))
			return
		}
		time.Sleep(time.Until(due))
		apply(t, m)
	}
}

func wantWeights(t *testing.T, k *kernel, when string, want map[string]uint16) {
	t.Helper()
	if diff := cmp.Diff(want, k.weights(t)); diff != "" {
		t.Errorf("%s, destinations (-want +got):\n%s", when, diff)
	}
}

func wantEnds(t *testing.T, m *ipvs.Mode, want map[dataplane.DrainEnd]uint64) {
	t.Helper()
	got := m.Drains()
	got.Trash = nil
	if diff := cmp.Diff(dataplane.Drains{Ended: want}, got); diff != "" {
		t.Errorf("drains (-want +got):\n%s", diff)
	}
}

func TestDrainToTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKernel()
		m := begin(t, k, draining(first, second))
		apply(t, m)
		k.busy(second)
		m.Set(draining(first))
		apply(t, m)
		wantWeights(t, k, "at once", map[string]uint16{first: 1, second: 0})
		wait(t, m, 29*time.Second)
		wantWeights(t, k, "before the deadline", map[string]uint16{first: 1, second: 0})
		wait(t, m, 2*time.Second)
		wantWeights(t, k, "after the deadline", map[string]uint16{first: 1})
		wantEnds(t, m, map[dataplane.DrainEnd]uint64{dataplane.DrainDeadline: 1})
		if due := m.Due(); !due.IsZero() {
			t.Errorf("still due, in %s", time.Until(due))
		}
	})
}

// Drains that end together are deleted in parts, so that a change meanwhile waits only for one
// part.
func TestDrainsEndInParts(t *testing.T) {
	const backends, part = 500, 32
	for _, tt := range []struct {
		name string
		busy bool
		how  dataplane.DrainEnd
	}{{"idle", false, dataplane.DrainEmpty}, {"over", true, dataplane.DrainDeadline}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKernel()
				m := begin(t, k, rolled(backends))
				apply(t, m)
				for b := range k.weights(t) {
					if tt.busy {
						k.busy(b)
					}
				}
				m.Set(rolled(1))
				apply(t, m)
				deleted := 0
				for end := time.Now().Add(time.Minute); time.Now().Before(end) && deleted < backends-1; {
					time.Sleep(time.Until(m.Due()))
					n := apply(t, m).Total().Deletes
					if n > part {
						t.Errorf("%d deleted in one pass", n)
					}
					deleted += n
				}
				wantWeights(t, k, "in the end", map[string]uint16{"10.244.1.1:8080": 1})
				wantEnds(t, m, map[dataplane.DrainEnd]uint64{tt.how: backends - 1})
				if due := m.Due(); !due.IsZero() {
					t.Errorf("still due, in %s", time.Until(due))
				}
			})
		})
	}
}

// An endpoint that returns before its part is deleted stays.
func TestBackBeforeItsPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKernel()
		m := begin(t, k, rolled(500))
		apply(t, m)
		m.Set(rolled(1))
		apply(t, m)
		for len(k.weights(t)) == 500 {
			time.Sleep(time.Until(m.Due()))
			apply(t, m)
		}
		m.Set(rolled(500))
		wait(t, m, time.Minute)
		apply(t, m)
		if n := len(k.weights(t)); n != 500 {
			t.Errorf("%d destinations, want 500", n)
		}
		for b, w := range k.weights(t) {
			if w != 1 {
				t.Errorf("%s has weight %d", b, w)
			}
		}
	})
}

// An idle destination is deleted soon. One read of the kernel judges all drains, and a destination
// that keeps connections is polled less often.
func TestDrainUntilIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKernel()
		m := begin(t, k, draining(first, second, third))
		apply(t, m)
		k.busy(second, third)
		m.Set(draining(first))
		apply(t, m)
		wait(t, m, 5*time.Second)
		wantWeights(t, k, "with connections", map[string]uint16{first: 1, second: 0, third: 0})
		k.servers.SetConnections(destination(second), vserver.Connections{})
		k.servers.SetConnections(destination(third), vserver.Connections{Inactive: 1})
		wait(t, m, 6*time.Second)
		wantWeights(t, k, "without", map[string]uint16{first: 1, third: 0})
		k.calls = nil
		wait(t, m, 10*time.Second)
		if n := strings.Count(strings.Join(k.calls, "\n"), "count connections"); n != 1 {
			t.Errorf("connections were counted %d times in 10 s", n)
		}
		k.servers.SetConnections(destination(third), vserver.Connections{})
		wait(t, m, 10*time.Second)
		wantEnds(t, m, map[dataplane.DrainEnd]uint64{dataplane.DrainEmpty: 2})
	})
}

// Drains that begin within one interval are counted at its end, all in one read; a drain that ends
// sooner is counted in time for its end.
func TestDrainsAreFirstCountedTogether(t *testing.T) {
	const turn = 5 * time.Second
	for _, tt := range []struct {
		name    string
		limit   time.Duration
		counted int
	}{
		{"within a turn", time.Minute, 1},
		{"with an end before it", 2 * time.Second, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKernel()
				limited := func(backends ...string) model.ServicePlan {
					return with(draining(backends...), func(f *model.Frontend) { f.Drain = tt.limit })
				}
				fourth := "10.244.3.1:8080"
				all := []string{first, second, third, fourth}
				m := begin(t, k, limited(all...)) // which is when turns begin
				apply(t, m)
				k.calls = nil
				for n := len(all) - 1; n > 0; n-- {
					m.Set(limited(all[:n]...))
					apply(t, m)
					wait(t, m, 1300*time.Millisecond)
				}
				wait(t, m, turn)
				wantWeights(t, k, "after the turn", map[string]uint16{first: 1})
				wantEnds(t, m, map[dataplane.DrainEnd]uint64{dataplane.DrainEmpty: 3})
				if n := strings.Count(strings.Join(k.calls, "\n"), "count connections"); n != tt.counted {
					t.Errorf("connections were counted %d times, want %d", n, tt.counted)
				}
			})
		})
	}
}

// Connections are counted in pieces, between which things change: a destination that took
// connections again after it was counted is not judged by what it had before.
func TestDrainIsCountedInPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKernel()
		var old []string
		for i := range 20 {
			old = append(old, fmt.Sprintf("10.244.0.%d:8080", i+1))
		}
		m := begin(t, k, draining(append(old, third)...))
		apply(t, m)
		m.Set(draining(third))
		apply(t, m)
		time.Sleep(time.Until(m.Due()))
		apply(t, m) // the first piece, with the first destination in it
		if len(k.weights(t)) != 21 || m.Due().After(time.Now()) {
			t.Fatalf("%d destinations are left, due in %s: nothing was read in pieces", len(k.weights(t)), time.Until(m.Due()))
		}
		m.Set(draining(first, third))
		apply(t, m)
		k.busy(first)
		m.Set(draining(third))
		apply(t, m)
		wait(t, m, 5*time.Second)
		wantWeights(t, k, "when all was read", map[string]uint16{first: 0, third: 1})
		if d := m.Drains(); d.Now != 1 || d.Ended[dataplane.DrainEmpty] != 19 || d.Ended[dataplane.DrainBack] != 1 {
			t.Errorf("drains %+v", d)
		}
	})
}

// In a large cluster some endpoint leaves all the time: idle ones are deleted all the same.
func TestDrainUntilIdleWhileOthersLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKernel()
		var all []string
		for n := range 40 {
			all = append(all, fmt.Sprintf("10.244.3.%d:8080", n+1))
		}
		m := begin(t, k, draining(all...))
		apply(t, m)
		for len(all) > 1 {
			all = all[1:]
			m.Set(draining(all...))
			apply(t, m)
			wait(t, m, 900*time.Millisecond)
			if d := m.Drains(); d.Now > 7 { // of six seconds
				t.Fatalf("%d drain, and none has a connection", d.Now)
			}
		}
		wait(t, m, 6*time.Second)
		wantEnds(t, m, map[dataplane.DrainEnd]uint64{dataplane.DrainEmpty: 39})
	})
}

// Under constant changes and long passes, drains end as fast as they begin. The number of draining
// destinations is that of one drain time, and does not grow with the changes.
func TestEndsKeepUpWithWhatBegins(t *testing.T) {
	const leaving, pass = 100, 2 * time.Second // in each pass, which takes so long
	for _, tt := range []struct {
		name   string
		busy   bool
		how    dataplane.DrainEnd
		passes int
		most   int // of passes, whose drains go on at once
	}{
		{"over", true, dataplane.DrainDeadline, 60, 22}, // a limit of 15 passes
		{"idle", false, dataplane.DrainEmpty, 20, 10},   // as many as fit into the trash
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKernel()
				backends := func(n int) (out []string) {
					for i := n * leaving; i < (n+2)*leaving; i++ {
						out = append(out, fmt.Sprintf("10.%d.%d.1:8080", 100+i/250, i%250+1))
					}
					return out
				}
				m := begin(t, k, draining(backends(0)...))
				apply(t, m)
				for n := range tt.passes {
					if old := backends(n); tt.busy {
						k.busy(old[:leaving]...)
					}
					m.Set(draining(backends(n + 1)...))
					time.Sleep(pass)
					apply(t, m)
				}
				d := m.Drains()
				if d.Now > tt.most*leaving {
					t.Errorf("%d drain after %d passes, want those of %d at most", d.Now, tt.passes, tt.most)
				}
				if n := d.Ended[tt.how]; n < uint64((tt.passes-tt.most)*leaving) || len(d.Ended) != 1 {
					t.Errorf("ended %v", d.Ended)
				}
			})
		})
	}
}

// A write that failed proves nothing about the connections.
func TestDrainOfARowOfUnknownState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKernel()
		m := begin(t, k, draining(first, second, third))
		apply(t, m)
		k.busy(second, third)
		m.Set(draining(first, third))
		k.refuse = "write destinations"
		m.Apply(t.Context(), dataplane.ApplyOptions{})
		k.refuse = ""
		m.Set(draining(first))
		apply(t, m)
		wantWeights(t, k, "after the retry", map[string]uint16{first: 1, second: 0, third: 0})
	})
}

// While a weight of 0 is not in the kernel yet, connections arrive that no count has seen.
func TestDrainIsNotJudgedBeforeItHasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKernel()
		m := begin(t, k, draining(first, second))
		apply(t, m)
		m.Set(draining(first))
		k.servers.FailRow(destination(second), vserver.ErrBusy)
		for range 5 {
			time.Sleep(2 * time.Second)
			m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
		}
		wantWeights(t, k, "while the weight cannot be written", map[string]uint16{first: 1, second: 1})
		if d := m.Drains(); d.Now != 1 {
			t.Errorf("drains %+v", d)
		}
	})
}

// TestDrainIsNotJudgedWhileItsWeightIsNotZero checks that a drain does not end by a count of connections from a moment in
// which another program had given its destination a weight.
func TestDrainIsNotJudgedWhileItsWeightIsNotZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKernel()
		m := begin(t, k, draining(first, second))
		apply(t, m)
		m.Set(draining(first))
		apply(t, m)
		weight := vserver.DestinationChange{Op: vserver.Update, Key: destination(second), Destination: vserver.Destination{Weight: 1}}
		if errs := k.servers.WriteDestinations(t.Context(), []vserver.DestinationChange{weight}); errs != nil {
			t.Fatal(errs)
		}
		if drift := round(t, m); drift != 1 {
			t.Fatalf("the audit found %d rows, want the one with a weight", drift)
		}
		time.Sleep(6 * time.Second) // connections are due to be counted
		apply(t, m)
		wantWeights(t, k, "after the repair", map[string]uint16{first: 1, second: 0})
		if d := m.Drains(); d.Now != 1 {
			t.Errorf("drains %+v", d)
		}
	})
}

func TestBackBeforeTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKernel()
		m := begin(t, k, draining(first, second))
		apply(t, m)
		k.busy(second)
		m.Set(keeping(draining(first), second)) // not ready for a minute
		apply(t, m)
		wait(t, m, time.Minute)
		wantWeights(t, k, "after a minute", map[string]uint16{first: 1, second: 0})
		m.Set(draining(first, second))
		apply(t, m)
		wantWeights(t, k, "back", map[string]uint16{first: 1, second: 1})
		wantEnds(t, m, map[dataplane.DrainEnd]uint64{dataplane.DrainBack: 1})
	})
}

// The time begins when the endpoint stops serving, not when it takes nothing new.
func TestKeptThenGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKernel()
		m := begin(t, k, draining(first, second))
		apply(t, m)
		k.busy(second)
		m.Set(keeping(draining(first), second))
		apply(t, m)
		wait(t, m, time.Hour)
		m.Set(draining(first))
		apply(t, m)
		wait(t, m, 29*time.Second)
		wantWeights(t, k, "before the deadline", map[string]uint16{first: 1, second: 0})
		m.Set(with(draining(first), func(f *model.Frontend) { f.Drain = time.Minute })) // a new setting counts from the same moment
		apply(t, m)
		wait(t, m, 30*time.Second)
		wantWeights(t, k, "before the new deadline", map[string]uint16{first: 1, second: 0})
		wait(t, m, 2*time.Second)
		wantWeights(t, k, "after it", map[string]uint16{first: 1})
	})
}

func TestWhatIsCutAtOnce(t *testing.T) {
	udp := func(p model.ServicePlan) model.ServicePlan {
		return with(p, func(f *model.Frontend) { f.Key.Protocol = model.UDP })
	}
	scheduled := func(name, flags string) func(model.ServicePlan) model.ServicePlan {
		return func(p model.ServicePlan) model.ServicePlan {
			spec, err := scheduler.Parse(name, flags)
			if err != nil {
				t.Fatal(err)
			}
			return with(p, func(f *model.Frontend) { f.Scheduler = spec })
		}
	}
	for name, shape := range map[string]func(model.ServicePlan) model.ServicePlan{
		"no time":             func(p model.ServicePlan) model.ServicePlan { return with(p, func(f *model.Frontend) { f.Drain = 0 }) },
		"UDP":                 udp,
		"dh":                  scheduled("dh", ""),
		"sh without fallback": scheduled("sh", "sh-port"),
	} {
		t.Run(name, func(t *testing.T) {
			k := newKernel()
			m := begin(t, k, shape(draining(first, second)))
			apply(t, m)
			m.Set(shape(draining(first)))
			apply(t, m)
			if d := m.Drains(); d.Now != 0 {
				t.Errorf("drains %+v", d)
			}
			if text := k.servers.String(); strings.Contains(text, second) || !strings.Contains(text, first) {
				t.Errorf("in the kernel:\n%s", text)
			}
		})
	}
}

// sh sends a client elsewhere while its destination drains, if it may.
func TestShFallsBack(t *testing.T) {
	k := newKernel()
	sh := func(f *model.Frontend) { f.Scheduler = scheduler.MustParse("sh") }
	m := begin(t, k, with(draining(first, second), sh))
	apply(t, m)
	k.busy(second)
	m.Set(with(draining(first), sh))
	apply(t, m)
	wantWeights(t, k, "under sh", map[string]uint16{first: 1, second: 0})
}

func TestServiceDeletionCuts(t *testing.T) {
	k := newKernel()
	m := begin(t, k, draining(first, second))
	apply(t, m)
	k.busy(second)
	m.Set(draining(first))
	apply(t, m)
	m.Set(gone("web"))
	apply(t, m)
	if text := k.servers.String(); text != "" {
		t.Errorf("in the kernel:\n%s", text)
	}
	wantEnds(t, m, map[dataplane.DrainEnd]uint64{dataplane.DrainServiceDeleted: 1})
}

// Another Service on the same address has other backends.
func TestAnotherServiceCuts(t *testing.T) {
	k := newKernel()
	m := begin(t, k, draining(first, second))
	apply(t, m)
	k.busy(first, second)
	m.Set(draining(first)) // second drains
	other := service("api", vip, third)
	other.Frontends[0].Drain = time.Minute
	m.Set(other)
	m.Set(gone("web"))
	apply(t, m)
	wantWeights(t, k, "after the change of hands", map[string]uint16{third: 1})
}

// A process that dies leaves destinations with weight 0, and others whose endpoint left while no
// agent ran. The next process drains all of them from its start on.
func TestDrainSurvivesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKernel()
		m := begin(t, k, draining(first, second, third))
		apply(t, m)
		k.busy(second, third)
		m.Set(draining(first, third))
		apply(t, m)
		wait(t, m, 20*time.Second)

		m = begin(t, k, draining(first))
		m.Apply(t.Context(), dataplane.ApplyOptions{KeepOrphans: true, Retry: true})
		wantWeights(t, k, "while some input cannot be read", map[string]uint16{first: 1, second: 0, third: 1})
		apply(t, m)
		wantWeights(t, k, "after the restart", map[string]uint16{first: 1, second: 0, third: 0})
		wait(t, m, 29*time.Second)
		wantWeights(t, k, "before the deadline", map[string]uint16{first: 1, second: 0, third: 0})
		wait(t, m, 2*time.Second)
		wantWeights(t, k, "after it", map[string]uint16{first: 1})
	})
}

// A weight that another program set to 0 is repaired.
func TestAWeightOfZeroOfABackendIsMended(t *testing.T) {
	k := newKernel()
	apply(t, begin(t, k, draining(first, second)))
	k.servers.WriteDestinations(t.Context(), []vserver.DestinationChange{{Op: vserver.Update, Key: destination(second)}})
	apply(t, begin(t, k, draining(first, second)))
	wantWeights(t, k, "after a restart", map[string]uint16{first: 1, second: 1})
}

// A server that another program deletes is created again with its draining destinations: the kernel
// keeps the connections of a destination in its trash.
func TestALostServerComesBackWithWhatDrains(t *testing.T) {
	k := newKernel()
	m := begin(t, k, draining(first, second))
	apply(t, m)
	k.busy(second)
	m.Set(draining(first))
	apply(t, m)
	k.servers.WriteServers(t.Context(), []vserver.ServerChange{{Op: vserver.Delete, Key: destination(first).Server}})
	round(t, m)
	apply(t, m)
	wantWeights(t, k, "after the repair", map[string]uint16{first: 1, second: 0})
}

// Connections that are closed and kept for a while are not cut at the deadline.
func TestDrainOfClosedConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKernel()
		m := begin(t, k, draining(first, second))
		apply(t, m)
		k.servers.SetConnections(destination(second), vserver.Connections{Inactive: 7})
		m.Set(draining(first))
		apply(t, m)
		wait(t, m, 29*time.Second)
		wantWeights(t, k, "before the deadline", map[string]uint16{first: 1, second: 0})
		wait(t, m, 2*time.Second)
		wantEnds(t, m, map[dataplane.DrainEnd]uint64{dataplane.DrainEmpty: 1})
	})
}

// TestDrainingConnectionsAreShown: as many as were counted last.
func TestDrainingConnectionsAreShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKernel()
		m := begin(t, k, draining(first, second))
		apply(t, m)
		k.servers.SetConnections(destination(second), vserver.Connections{Active: 3, Inactive: 12})
		m.Set(draining(first))
		apply(t, m)
		shown := func() dataplane.Moving {
			t.Helper()
			list := dataplane.MovingList{Most: 9}
			if m.Moving(&list); len(list.Rows) != 1 {
				t.Fatalf("%d rows", len(list.Rows))
			}
			return list.Rows[0]
		}
		if got := shown(); got.Connections != dataplane.ConnectionsUnknown {
			t.Errorf("before they were counted: %+v", got)
		}
		wait(t, m, 8*time.Second)
		if got := shown(); got.Connections != dataplane.ConnectionsOpen || got.Active != 3 || got.Inactive != 12 {
			t.Errorf("%+v, want 3 active and 12 inactive", got)
		}
		k.servers.SetConnections(destination(second), vserver.Connections{Inactive: 2})
		wait(t, m, 8*time.Second)
		if got := shown(); got.Connections != dataplane.ConnectionsClosed || got.Active != 0 || got.Inactive != 2 {
			t.Errorf("%+v, want 2 inactive", got)
		}
	})
}

// Without counts the deadline is what ends a drain.
func TestDrainWithoutCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKernel()
		m := begin(t, k, draining(first, second))
		apply(t, m)
		k.refuse = "count connections"
		m.Set(draining(first))
		apply(t, m)
		wait(t, m, 31*time.Second)
		wantWeights(t, k, "after the deadline", map[string]uint16{first: 1})
	})
}

// Clear takes everything away, what drains included.
func TestClearWhileDraining(t *testing.T) {
	k := newKernel()
	m := begin(t, k, draining(first, second))
	apply(t, m)
	k.busy(second)
	m.Set(draining(first))
	apply(t, m)
	m.Clear()
	apply(t, m)
	if text := k.servers.String(); text != "" || !m.Due().IsZero() {
		t.Errorf("left in the kernel:\n%s", text)
	}
}
