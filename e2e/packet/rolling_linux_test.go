package packet

import (
	"net/netip"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/load"
)

// Sizes of the rolling update.
const (
	rolled      = 20    // backends, each replaced by another
	rollPace    = 500.0 // new connections a second, if the machine can
	rollLong    = 100   // connections held open before it begins, and as many again half-way
	rollDrain   = 15 * time.Second
	rollService = "10.96.0.80"
)

// rollout is a Service whose backends are replaced one by one.
type rollout struct {
	*proxy
	service    service
	old, fresh []*worker
	watch      *watch
	left       map[*worker]time.Time // when a slice no longer had it
	ended      map[*worker]bool      // its sockets are closed
}

// TestRollingUpdate replaces all backends of a busy Service, one after the other. The new one is
// ready, the old one terminates and still serves, then it is no longer listed, and when it has
// drained its pod ends. No new connection fails, none held open is cut at a backend that lives, and
// no destination stays beyond its time.
func TestRollingUpdate(t *testing.T) {
	w := newWorld(t)
	r := &rollout{
		proxy: newAgent(t, w.node, "--cluster-cidr", clusters), old: w.workers(t, 0, rolled), fresh: w.workers(t, rolled, rolled),
		service: service{name: "rolling", vip: pair{v4: rollService}, ports: webPorts()[:1], annotations: annotations{"drain": rollDrain.String()}},
		left:    map[*worker]time.Time{}, ended: map[*worker]bool{},
	}
	// Half of the backends come when the first connections are held already, so that some drain with and some without.
	r.add(r.old[:rolled/2]...)
	r.write(t, r.service)
	r.start(t)
	r.watch = w.node.watch(t)
	clients := w.pod3.clients(t, 30, 4)
	profile := load.Profile{To: netip.MustParseAddrPort(rollService + ":80"), Sources: clients, Every: time.Second}
	hold := func() *load.Run {
		long := profile
		long.Long = rollLong
		run := w.pod3.load(t, long)
		until(t, run, "connections held open", func(r load.Report) bool { return r.Long.Alive == rollLong })
		return run
	}
	held := []*load.Run{hold()}
	r.add(r.old[rolled/2:]...)
	r.edit(t, func() { r.write(t, r.service) })

	profile.New, profile.Reset = w.canDo(t, profile), true
	busy := w.pod3.load(t, profile)
	for i := range rolled {
		if i == rolled/2 {
			held = append(held, hold())
		}
		more(t, busy, int(profile.New/2))
		r.replace(t, r.old[i/2+i%2*rolled/2], r.fresh[i]) // one of each half in turn
	}
	poll(t, "everything old to have drained", settleTimeout, func() error { return r.bury() })
	more(t, busy, int(profile.New))
	r.judge(t, busy, held)
}

// canDo measures what clients and servers can carry while nothing changes: under emulation that may be less than is wanted, and a
// machine without any time left would test itself.
func (w *world) canDo(t *testing.T, profile load.Profile) float64 {
	t.Helper()
	profile.New, profile.Reset = 2*rollPace, true
	run := w.pod3.load(t, profile)
	until(t, run, "a measurement", func(r load.Report) bool { return r.Took > 4*time.Second })
	r, err := run.Stop()
	carried := float64(r.OK) / r.Took.Seconds()
	if err != nil || r.OK == 0 {
		t.Fatalf("while nothing changes: %v\n%s", err, report(r))
	}
	pace := min(rollPace, 0.5*carried) // an update is work, too
	t.Logf("figure: unchanged, %.0f new connections a second were wanted and %.0f carried, the slowest %s; the update has %.0f",
		profile.New, carried, r.Worst().Round(time.Millisecond), pace)
	return pace
}

func (r *rollout) add(workers ...*worker) {
	for _, k := range workers {
		r.service.backends = append(r.service.backends, k.endpoint)
	}
}

// replace puts one backend in the place of another, as a control plane does it.
func (r *rollout) replace(t *testing.T, old, fresh *worker) {
	t.Helper()
	r.add(fresh)
	for i := range r.service.backends {
		if r.service.backends[i].addr == old.addr {
			r.service.backends[i].terminating = true
		}
	}
	r.write(t, r.service)
	r.watch.until(t, "one to come and one to drain", func(rows map[serving]row) bool {
		leaving, there := rows[old.at(r.service)]
		return rows[fresh.at(r.service)].weight == 1 && (!there || leaving.weight == 0)
	})
	r.service.backends = without(r.service.backends, old.endpoint)
	r.left[old] = time.Now() // or a moment later
	r.write(t, r.service)
	_ = r.bury() // some have, the others later
}

// without leaves out the endpoint of an address.
func without(list []endpoint, gone endpoint) []endpoint {
	var out []endpoint
	for _, e := range list {
		if e.addr != gone.addr {
			out = append(out, e)
		}
	}
	return out
}

// bury ends the pods of those that have drained, and fails while some have not.
func (r *rollout) bury() error {
	var waiting error
	for k := range r.left {
		if err := r.watch.is(k.at(r.service), gone); err != nil {
			waiting = err
		} else if !r.ended[k] {
			r.ended[k] = true
			k.end()
		}
	}
	return waiting
}

// judge checks the fate of every request and connection.
func (r *rollout) judge(t *testing.T, busy *load.Run, held []*load.Run) {
	t.Helper()
	got, err := busy.Stop()
	t.Logf("figure: %d new connections, %.0f a second, %d failed, the slowest %s, at most %s late",
		got.Started, got.Rate(), got.Failures(), got.Worst().Round(time.Millisecond), got.Late.Round(time.Millisecond))
	unfailing(t, got, err)
	busyWith := map[string]int{} // connections held open, by the name of their backend
	cuts, alive := 0, 0
	for _, run := range held {
		got, err := run.Stop()
		if err != nil {
			t.Error(err)
		}
		for _, c := range got.Long.Conns {
			busyWith[c.Backend]++
			if c.Failure == "" {
				alive++
				continue
			}
			cuts++
			if end, drained := r.end(c.Backend); !drained || c.Cut.At.Before(end) {
				t.Errorf("cut on %s, which was there: %v", c.Backend, c.Cut.Err)
			}
		}
	}
	t.Logf("figure: of %d connections held open %d were cut at the deadline of their backend, %d live", len(held)*rollLong, cuts, alive)
	r.judgeRows(t, busyWith)
}

// end is the earliest time at which a drained worker may have been gone, by its name. It is the
// time of the read before the last one that still had it, because that read may have begun before
// the worker ended.
func (r *rollout) end(name string) (time.Time, bool) {
	for k := range r.left {
		if turns := r.watch.turns(k.at(r.service)); k.name == name && len(turns) > 0 && turns[len(turns)-1].now == gone {
			return r.watch.lookedAt(turns[len(turns)-1].look - 2), true
		}
	}
	return time.Time{}, false
}

// overtime is what a destination may take beyond its deadline, counted in looks at it: the agent is one of many on a machine
// with much to do.
const overtime = 5 * time.Second

// judgeRows requires that each old destination drained and was deleted, at its deadline with
// connections and when idle without, and that each new one was added and stayed.
func (r *rollout) judgeRows(t *testing.T, busyWith map[string]int) {
	t.Helper()
	idle, deadline := 0, 0
	longest := 0
	for k, left := range r.left {
		if got := r.watch.weights(k.at(r.service)); got != "1 0 gone" {
			t.Errorf("%s: weights %s, want 1 0 gone", k.name, got)
			continue
		}
		turns := r.watch.turns(k.at(r.service))
		end := turns[len(turns)-1]
		looks := r.watch.looksSince(left, end)
		longest = max(longest, looks)
		if time.Duration(looks)*rowPause > rollDrain+overtime {
			t.Errorf("%s was there at %d looks, one each %s, after it had left", k.name, looks, rowPause)
		}
		switch took := end.at.Sub(left); {
		case took >= rollDrain-rowPause:
			deadline++
		case end.last.active > 0 || busyWith[k.name] > 0:
			t.Errorf("%s was gone %s after it had left, with %d connections held open", k.name, took, busyWith[k.name])
		default:
			idle++
		}
	}
	for _, k := range r.fresh {
		if got := r.watch.weights(k.at(r.service)); got != "1" {
			t.Errorf("%s: weights %s, want 1", k.name, got)
		}
	}
	t.Logf("figure: %d destinations gone when idle, %d at their deadline of %s; at most %d looks of %s after they left",
		idle, deadline, rollDrain, longest, rowPause)
}
