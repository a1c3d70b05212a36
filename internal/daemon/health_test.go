package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/httpd"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
	"github.com/kube-ipvs/kube-ipvs/internal/source/kube"
	"github.com/kube-ipvs/kube-ipvs/internal/wiring"
)

// supposed is a loop and the facts that a test sets.
type supposed struct {
	condition agent.Condition
	unsynced  map[model.Origin]source.State
}

func (s supposed) Condition() agent.Condition              { return s.condition }
func (s supposed) Unsynced() map[model.Origin]source.State { return s.unsynced }
func (s supposed) Eligible() bool                          { return true }

// TestFailingChecksAreLogged: with the reason, once when they begin to fail, and once when they hold again.
func TestFailingChecksAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.DebugLevel)
		s := &changing{supposed: supposed{condition: agent.Condition{Served: true}}}
		o := healthInputs{settings: wiring.Static(config.Config{}), loop: s, known: s}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- o.logChanges(ctx, zap.New(core)) }()
		for _, failures := range []uint64{0, 3, 4, 5, 0, 0} {
			s.set(agent.Condition{Served: true, Failures: failures, LastError: "no memory"})
			time.Sleep(logInterval)
			synctest.Wait()
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		var got []string
		for _, e := range logs.All() {
			got = append(got, fmt.Sprint(e.Level, " ", e.Message, " ", e.ContextMap()))
		}
		want := []string{
			"warn a health check fails map[check:apply paths:[readyz] reason:failed 3 times in a row: no memory]",
			"info a health check holds again map[check:apply]",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
	})
}

// changing is a loop whose condition changes.
type changing struct {
	supposed
	mu sync.Mutex
}

func (c *changing) set(now agent.Condition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.condition = now
}

func (c *changing) Condition() agent.Condition {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.condition
}

func TestHealthTellsTheTruth(t *testing.T) {
	well := agent.Condition{Served: true, Patience: time.Minute}
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	fresh := func() kube.Progress { return kube.Progress{Synced: true, Heard: ago(time.Second)} }
	for _, tt := range []struct {
		name    string
		loop    func() agent.Condition
		states  map[model.Origin]source.State
		kube    func() map[string]kube.Progress
		unread  []string
		h, l, r string // the checks that fail
	}{
		{name: "all well", kube: func() map[string]kube.Progress { return map[string]kube.Progress{"services": fresh()} }},
		{name: "no API server", loop: func() agent.Condition { return well }},
		{name: "just begun", loop: func() agent.Condition { return agent.Condition{Patience: time.Minute} },
			states: map[model.Origin]source.State{model.FromKube: source.Starting},
			kube: func() map[string]kube.Progress {
				return map[string]kube.Progress{"services": fresh(), "nodes": {}, "endpointslices": {Err: errors.New("connection refused")}}
			},
			h: "sources: source kube has not delivered everything yet; endpointslices: connection refused; nodes: no answer yet | " +
				"first sync: most desired rows are not in the kernel yet",
			r: "sources: source kube has not delivered everything yet; endpointslices: connection refused; nodes: no answer yet | " +
				"first sync: most desired rows are not in the kernel yet"},
		{name: "a manifest that cannot be read", states: map[model.Origin]source.State{model.FromFile: source.Partial},
			r: "input: source file: some input cannot be read"},
		{name: "a manifest that cannot be read any more", unread: []string{"web.yaml: permission denied"}, r: "input: web.yaml: permission denied"},
		{name: "an API server that is away for minutes", kube: func() map[string]kube.Progress {
			return map[string]kube.Progress{"services": {Synced: true, Heard: ago(3 * time.Minute), Err: errors.New("EOF")}, "nodes": fresh()}
		}, r: "watch: the API server has sent nothing about services for 3m0s: EOF"},
		{name: "an API server that is away for hours", kube: func() map[string]kube.Progress {
			return map[string]kube.Progress{"services": {Synced: true, Heard: ago(2 * time.Hour)}}
		}, h: "watch: the API server has sent nothing about services for 2h0m0s: no answer yet", r: "watch: the API server has sent nothing about services for 2h0m0s: no answer yet"},
		{name: "rows that failed twice", loop: func() agent.Condition {
			return agent.Condition{Served: true, Patience: time.Minute, Failures: 2, LastError: "busy"}
		}},
		{name: "rows that fail", loop: func() agent.Condition {
			return agent.Condition{Served: true, Patience: time.Minute, Failures: 3, LastError: "busy"}
		}, r: "apply: failed 3 times in a row: busy"},
		{name: "a change that waits", loop: func() agent.Condition {
			return agent.Condition{Served: true, Patience: time.Minute, PendingSince: ago(61 * time.Second)}
		}, h: "changes: a change has waited 1m1s to be written to the kernel", l: "changes: a change has waited 1m1s to be written to the kernel", r: "changes: a change has waited 1m1s to be written to the kernel"},
		{name: "a loop that is stuck", loop: func() agent.Condition {
			return agent.Condition{Served: true, Patience: time.Minute, Busy: ago(2 * time.Minute)}
		}, h: "loop: has been busy with one action for 2m0s", l: "loop: has been busy with one action for 2m0s", r: "loop: has been busy with one action for 2m0s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(24 * time.Hour) // there is a past
				s := supposed{condition: well, unsynced: tt.states}
				if tt.loop != nil {
					s.condition = tt.loop()
				}
				o := healthInputs{settings: wiring.Static(config.Config{Listeners: config.Listeners{ReadyzWatchBound: 2 * time.Minute, HealthzWatchBound: time.Hour}}),
					families: []model.Family{model.IPv4, model.IPv6}, loop: s, known: s, progress: tt.kube, unreadable: func() []string { return tt.unread }}
				r := o.report(t.Context())
				red := func(on func(httpd.Check) bool) string {
					var out []string
					for _, c := range r.Checks {
						if on(c) && c.Reason != "" {
							out = append(out, c.Name+": "+c.Reason)
						}
					}
					return strings.Join(out, " | ")
				}
				got := []string{red(func(c httpd.Check) bool { return c.Health }), red(func(c httpd.Check) bool { return c.Live }), red(func(c httpd.Check) bool { return c.Ready })}
				if diff := cmp.Diff([]string{tt.h, tt.l, tt.r}, got); diff != "" {
					t.Errorf("healthz, livez, readyz (-want +got):\n%s", diff)
				}
				if len(r.Families) != 2 || r.Families[0].Name != "IPv4" || r.Families[0].Healthy != (tt.l == "") || !r.NodeEligible {
					t.Errorf("report %+v", r)
				}
			})
		})
	}
}

// A bound of 0 keeps load balancers on a node whatever becomes of the API server.
func TestHealthzWatchBoundCanBeOff(t *testing.T) {
	s := supposed{condition: agent.Condition{Served: true, Patience: time.Minute}}
	o := healthInputs{settings: wiring.Static(config.Config{Listeners: config.Listeners{ReadyzWatchBound: time.Minute}}), loop: s, known: s, progress: func() map[string]kube.Progress {
		return map[string]kube.Progress{"services": {Synced: true, Heard: time.Now().Add(-1000 * time.Hour)}}
	}}
	for _, c := range o.report(t.Context()).Checks {
		if c.Name == "watch" && (c.Health || c.Live || !c.Ready || c.Reason == "") {
			t.Errorf("check %+v", c)
		}
	}
}
