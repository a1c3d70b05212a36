package ipvs_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap/zaptest"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

// sized is a Service with so many backends.
func sized(n int, algorithm string) model.ServicePlan {
	backends := make([]string, n)
	for i := range backends {
		backends[i] = fmt.Sprintf("10.244.%d.%d:8080", 1+i/250, i%250+1)
	}
	return with(service("web", vip, backends...), func(f *model.Frontend) { f.Scheduler = scheduler.MustParse(algorithm) })
}

// journal notes every write of servers and destinations, in a few words.
type journal struct {
	ipvs.Servers
	lines []string
	// lose, if set, tells of the write with this number, from 1, that its answer is lost.
	lose   int
	before func(line string)
}

func (j *journal) note(line string) (lost bool) {
	if j.before != nil {
		j.before(line)
	}
	j.lines = append(j.lines, line)
	return len(j.lines) == j.lose
}

func (j *journal) WriteServers(ctx context.Context, changes []vserver.ServerChange) []error {
	var words []string
	for _, c := range changes {
		word := c.Op.String() + " " + c.Server.Scheduler
		if c.Staged {
			word += " staged"
		}
		words = append(words, word)
	}
	lost := j.note(strings.Join(words, ", "))
	errs := j.Servers.WriteServers(ctx, changes)
	if lost {
		return many(len(changes), vserver.ErrUnknown)
	}
	return errs
}

func (j *journal) WriteDestinations(ctx context.Context, changes []vserver.DestinationChange) []error {
	lost := j.note(fmt.Sprintf("%d destinations", len(changes)))
	errs := j.Servers.WriteDestinations(ctx, changes)
	if lost {
		return many(len(changes), vserver.ErrUnknown)
	}
	return errs
}

// noted starts a mode whose writes are noted.
func noted(t testing.TB, k *kernel, plans ...model.ServicePlan) (*ipvs.Mode, *journal) {
	t.Helper()
	deps := k.deps()
	j := &journal{Servers: deps.Servers}
	deps.Servers = j
	m := ipvs.New(zaptest.NewLogger(t), config(), deps)
	m.SetHost(host())
	for _, p := range plans {
		m.Set(p)
	}
	if err := errors.Join(m.Start(t.Context()), m.Load(t.Context())); err != nil {
		t.Fatal(err)
	}
	return m, j
}

func wantWrites(t *testing.T, j *journal, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, j.lines); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	j.lines = nil
}

var webServer = destination(first).Server

// Which servers are filled before they serve, and in which order.
func TestServersAreFilledBeforeTheyServe(t *testing.T) {
	for _, tt := range []struct {
		backends  int
		algorithm string
		want      []string
	}{
		{0, "mh", []string{"add mh"}},
		{1, "mh", []string{"add mh", "1 destinations"}},
		{2, "mh", []string{"add mh staged", "2 destinations", "update mh"}},
		{15, "rr", []string{"add rr", "15 destinations"}},
		{16, "rr", []string{"add rr staged", "16 destinations", "update rr"}},
		{1500, "wlc", []string{"add wlc staged", "1024 destinations", "476 destinations", "update wlc"}},
	} {
		t.Run(fmt.Sprintf("%s of %d", tt.algorithm, tt.backends), func(t *testing.T) {
			k := newKernel()
			m, j := noted(t, k, sized(tt.backends, tt.algorithm))
			k.watch = k.whole(t, tt.backends)
			apply(t, m)
			wantWrites(t, j, tt.want...)
			if k.servers.GracePeriods() != 0 {
				t.Error("the kernel waited for a grace period")
			}
			if last := k.calls[len(k.calls)-1]; last != "write addresses" {
				t.Errorf("the last call is %q: the address was there before its server was whole", last)
			}
			apply(t, m)
			wantWrites(t, j)
		})
	}
}

// whole checks, whenever it is called, that who meets a server of many meets all of it.
func (k *kernel) whole(t *testing.T, backends int) func() {
	return func() {
		t.Helper()
		if n := len(k.weights(t)); n < backends && k.servers.Schedules(webServer) {
			t.Errorf("call %d: clients meet %d destinations of %d", len(k.calls), n, backends)
		}
	}
}

// The servers of many Services are switched on in one call, the small ones not at all.
func TestPublishingIsPacked(t *testing.T) {
	k := newKernel()
	plans := []model.ServicePlan{sized(3, "rr")}
	for i := range 3 {
		plans = append(plans, with(sized(20, "rr"), func(f *model.Frontend) {
			f.Service.Name = fmt.Sprintf("big-%d", i)
			f.Key.Addr = netip.AddrFrom4([4]byte{10, 96, 1, byte(i)})
		}))
		plans[i+1].ID = plans[i+1].Frontends[0].Service
	}
	m, j := noted(t, k, plans...)
	apply(t, m)
	wantWrites(t, j, "add rr, add rr staged, add rr staged, add rr staged", "63 destinations", "update rr, update rr, update rr")
}

// finish makes a mode repair the rest of a failure, and compares with a kernel where
// nothing ever failed.
func finish(t *testing.T, k, clean *kernel, m *ipvs.Mode) {
	t.Helper()
	for range 3 {
		m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
	}
	apply(t, m)
	if diff := cmp.Diff(clean.String(), k.String()); diff != "" {
		t.Errorf("in the end (-want +got):\n%s", diff)
	}
}

// Each call fails once, or its answer is lost.
func TestPublishingWhateverFails(t *testing.T) {
	plan := sized(20, "mh")
	clean := newKernel()
	m, j := noted(t, clean, plan)
	apply(t, m)
	for n := 1; n <= len(clean.calls); n++ {
		t.Run(fmt.Sprintf("call %d fails", n), func(t *testing.T) {
			k := newKernel()
			m := ipvs.New(zaptest.NewLogger(t), config(), k.deps())
			m.SetHost(host())
			m.Set(plan)
			k.failAt = n
			for range 2 { // the first may fail
				if errors.Join(m.Start(t.Context()), m.Load(t.Context())) == nil {
					m.Apply(t.Context(), dataplane.ApplyOptions{})
				}
			}
			finish(t, k, clean, m)
		})
	}
	for n := range j.lines {
		t.Run(fmt.Sprintf("answer of write %d lost", n+1), func(t *testing.T) {
			k := newKernel()
			m, j := noted(t, k, plan)
			j.lose = n + 1
			m.Apply(t.Context(), dataplane.ApplyOptions{})
			finish(t, k, clean, m)
		})
	}
}

// The process dies in each call, between the writes of destinations too: clients never meet
// a part of them, not even through its successor.
func TestPublishingWhereverItDies(t *testing.T) {
	const backends = 1100
	plan := sized(backends, "mh")
	clean := newKernel()
	apply(t, begin(t, clean, plan))
	writes := slices.IndexFunc(clean.calls, func(c string) bool { return c == "write servers" })
	for n := writes; n <= len(clean.calls); n++ {
		t.Run(fmt.Sprintf("in call %d, %s", n, clean.calls[n-1]), func(t *testing.T) {
			k := newKernel()
			k.diesAt, k.watch = n, k.whole(t, backends)
			begin(t, k, plan).Apply(t.Context(), dataplane.ApplyOptions{})
			k.diesAt = 0
			finish(t, k, clean, begin(t, k, plan))
		})
	}
}

// A process that died left a server dark. The next one finds it to be its own, whatever is
// wanted of it by then, and whether all input can be read.
func TestDarkServerIsFound(t *testing.T) {
	const backends = 20
	left := func(t *testing.T) *kernel {
		k := newKernel()
		m, _ := noted(t, k, sized(backends, "rr"))
		k.watch = func() {
			if k.diesAt == 0 && len(k.calls) > 0 && k.calls[len(k.calls)-1] == "write servers" {
				k.diesAt = len(k.calls) + 1
			}
		}
		m.Apply(t.Context(), dataplane.ApplyOptions{})
		k.diesAt, k.watch = 0, nil
		if got := k.servers.String(); got != "-A -t 10.96.0.10:80 -s none\n" {
			t.Fatalf("left behind: %s", got)
		}
		return k
	}
	t.Run("wanted", func(t *testing.T) {
		k := left(t)
		m, j := noted(t, k, sized(backends, "rr"))
		k.watch = k.whole(t, backends)
		r := m.Apply(t.Context(), dataplane.ApplyOptions{KeepOrphans: true})
		if r.Pending != 0 {
			t.Errorf("%d rows pending", r.Pending)
		}
		wantWrites(t, j, "20 destinations", "update rr")
	})
	t.Run("wanted with few", func(t *testing.T) {
		k := left(t)
		m, j := noted(t, k, sized(2, "wlc"))
		apply(t, m)
		wantWrites(t, j, "2 destinations", "update wlc")
		if k.servers.GracePeriods() != 0 || len(k.held()) != 0 {
			t.Error("the kernel waited for a grace period, or clients are held")
		}
	})
	t.Run("not wanted", func(t *testing.T) {
		k := left(t)
		apply(t, begin(t, k))
		if got := k.servers.String(); got != "" {
			t.Errorf("still there: %s", got)
		}
	})
}

// A server that another program left without a scheduler is drift, and its destinations are written
// first.
func TestAuditSwitchesOn(t *testing.T) {
	k := newKernel()
	m, j := noted(t, k, sized(3, "rr"))
	apply(t, m)
	j.lines = nil
	mustWrite(t, k.servers.WriteServers(t.Context(), []vserver.ServerChange{{Op: vserver.Update, Key: webServer, Server: vserver.Server{Scheduler: "none"}}}))
	mustWrite(t, k.servers.WriteDestinations(t.Context(), []vserver.DestinationChange{{Op: vserver.Delete, Key: destination("10.244.1.2:8080")}}))
	drifted := 0
	for done := false; !done; {
		a, err := m.Audit(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		drifted, done = drifted+a.Drift.Total(), a.Done
	}
	if drifted != 2 {
		t.Errorf("%d rows drifted, want the server and a destination", drifted)
	}
	apply(t, m)
	wantWrites(t, j, "1 destinations", "update rr")
}

// A destination that is refused does not keep the others dark, nor does it have the server
// switched again and again.
func TestRefusedDestinationLeavesTheServiceServing(t *testing.T) {
	k := newKernel()
	m, j := noted(t, k, sized(20, "rr"))
	k.servers.FailRow(destination("10.244.1.7:8080"), errPlanned)
	r := m.Apply(t.Context(), dataplane.ApplyOptions{})
	if got := r.Total().Failed; got != 1 || r.Pending != 1 {
		t.Errorf("%d rows failed, %d pending; want one", got, r.Pending)
	}
	if !k.servers.Schedules(webServer) || len(k.weights(t)) != 19 {
		t.Errorf("not served by the others: %s", k.servers)
	}
	wantWrites(t, j, "add rr staged", "20 destinations", "update rr")
	m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
	wantWrites(t, j, "1 destinations")
}

// A kernel that knows no "none" is asked twice, once for all.
func TestKernelThatCannotStage(t *testing.T) {
	k := newKernel()
	k.servers.RefuseStaging()
	m, j := noted(t, k, sized(20, "rr"))
	apply(t, m)
	wantWrites(t, j, "add rr staged", "add rr staged", "add rr", "20 destinations")
	m.Set(gone("web"))
	apply(t, m)
	j.lines = nil
	m.Set(sized(20, "mh"))
	apply(t, m)
	wantWrites(t, j, "add mh", "20 destinations")
}

// onceRefused is a kernel whose module was loaded again: the first call goes to a family that does
// not exist any more.
type onceRefused struct {
	ipvs.Servers
	done bool
}

func (o *onceRefused) WriteServers(ctx context.Context, changes []vserver.ServerChange) []error {
	if !o.done {
		o.done = true
		return many(len(changes), vserver.ErrNoStaging)
	}
	return o.Servers.WriteServers(ctx, changes)
}

func TestOneRefusalIsNoProof(t *testing.T) {
	k := newKernel()
	m, j := noted(t, k, sized(20, "rr"))
	j.Servers = &onceRefused{Servers: j.Servers}
	apply(t, m)
	wantWrites(t, j, "add rr staged", "add rr staged", "20 destinations", "update rr")
}

// A scheduler that the kernel lacks does not end staging, and no address is bound for a server
// without a scheduler.
func TestMissingSchedulerOfAStagedServer(t *testing.T) {
	k := newKernel()
	k.servers.SetSchedulers("rr")
	m, j := noted(t, k, sized(20, "mh"))
	for range 3 {
		r := m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
		if err := r.Total().Err(); !errors.Is(err, vserver.ErrUnsupported) {
			t.Errorf("error %v, want %v", err, vserver.ErrUnsupported)
		}
	}
	if text := k.links.String(); strings.Contains(text, vip) {
		t.Errorf("bound: %s", text)
	}
	k.servers.SetSchedulers("rr", "mh")
	j.lines = nil
	apply(t, m)
	if !k.servers.Schedules(webServer) {
		t.Errorf("not served: %s", k.servers)
	}
}

// A server that lives keeps its old way: held while it has no scheduler, and paced.
func TestLiveServerIsNotStaged(t *testing.T) {
	k := newKernel()
	m, j := noted(t, k, sized(20, "rr"))
	apply(t, m)
	j.lines = nil
	held := map[string]string{}
	j.before = func(line string) { held[line] = strings.Join(k.held(), " ") }
	m.Set(sized(20, "mh"))
	apply(t, m)
	wantWrites(t, j, "update mh")
	if diff := cmp.Diff(map[string]string{"update mh": "10.96.0.10,tcp:80"}, held); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
	if n := k.servers.GracePeriods(); n != 1 {
		t.Errorf("%d grace periods, want one", n)
	}
}

// A process that is told to end while it fills a server does not leave it dark.
func TestToldToEndWhileFilling(t *testing.T) {
	k := newKernel()
	m, j := noted(t, k, sized(1500, "rr"))
	ctx, cancel := context.WithCancel(t.Context())
	batches := 0
	j.before = func(line string) {
		if strings.HasSuffix(line, "destinations") {
			if batches++; batches == 2 {
				cancel()
			}
		}
	}
	m.Apply(ctx, dataplane.ApplyOptions{})
	if n := len(k.weights(t)); batches != 2 || n == 0 || n == 1500 {
		t.Fatalf("%d batches, %d destinations: not ended while filling", batches, n)
	}
	if !k.servers.Schedules(webServer) {
		t.Error("left dark")
	}
}
