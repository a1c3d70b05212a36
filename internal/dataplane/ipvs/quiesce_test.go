package ipvs_test

import (
	"context"
	"fmt"
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

// witness looks at the set of those who are not let in while servers are written.
type witness struct {
	ipvs.Servers
	kernel *kernel
	held   []string
}

func (w *witness) WriteServers(ctx context.Context, changes []vserver.ServerChange) []error {
	w.held = append(w.held, fmt.Sprintf("%d: %s", len(changes), strings.Join(w.kernel.held(), " ")))
	return w.Servers.WriteServers(ctx, changes)
}

// held lists the entries of both families' KUBE-HOLD.
func (k *kernel) held() []string {
	var out []string
	for _, set := range []string{"KUBE-HOLD", "KUBE-6-HOLD"} {
		_, entries, _ := k.sets.List(context.Background(), set)
		for _, e := range entries {
			out = append(out, e.String())
		}
	}
	slices.Sort(out)
	return out
}

// algorithm is a Service over TCP, UDP and IPv6 with a scheduler.
func algorithm(name string) []model.ServicePlan {
	plans := []model.ServicePlan{service("web", "10.96.0.1", "10.244.0.1:80"), service("dns", "10.96.0.2", "10.244.0.2:53"), service("six", "fd00:96::1", "[fd00:10::1]:80")}
	for i := range plans {
		for j := range plans[i].Frontends {
			plans[i].Frontends[j].Scheduler = scheduler.MustParse(name)
		}
	}
	plans[1].Frontends[0].Key.Protocol = model.UDP
	return plans
}

func watched(t *testing.T, k *kernel) (*ipvs.Mode, *witness) {
	deps := k.deps()
	w := &witness{Servers: deps.Servers, kernel: k}
	deps.Servers = w
	m := ipvs.New(zap.NewNop(), config(), deps)
	m.SetHost(host())
	for _, p := range algorithm("rr") {
		m.Set(p)
	}
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	apply(t, m)
	return m, w
}

// While a server has no scheduler its clients are not let in to be refused; before and
// after they are, and for all other changes.
func TestClientsAreHeldWhileTheSchedulerChanges(t *testing.T) {
	k := newKernel()
	m, w := watched(t, k)
	for _, p := range algorithm("wlc") {
		m.Set(p)
	}
	apply(t, m)
	want := []string{"3: ", "3: 10.96.0.1,tcp:80 fd00:96::1,tcp:80"}
	if diff := cmp.Diff(want, w.held); diff != "" {
		t.Errorf("held while servers are written (-want +got):\n%s", diff)
	}
	if left := k.held(); len(left) > 0 {
		t.Errorf("still held: %v", left)
	}
}

// TestHoldEndsWhateverFails: each call may fail, or the process may end there. No client is held for longer than the entries
// last.
func TestHoldEndsWhateverFails(t *testing.T) {
	for n := 1; n < 12; n++ {
		synctest.Test(t, func(t *testing.T) {
			k := newKernel()
			m, _ := watched(t, k)
			for _, p := range algorithm("wlc") {
				m.Set(p)
			}
			k.failAt = len(k.calls) + n
			m.Apply(t.Context(), dataplane.ApplyOptions{KeepOrphans: true})
			time.Sleep(1100 * time.Millisecond)
			if left := k.held(); len(left) > 0 {
				t.Errorf("call %d failed: still held: %v", n, left)
			}
			k.failAt = 0
			for range 3 {
				m.Apply(t.Context(), dataplane.ApplyOptions{KeepOrphans: true, Retry: true})
			}
			if s := k.servers.String(); strings.Contains(s, "-s rr") {
				t.Errorf("call %d failed: not all changed:\n%s", n, s)
			}
		})
	}
}
