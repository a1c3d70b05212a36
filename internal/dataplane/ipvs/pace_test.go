package ipvs_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

// grace is a kernel in which each change of a scheduler waits for a grace period.
type grace struct {
	ipvs.Servers
	period  time.Duration
	before  map[vserver.ServerKey]string
	longest time.Duration
}

func (g *grace) WriteServers(ctx context.Context, changes []vserver.ServerChange) []error {
	start := time.Now()
	for _, c := range changes {
		if have, there := g.before[c.Key]; there && have != c.Server.Scheduler {
			time.Sleep(g.period)
		}
		g.before[c.Key] = c.Server.Scheduler
	}
	g.longest = max(g.longest, time.Since(start))
	return g.Servers.WriteServers(ctx, changes)
}

// numbered is one of many Services.
func numbered(i int, algorithm string, backend int) model.ServicePlan {
	p := service(fmt.Sprintf("web-%d", i), fmt.Sprintf("10.96.%d.%d", i/250, i%250+1), fmt.Sprintf("10.244.0.%d:80", backend))
	for j := range p.Frontends {
		p.Frontends[j].Scheduler = scheduler.MustParse(algorithm)
	}
	return p
}

// However slow the kernel is at it, another scheduler for every Service holds up no call
// for long, and no other change.
func TestSchedulerChangesArePaced(t *testing.T) {
	for _, tt := range []struct {
		name     string
		services int
		period   time.Duration
		within   time.Duration // all of it
	}{
		{"a kernel with one CPU", 3000, 0, time.Second},
		{"an ordinary one", 600, 10 * time.Millisecond, 8 * time.Second},
		{"a slow one", 300, 100 * time.Millisecond, 40 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKernel()
				deps := k.deps()
				g := &grace{Servers: deps.Servers, period: tt.period, before: map[vserver.ServerKey]string{}}
				deps.Servers = g
				m := ipvs.New(zap.NewNop(), config(), deps)
				m.SetHost(host())
				for i := range tt.services {
					m.Set(numbered(i, "rr", 1))
				}
				if err := errors.Join(m.Start(t.Context()), m.Load(t.Context())); err != nil {
					t.Fatal(err)
				}
				apply(t, m)
				for i := range tt.services {
					m.Set(numbered(i, "wlc", 1))
				}
				start, passes := time.Now(), 0
				for pending := 1; pending > 0; passes++ {
					m.Set(numbered(tt.services-1, "wlc", 2+passes%9)) // an endpoint changes meanwhile
					begun := time.Now()
					r := m.Apply(t.Context(), dataplane.ApplyOptions{})
					if took := time.Since(begun); took > 2*time.Second {
						t.Fatalf("a pass took %s", took)
					}
					if r.Pending != r.Paced || r.Total().Err() != nil {
						t.Fatalf("%d pending, %d of them paced: %v", r.Pending, r.Paced, r.Total().Err())
					}
					pending = r.Pending
				}
				if g.longest > 2*time.Second || time.Since(start) > tt.within {
					t.Errorf("longest call %s, all of it %s", g.longest, time.Since(start))
				}
				if tt.period > 0 && passes < 3 {
					t.Errorf("%d passes: nothing could get in between", passes)
				}
				for key, s := range g.before {
					if s != "wlc" {
						t.Fatalf("%s has %s", key, s)
					}
				}
			})
		})
	}
}
