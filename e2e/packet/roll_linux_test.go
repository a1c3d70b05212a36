package packet

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/load"
)

// rollTries is how often a client tries, five times a second, until a new replica has to have answered.
const rollTries = 25

// TestAffinityRoll replaces the only replica of a Service with an affinity of three hours. A
// returning client is served by the new replica at once, for every way in which the old one ended.
func TestAffinityRoll(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	workers := w.workers(t, 0, 6)
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	n.start(t)
	watch := w.node.watch(t)
	for i, tt := range []struct {
		name  string
		leave func(*single)
	}{
		{"terminating first", func(r *single) {
			leaving := r.old.endpoint
			leaving.terminating = true
			r.now(leaving, r.fresh.endpoint)
			watch.wait(r.t, r.fresh.at(r.s), "1")
			r.now(r.fresh.endpoint)
		}},
		{"replaced at once", func(r *single) { r.now(r.fresh.endpoint) }},
		{"killed, and no backend for a while", func(r *single) {
			r.old.end()
			r.now()
			// It may drain, with what the dead pod left; it does not serve.
			watch.until(r.t, "no backend to serve", func(rows map[serving]row) bool { return rows[r.old.at(r.s)].weight == 0 })
			more(r.t, r.run, 3)
			r.now(r.fresh.endpoint)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := service{name: fmt.Sprintf("single-%d", i), vip: pair{v4: fmt.Sprintf("10.96.0.9%d", i)}, ports: webPorts()[:1], affinity: 10800}
			r := &single{t: t, proxy: n, s: s, old: workers[2*i], fresh: workers[2*i+1]}
			r.now(r.old.endpoint)
			watch.wait(t, r.old.at(s), "1")
			r.run = w.outside.load(t, load.Profile{To: netip.MustParseAddrPort(s.vip.v4 + ":80"), New: 5, Timeout: time.Second})
			until(t, r.run, "the old replica to answer", func(r load.Report) bool { return r.Backends[workers[2*i].name] > 3 })
			tt.leave(r)
			watch.wait(t, r.fresh.at(s), "1")
			from := r.run.Report().Started
			until(t, r.run, "the new replica to answer", func(got load.Report) bool { return got.Backends[r.fresh.name] > 0 })
			tries := r.run.Report().Started - from
			t.Logf("figure: answered by the new replica at try %d, one each 200 ms, after it was in the kernel", tries)
			if tries > rollTries {
				t.Errorf("%d tries, want at most %d", tries, rollTries)
			}
			loyal := r.run.Report()
			more(t, r.run, 5)
			got := r.run.Report()
			if n := got.Backends[r.old.name] - loyal.Backends[r.old.name]; n > 0 {
				t.Errorf("%d answers by the old replica after the new one", n)
			}
		})
	}
}

// single is a Service with one replica.
type single struct {
	*proxy
	t          *testing.T
	s          service
	old, fresh *worker
	run        *load.Run
}

// now lists these endpoints.
func (r *single) now(list ...endpoint) {
	r.t.Helper()
	r.s.backends = list
	r.write(r.t, r.s)
}
