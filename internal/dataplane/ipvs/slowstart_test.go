package ipvs_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

// slow is a Service whose new endpoints climb for 20 s.
func slow(backends ...string) model.ServicePlan {
	return with(service("web", vip, backends...), func(f *model.Frontend) {
		f.Scheduler, f.SlowStart, f.Drain = scheduler.MustParse("wrr"), 20*time.Second, 30*time.Second
	})
}

// weighing gives the endpoints of a plan other weights.
func weighing(p model.ServicePlan, weights ...uint16) model.ServicePlan {
	return with(p, func(f *model.Frontend) {
		for i, w := range weights {
			f.Backends[i].Weight = w
		}
	})
}

// lasting changes the time of climbs.
func lasting(p model.ServicePlan, d time.Duration) model.ServicePlan {
	return with(p, func(f *model.Frontend) { f.SlowStart = d })
}

// set changes the Service and applies it.
func set(t *testing.T, m *ipvs.Mode, p model.ServicePlan) {
	t.Helper()
	m.Set(p)
	apply(t, m)
}

// climbing carries two endpoints, of which the second is so far in its climb.
func climbing(t *testing.T, k *kernel, d time.Duration) *ipvs.Mode {
	t.Helper()
	m := begin(t, k, slow(first))
	apply(t, m)
	set(t, m, slow(first, second))
	wait(t, m, d)
	return m
}

func wantNothingDue(t *testing.T, m *ipvs.Mode) {
	t.Helper()
	if due := m.Due(); !due.IsZero() {
		t.Errorf("still due, in %s", time.Until(due))
	}
}

func TestSlowStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKernel()
		m := climbing(t, k, 0)
		wantWeights(t, k, "at once", map[string]uint16{first: 100, second: 1})
		wait(t, m, time.Second)
		wantWeights(t, k, "after a second", map[string]uint16{first: 100, second: 5})
		wait(t, m, 9*time.Second)
		if n := m.Drains().Climbing; n != 1 {
			t.Errorf("%d climb", n)
		}
		wantWeights(t, k, "half-way", map[string]uint16{first: 100, second: 50})
		wait(t, m, 9*time.Second)
		wantWeights(t, k, "before the end", map[string]uint16{first: 100, second: 95})
		wait(t, m, time.Second)
		wantWeights(t, k, "at the end", map[string]uint16{first: 100, second: 100})
		wantNothingDue(t, m)
	})
}

// However many climb there is one write a second, and those that came together climb in 20.
func TestSlowStartInBatches(t *testing.T) {
	cases := map[string]struct {
		window, apart time.Duration
		least, most   int
	}{
		"short":         {5 * time.Second, 0, 5, 5},
		"short, apart":  {5 * time.Second, 10 * time.Millisecond, 5, 6},
		"middle, apart": {30 * time.Second, 900 * time.Millisecond, 35, 40}, // 39 s in all
		"long":          {time.Hour, 0, 20, 20},
		"long, apart":   {time.Hour, 10 * time.Millisecond, 20, 40}, // of each moment those a second later
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { climbInBatches(t, c.window, c.apart, c.least, c.most) })
		})
	}
}

func climbInBatches(t *testing.T, window, apart time.Duration, least, most int) {
	k := newKernel()
	m := begin(t, k, lasting(slow(first), window))
	apply(t, m)
	all, writes := []string{first}, 0
	for i := range 9 {
		all = append(all, fmt.Sprintf("10.244.3.%d:8080", i+1))
		set(t, m, lasting(slow(all...), window))
		k.calls = nil
		wait(t, m, apart)
		writes += strings.Count(strings.Join(k.calls, "\n"), "write destinations")
	}
	k.calls = nil
	wait(t, m, window+2*time.Second)
	writes += strings.Count(strings.Join(k.calls, "\n"), "write destinations")
	if writes < least || writes > most {
		t.Errorf("%d writes, want %d to %d", writes, least, most)
	}
	for to, w := range k.weights(t) {
		if w != 100 {
			t.Errorf("%s has weight %d in the end", to, w)
		}
	}
	wantNothingDue(t, m)
}

// Without warm peers there is no slow start.
func TestNoSlowStartOfAService(t *testing.T) {
	whole := map[string]uint16{first: 100, second: 100}
	t.Run("that begins", func(t *testing.T) {
		k := newKernel()
		m := begin(t, k, slow(first, second))
		apply(t, m)
		wantWeights(t, k, "at once", whole)
		wantNothingDue(t, m)
	})
	t.Run("whose slices come one by one at a first start", func(t *testing.T) {
		k := newKernel()
		m := begin(t, k, slow(first))
		m.Apply(t.Context(), dataplane.ApplyOptions{KeepOrphans: true})
		wantWeights(t, k, "the first part", map[string]uint16{first: 100})
		set(t, m, slow(first, second))
		wantWeights(t, k, "the second", whole)
	})
	t.Run("that had no endpoint", func(t *testing.T) {
		k := newKernel()
		m := begin(t, k, slow())
		apply(t, m)
		set(t, m, slow(first, second))
		wantWeights(t, k, "both at once", whole)
	})
	t.Run("that loses those that carried it", func(t *testing.T) {
		k := newKernel()
		m := climbing(t, k, 0)
		k.busy(first)
		set(t, m, slow(second, third))
		wantWeights(t, k, "alone", map[string]uint16{first: 0, second: 100, third: 100})
	})
	t.Run("that could not be made yet", func(t *testing.T) {
		k := newKernel()
		m := begin(t, k, slow(first))
		k.refuse = "write servers"
		m.Apply(t.Context(), dataplane.ApplyOptions{})
		k.refuse = ""
		set(t, m, slow(first, second))
		wantWeights(t, k, "made", whole)
	})
	t.Run("that is made again", func(t *testing.T) {
		k := newKernel()
		m := climbing(t, k, 0)
		set(t, m, gone("web"))
		set(t, m, slow(first, second))
		wantWeights(t, k, "again", whole)
	})
}

// An input that cannot be read keeps no endpoint from its slow start for ever.
func TestSlowStartBesideABadFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKernel()
		m := begin(t, k, slow(first))
		m.Apply(t.Context(), dataplane.ApplyOptions{KeepOrphans: true})
		time.Sleep(2 * time.Minute)
		m.Set(slow(first, second))
		m.Apply(t.Context(), dataplane.ApplyOptions{KeepOrphans: true})
		wantWeights(t, k, "later", map[string]uint16{first: 100, second: 1})
	})
}

func TestSlowStartOfAReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKernel()
		m := begin(t, k, slow(first, second))
		apply(t, m)
		k.busy(second)
		set(t, m, slow(first))
		wait(t, m, 3*time.Second)
		wantWeights(t, k, "draining", map[string]uint16{first: 100, second: 0})
		set(t, m, slow(first, second))
		wantWeights(t, k, "back", map[string]uint16{first: 100, second: 1})
		wait(t, m, 4*time.Second)
		set(t, m, weighing(slow(first, second), 1, 0))
		wantWeights(t, k, "without weight", map[string]uint16{first: 100, second: 0})
		wantNothingDue(t, m)
		set(t, m, slow(first, second))
		wantWeights(t, k, "with weight again", map[string]uint16{first: 100, second: 1})
		wait(t, m, 20*time.Second)
		m.Set(slow(first))
		set(t, m, slow(first, second))
		wantWeights(t, k, "away and back before a pass", map[string]uint16{first: 100, second: 100})
	})
}

// A change between two steps is none.
func TestSlowStartBetweenSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKernel()
		m := climbing(t, k, 1900*time.Millisecond)
		set(t, m, slow(first, second, third))
		wantWeights(t, k, "with another one", map[string]uint16{first: 100, second: 5, third: 1})
	})
}

func TestSlowStartOfUDP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		udp := func(backends ...string) model.ServicePlan {
			return with(slow(backends...), func(f *model.Frontend) { f.Key.Protocol = model.UDP })
		}
		k := newKernel()
		m := begin(t, k, udp(first, second))
		apply(t, m)
		set(t, m, udp(first))
		set(t, m, udp(first, second))
		if text := k.servers.String(); !strings.Contains(text, "-a -u 10.96.0.10:80 -r 10.244.1.1:8080 -m -w 1\n") {
			t.Errorf("an endpoint that is back:\n%s", text)
		}
	})
}

// A process with no memory goes on where the one before it was.
func TestSlowStartAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKernel()
		climbing(t, k, 7*time.Second)
		time.Sleep(time.Hour)
		m := begin(t, k, slow(first, second, third)) // third came meanwhile
		apply(t, m)
		wantWeights(t, k, "at once", map[string]uint16{first: 100, second: 35, third: 1})
		wait(t, m, 5*time.Second)
		wantWeights(t, k, "5 s later", map[string]uint16{first: 100, second: 60, third: 25})
		m = begin(t, k, lasting(slow(first, second, third), 40*time.Second))
		apply(t, m)
		wantWeights(t, k, "with a longer window", map[string]uint16{first: 100, second: 60, third: 25})
		wait(t, m, 16*time.Second)
		wantWeights(t, k, "16 s later", map[string]uint16{first: 100, second: 100, third: 65})
		wait(t, m, 14*time.Second)
		wantWeights(t, k, "in the end", map[string]uint16{first: 100, second: 100, third: 100})
		wantNothingDue(t, m)
	})
}

// Slow start that comes while a Service is carried raises all weights together.
func TestSlowStartIsSwitchedOn(t *testing.T) {
	k := newKernel()
	m := begin(t, k, lasting(slow(first, second), 0))
	apply(t, m)
	k.calls = nil
	set(t, m, slow(first, second))
	wantWeights(t, k, "on", map[string]uint16{first: 100, second: 100})
	if diff := cmp.Diff([]string{"write destinations"}, k.calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	wantNothingDue(t, m)
}

// A row that is found with another weight is not in slow start: another program or an earlier
// process wrote it.
func TestSlowStartOfWhatIsFound(t *testing.T) {
	plain := service("web", vip, first, second)
	cases := map[string]struct {
		kernel, wanted model.ServicePlan
		want           map[string]uint16
	}{
		"kube-proxy's":               {plain, slow(first, second), map[string]uint16{first: 100, second: 100}},
		"kube-proxy's and a new one": {plain, slow(first, second, third), map[string]uint16{first: 100, second: 100, third: 1}},
		"without slow start": {
			weighing(lasting(slow(first, second), 0), 2, 5), weighing(slow(first, second), 2, 5), map[string]uint16{first: 200, second: 500},
		},
		"alike, and the weight of one": {plain, weighing(slow(first, second), 60000, 1), map[string]uint16{first: 60000, second: 1}},
		"heavier":                      {weighing(slow(first, second), 3, 3), slow(first, second), map[string]uint16{first: 100, second: 100}},
		"drained":                      {weighing(slow(first, second), 1, 0), slow(first, second), map[string]uint16{first: 100, second: 1}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			k := newKernel()
			apply(t, begin(t, k, c.kernel))
			m := begin(t, k, c.wanted)
			k.calls = nil
			apply(t, m)
			wantWeights(t, k, "adopted", c.want)
			if n := strings.Count(strings.Join(k.calls, "\n"), "write destinations"); n != 1 {
				t.Errorf("%d batches", n)
			}
		})
	}
}

func TestSlowStartGoesOnThroughChanges(t *testing.T) {
	cases := map[string]struct {
		to   model.ServicePlan
		want map[string]uint16 // right after the change, 6 s into the climb
		then map[string]uint16 // 10 s later
	}{
		"another weight":        {weighing(slow(first, second), 1, 4), map[string]uint16{first: 100, second: 120}, map[string]uint16{first: 100, second: 320}},
		"a weight of another":   {weighing(slow(first, second), 3), map[string]uint16{first: 300, second: 30}, map[string]uint16{first: 300, second: 80}},
		"too large for 100":     {weighing(slow(first, second), 1000), map[string]uint16{first: 10000, second: 3}, map[string]uint16{first: 10000, second: 8}},
		"too large for 10":      {weighing(slow(first, second), 65535), map[string]uint16{first: 65535, second: 1}, map[string]uint16{first: 65535, second: 1}},
		"a longer window":       {lasting(slow(first, second), 40*time.Second), map[string]uint16{first: 100, second: 30}, map[string]uint16{first: 100, second: 55}},
		"a shorter window":      {lasting(slow(first, second), 10*time.Second), map[string]uint16{first: 100, second: 30}, map[string]uint16{first: 100, second: 100}},
		"no slow start":         {lasting(slow(first, second), 0), map[string]uint16{first: 1, second: 1}, map[string]uint16{first: 1, second: 1}},
		"its end":               {slow(first), map[string]uint16{first: 100, second: 0}, map[string]uint16{first: 100}},
		"one more":              {slow(first, second, third), map[string]uint16{first: 100, second: 30, third: 1}, map[string]uint16{first: 100, second: 80, third: 50}},
		"one more with its own": {weighing(slow(first, second, third), 1, 1, 5), map[string]uint16{first: 100, second: 30, third: 1}, map[string]uint16{first: 100, second: 80, third: 250}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKernel()
				m := climbing(t, k, 6*time.Second)
				set(t, m, c.to)
				wantWeights(t, k, "changed", c.want)
				wait(t, m, 10*time.Second)
				wantWeights(t, k, "10 s later", c.then)
				wait(t, m, time.Minute)
				wantNothingDue(t, m)
			})
		})
	}
}

// The weights of a slow start are desired state: changes by another program are undone, and a
// failed write is tried again.
func TestSlowStartIsDesiredState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKernel()
		m := climbing(t, k, 6*time.Second)
		k.servers.WriteServers(t.Context(), []vserver.ServerChange{{Op: vserver.Delete, Key: destination(first).Server}})
		round(t, m)
		apply(t, m)
		wantWeights(t, k, "after a lost server", map[string]uint16{first: 100, second: 30})
		k.refuse = "write destinations"
		time.Sleep(time.Until(m.Due()))
		m.Apply(t.Context(), dataplane.ApplyOptions{})
		wantWeights(t, k, "after a failed write", map[string]uint16{first: 100, second: 30})
		k.refuse = ""
		apply(t, m)
		wantWeights(t, k, "after the next", map[string]uint16{first: 100, second: 35})
		wait(t, m, 13*time.Second)
		wantWeights(t, k, "in the end", map[string]uint16{first: 100, second: 100})
	})
}

// TestSlowStartRandom has endpoints come and go, with restarts and failed writes between. No weight
// is ever 0, above its full weight, or lower than before, and all end with their full weight.
func TestSlowStartRandom(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) { randomClimbs(t, seed) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func randomClimbs(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	window := time.Duration(1+r.IntN(60)) * time.Second
	weight := map[string]uint16{}
	wanted := func() model.ServicePlan {
		names := slices.Sorted(maps.Keys(weight))
		p := lasting(slow(names...), window)
		slices.SortFunc(p.Frontends[0].Backends, model.Backend.Compare)
		for i, b := range p.Frontends[0].Backends {
			p.Frontends[0].Backends[i].Weight = weight[b.Addr.String()]
		}
		return with(p, func(f *model.Frontend) { f.Drain = 0 })
	}
	begin := func(k *kernel) *ipvs.Mode {
		m := ipvs.New(zap.NewNop(), config(), k.deps())
		m.Set(wanted())
		if err := m.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		apply(t, m)
		return m
	}
	k, last := newKernel(), map[string]uint16{}
	check := func(after string) {
		now := k.weights(t)
		for to, own := range weight {
			if w := now[to]; w < max(last[to], 1) || w > own*100 {
				t.Fatalf("after %s %s has weight %d of %d, and had %d", after, to, w, own*100, last[to])
			}
		}
		last = now
	}
	m := begin(k)
	for range 60 {
		after := "a change"
		switch to := fmt.Sprintf("10.244.3.%d:8080", r.IntN(8)); r.IntN(6) {
		case 0, 1:
			if _, there := weight[to]; !there {
				weight[to] = uint16(1 + r.IntN(9))
			}
			set(t, m, wanted())
		case 2:
			delete(weight, to)
			set(t, m, wanted())
		case 3:
			after = "a restart"
			m = begin(k)
		case 4:
			after = "a failed write"
			k.refuse = "write destinations"
			time.Sleep(time.Second)
			m.Apply(t.Context(), dataplane.ApplyOptions{})
			k.refuse = ""
			apply(t, m)
		default:
			after = "a wait"
			for range r.IntN(20) {
				wait(t, m, time.Duration(r.IntN(1500))*time.Millisecond)
				check(after)
			}
		}
		check(after)
	}
	wait(t, m, window+2*time.Second)
	for to, w := range k.weights(t) {
		if w != weight[netip.MustParseAddrPort(to).String()]*100 {
			t.Errorf("%s ends with weight %d", to, w)
		}
	}
	wantNothingDue(t, m)
}
