package conntrack_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/conntrack"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/conntrack/conntracktest"
)

// rig is a Sweeper over a fake table, in a bubble of time.
type rig struct {
	*conntrack.Sweeper
	table *conntracktest.Fake
	logs  *observer.ObservedLogs
	start time.Time
	stop  func()

	mu  sync.Mutex
	ran []string // each sweep: when it ended, its family, how many keys, how it went
}

func newRig(t *testing.T, opts conntrack.SweeperOptions) *rig {
	t.Helper()
	core, logs := observer.New(zapcore.InfoLevel)
	r := &rig{table: conntracktest.New(), logs: logs, start: time.Now()}
	opts.Observed = func(family uint8, _ time.Duration, out conntrack.Outcome, err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		sweeps := r.table.Sweeps()
		word := fmt.Sprintf("%d deleted", out.Deleted)
		if err != nil {
			word = "failed"
		}
		r.ran = append(r.ran, fmt.Sprintf("%s IPv%d, %d keys: %s", time.Since(r.start), family, len(sweeps[len(sweeps)-1]), word))
	}
	r.Sweeper = conntrack.NewSweeper(zap.New(core), r.table, opts)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	r.stop = func() { cancel(); running.Wait() }
	t.Cleanup(r.stop)
	return r
}

// after lets time pass and returns the sweeps since the last call.
func (r *rig) after(d time.Duration) []string {
	time.Sleep(d)
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.ran
	r.ran = nil
	return out
}

func (r *rig) want(t *testing.T, after time.Duration, sweeps ...string) {
	t.Helper()
	if diff := cmp.Diff(append([]string{}, sweeps...), append([]string{}, r.after(after)...)); diff != "" {
		t.Errorf("sweeps (-want +got):\n%s", diff)
	}
}

func (r *rig) add(t *testing.T, flows ...conntracktest.Flow) {
	t.Helper()
	if err := r.table.Add(flows...); err != nil {
		t.Fatal(err)
	}
}

func TestOrdersWaitForCompany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, conntrack.SweeperOptions{})
		r.add(t, from(dns, "10.244.0.1:4001", "10.244.9.9:53"), from(dns6, "[fd00::1]:4001", "[fd00::9]:53"))
		r.Order(keep(dns))
		time.Sleep(10 * time.Millisecond)
		r.Order(keep(key("10.96.0.11:53")), keep(dns6))
		if got := r.Stats(); got.Waiting != 3 {
			t.Errorf("Stats = %+v, want 3 waiting", got)
		}
		r.want(t, time.Second, "20ms IPv4, 2 keys: 1 deleted", "30ms IPv6, 1 keys: 1 deleted")
		want := conntrack.Stats{IPv4: conntrack.FamilyStats{Sweeps: 1, Deleted: 1}, IPv6: conntrack.FamilyStats{Sweeps: 1, Deleted: 1}}
		if got := r.Stats(); got != want {
			t.Errorf("Stats = %+v, want %+v", got, want)
		}
		r.want(t, time.Hour)
	})
}

func TestOrdersBeforeRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := conntracktest.New()
		s := conntrack.NewSweeper(zap.NewNop(), table, conntrack.SweeperOptions{})
		s.Order(keep(dns), conntrack.Order{}) // the second one is for nothing
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Run(ctx); err != nil || len(table.Sweeps()) != 1 || s.Stats().Waiting != 0 {
			t.Errorf("Run: %v, %d sweeps, %+v", err, len(table.Sweeps()), s.Stats())
		}
	})
}

func TestNewerOrderReplaces(t *testing.T) {
	for name, tt := range map[string]struct {
		older, newer conntrack.Order
		deleted      int
	}{
		"kept after unserved": {unserved(dns), keep(dns, "10.244.1.1:53"), 0},
		"unserved after kept": {keep(dns, "10.244.1.1:53"), unserved(dns), 1},
		"another endpoint":    {keep(dns, "10.244.1.1:53"), keep(dns, "10.244.1.2:53"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, conntrack.SweeperOptions{})
				r.add(t, from(dns, "10.244.0.1:4001", "10.244.1.1:53"))
				r.Order(tt.older)
				r.Order(tt.newer)
				r.want(t, time.Second, fmt.Sprintf("20ms IPv4, 1 keys: %d deleted", tt.deleted))
			})
		})
	}
}

// TestFreshOfAReplacedOrder: a fresh address stays fresh where its order was replaced
// before it was carried out.
func TestFreshOfAReplacedOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, conntrack.SweeperOptions{})
		for _, backend := range []string{"10.244.1.1:53", "10.244.1.2:53", "10.244.1.3:53"} {
			r.add(t, late(backend, "10.244.0.1:4001"))
		}
		one, two := keep(dns, "10.244.1.1:53"), keep(dns, "10.244.1.1:53", "10.244.1.2:53")
		one.Fresh, two.Fresh = one.Keep, two.Keep[1:]
		r.Order(one)
		r.Order(two)
		r.Order(keep(dns, "10.244.1.1:53", "10.244.1.2:53"))
		r.want(t, time.Second, "20ms IPv4, 1 keys: 2 deleted")
		if !slices.Equal(one.Fresh, one.Keep) || len(two.Fresh) != 1 {
			t.Errorf("the caller's own orders changed: %v, %v", one, two)
		}
		r.table.FailNth(1, errors.New("no"))
		r.add(t, late("10.244.1.2:53", "10.244.0.1:4001"))
		r.Order(two)
		r.want(t, 2*time.Second, "1.02s IPv4, 1 keys: failed", "2.02s IPv4, 1 keys: 1 deleted")
	})
}

// TestFreshOfAnOrderThatFails: nor is it dropped where the order is replaced while the sweep
// runs, which fails.
func TestFreshOfAnOrderThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := conntracktest.New()
		if err := table.Add(late("10.244.1.1:53", "10.244.0.1:4001")); err != nil {
			t.Fatal(err)
		}
		var once sync.Once
		s := conntrack.NewSweeper(zap.NewNop(), tableFunc(func(ctx context.Context, orders []conntrack.Order) (out conntrack.Outcome, err error) {
			once.Do(func() {
				time.Sleep(100 * time.Millisecond)
				err = errors.New("no")
			})
			if err == nil {
				out, err = table.Sweep(ctx, orders)
			}
			return out, err
		}), conntrack.SweeperOptions{})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		one := keep(dns, "10.244.1.1:53")
		one.Fresh = one.Keep
		s.Order(one)
		go func() {
			time.Sleep(50 * time.Millisecond)
			s.Order(keep(dns, "10.244.1.1:53"))
		}()
		if err := s.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if got, _ := table.Flows(); len(got) > 0 {
			t.Errorf("left: %v", got)
		}
	})
}

// TestFailedSweepIsRepeated: after 1 s, twice as long after each failure, 30 s at
// most, and it is said once.
func TestFailedSweepIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, conntrack.SweeperOptions{})
		r.add(t, from(dns, "10.244.0.1:4001", "10.244.9.9:53"))
		r.table.FailAlways(errors.New("no"))
		r.Order(keep(dns))
		var want []string
		at := 20 * time.Millisecond
		for _, seconds := range []int{1, 2, 4, 8, 16, 30, 30} {
			want = append(want, fmt.Sprintf("%s IPv4, 1 keys: failed", at))
			at += time.Duration(seconds) * time.Second
		}
		r.want(t, at-time.Millisecond, want...)
		if n := r.logs.FilterLevelExact(zapcore.WarnLevel).Len(); n != 1 {
			t.Errorf("%d warnings, want one", n)
		}
		r.table.FailAlways(errors.New("something else"))
		r.want(t, time.Second, at.String()+" IPv4, 1 keys: failed")
		if n := r.logs.FilterLevelExact(zapcore.WarnLevel).Len(); n != 2 {
			t.Errorf("%d warnings after another error, want two", n)
		}
		if got := r.Stats(); got.Waiting != 1 || got.IPv4.Failures != 8 {
			t.Errorf("Stats = %+v", got)
		}
		r.table.Heal()
		r.want(t, time.Minute, (at+30*time.Second).String()+" IPv4, 1 keys: 1 deleted")
		if n := r.logs.FilterMessage("stale flows can be removed again").Len(); n != 1 {
			t.Errorf("said %d times that it works again", n)
		}
		r.want(t, time.Hour)
	})
}

// TestNewOrdersAfterFailures are tried soon, with what failed, but not at once.
func TestNewOrdersAfterFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, conntrack.SweeperOptions{})
		r.table.FailAlways(errors.New("no"))
		r.Order(keep(dns))
		r.after(20 * time.Second) // the fifth failure was at 15.02 s, the next try is due at 31.02 s
		r.Order(keep(key("10.96.0.11:53")))
		r.want(t, time.Second, "20.02s IPv4, 2 keys: failed")
		r.Order(keep(dns))
		r.want(t, time.Second, "21.02s IPv4, 2 keys: failed")
		r.Order(keep(dns6)) // another family has no failures
		r.want(t, time.Second, "22.02s IPv6, 1 keys: failed")
	})
}

// TestNewerOrderSurvivesAFailure: a failed order does not replace one that was
// given meanwhile.
func TestNewerOrderSurvivesAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, conntrack.SweeperOptions{})
		good := from(dns, "10.244.0.1:4001", "10.244.1.1:53")
		r.add(t, good)
		var once sync.Once
		slow := tableFunc(func(ctx context.Context, orders []conntrack.Order) (out conntrack.Outcome, err error) {
			once.Do(func() {
				time.Sleep(100 * time.Millisecond)
				err = errors.New("no")
			})
			if err == nil {
				out, err = r.table.Sweep(ctx, orders)
			}
			return out, err
		})
		s := conntrack.NewSweeper(zap.NewNop(), slow, conntrack.SweeperOptions{})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		s.Order(unserved(dns), unserved(key("10.96.0.11:53")))
		go func() {
			time.Sleep(50 * time.Millisecond)
			if n := s.Stats().Waiting; n != 2 {
				t.Errorf("%d wait, want the two under way", n)
			}
			s.Order(keep(dns, "10.244.1.1:53"))
		}()
		if err := s.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
		if got, _ := r.table.Flows(); !slices.Equal(got, []conntracktest.Flow{good}) {
			t.Errorf("flows %v: the older order was carried out", got)
		}
		if got := r.table.Sweeps(); len(got) != 1 || len(got[0]) != 2 {
			t.Errorf("sweeps %v, want one of both keys", got)
		}
	})
}

type tableFunc func(context.Context, []conntrack.Order) (conntrack.Outcome, error)

func (f tableFunc) Sweep(ctx context.Context, orders []conntrack.Order) (conntrack.Outcome, error) {
	return f(ctx, orders)
}

// TestFullDumpsKeepApart: at most one a second, in pieces of 4,096 keys, and a
// change of a few ports does not wait for them.
func TestFullDumpsKeepApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, conntrack.SweeperOptions{})
		var orders []conntrack.Order
		for i := range 10_000 {
			orders = append(orders, keep(key(fmt.Sprintf("10.96.%d.%d:%d", i/250, i%250, 53+i%10))))
		}
		r.Order(orders...)
		r.want(t, 500*time.Millisecond, "20ms IPv4, 4096 keys: 0 deleted")
		r.Order(keep(dns6))
		r.want(t, 4*time.Second, "520ms IPv6, 1 keys: 0 deleted", "1.02s IPv4, 4096 keys: 0 deleted", "2.02s IPv4, 1808 keys: 0 deleted")
		// The last full dump is long ago.
		r.Order(orders[:5]...)
		r.want(t, time.Second, "4.52s IPv4, 5 keys: 0 deleted")
	})
}

// TestShortSweepPassesALongOne: while all flows are read for many keys, a change of
// one is carried out, and what the long one was told of it counts no more.
func TestShortSweepPassesALongOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var ran []string
		start := time.Now()
		said := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			ran = append(ran, time.Since(start).String()+": "+fmt.Sprintf(format, args...))
		}
		var long atomic.Bool
		first := tableFunc(func(ctx context.Context, orders []conntrack.Order) (conntrack.Outcome, error) {
			if len(orders) > 1 && long.CompareAndSwap(false, true) {
				time.Sleep(5 * time.Second)
				said("%d keys fail", len(orders))
				return conntrack.Outcome{}, errors.New("no")
			}
			said("%d keys, the first is %s", len(orders), orders[0].Key)
			return conntrack.Outcome{}, nil
		})
		s := conntrack.NewSweeper(zap.NewNop(), first, conntrack.SweeperOptions{})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		orders := manyOrders()
		s.Order(orders...)
		time.AfterFunc(time.Second, func() { s.Order(keep(dns, "10.244.1.1:53")) })
		time.AfterFunc(2*time.Second, func() {
			for i := range orders { // many again: they wait for the end of the long one, and its failure is theirs
				s.Order(keep(key(fmt.Sprintf("10.96.2.2:%d", 100+i))))
			}
		})
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
		want := []string{
			"1.02s: 1 keys, the first is 10.96.0.10:53/udp",
			"5.02s: 5 keys fail",
			"6.02s: 9 keys, the first is 10.96.1.1:54/udp",
		}
		if diff := cmp.Diff(want, ran); diff != "" {
			t.Errorf("sweeps (-want +got):\n%s", diff)
		}
	})
}

// TestLongSweepsOfBothFamiliesTakeTurns checks that the whole table is read for one family at a time.
func TestLongSweepsOfBothFamiliesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most, sweeps atomic.Int64
		long := tableFunc(func(context.Context, []conntrack.Order) (conntrack.Outcome, error) {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			sweeps.Add(1)
			time.Sleep(5 * time.Second)
			return conntrack.Outcome{}, nil
		})
		s := conntrack.NewSweeper(zap.NewNop(), long, conntrack.SweeperOptions{})
		for i := range 10 {
			s.Order(keep(key(fmt.Sprintf("10.96.1.1:%d", 53+i))), keep(key(fmt.Sprintf("[fd00:96::1]:%d", 53+i))))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
		if sweeps.Load() != 2 || most.Load() != 1 {
			t.Errorf("%d sweeps, %d of them at a time, want 2, one after the other", sweeps.Load(), most.Load())
		}
	})
}

// TestRunEndsWithItsContext: also in the middle of a sweep, which is no failure.
func TestRunEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, conntrack.SweeperOptions{})
		r.table.Hang()
		r.Order(keep(dns))
		r.want(t, time.Minute)
		r.stop()
		if got := r.Stats(); got.Waiting != 1 || got.IPv4.Failures != 0 || r.logs.Len() != 0 {
			t.Errorf("Stats = %+v, logs %v", got, r.logs.All())
		}
	})
}

// TestSlowSweepsLeaveRoom: under a stream of orders the table is not looked through
// without a pause.
func TestSlowSweepsLeaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sweeps := 0
		slow := tableFunc(func(context.Context, []conntrack.Order) (conntrack.Outcome, error) {
			sweeps++
			time.Sleep(250 * time.Millisecond)
			return conntrack.Outcome{}, nil
		})
		s := conntrack.NewSweeper(zap.NewNop(), slow, conntrack.SweeperOptions{})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var giver sync.WaitGroup
		giver.Go(func() {
			for ctx.Err() == nil {
				s.Order(keep(dns))
				time.Sleep(time.Millisecond)
			}
		})
		defer giver.Wait()
		if err := s.Run(ctx); err != nil || sweeps < 19 || sweeps > 20 {
			t.Errorf("Run: %v, %d sweeps of 250 ms in 10 s, want half of the time", err, sweeps)
		}
	})
}

// TestOrderFromEverywhere: orders come from many goroutines, each is carried out.
func TestOrderFromEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, conntrack.SweeperOptions{})
		var givers sync.WaitGroup
		for g := range 20 {
			givers.Go(func() {
				for i := range 100 {
					r.Order(keep(key(fmt.Sprintf("10.96.%d.%d:53", g, i))))
					r.Stats()
				}
			})
		}
		givers.Wait()
		r.after(10 * time.Second)
		swept := map[conntrack.Key]bool{}
		for _, sweep := range r.table.Sweeps() {
			for _, o := range sweep {
				swept[o.Key] = true
			}
		}
		if len(swept) != 2000 || r.Stats().Waiting != 0 {
			t.Errorf("%d keys were swept, want 2000; %+v", len(swept), r.Stats())
		}
	})
}

// longTable takes its time for each sweep.
type longTable struct{}

func (l *longTable) Sweep(context.Context, []conntrack.Order) (conntrack.Outcome, error) {
	time.Sleep(100 * time.Millisecond)
	return conntrack.Outcome{}, nil
}

// TestOrdersThatSpareConnectionsRest: while endpoints come and go all the time, those orders take a tenth of it, and others do
// not wait for them.
func TestOrdersThatSpareConnectionsRest(t *testing.T) {
	for name, tt := range map[string]struct {
		order       conntrack.Order
		least, most int
	}{
		"connections": {conntrack.Order{Key: of(conntrack.ProtocolTCP, dns), Connections: true}, 8, 11},
		"datagrams":   {keep(dns), 40, 60},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := conntrack.NewSweeper(zap.NewNop(), &longTable{}, conntrack.SweeperOptions{})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { done <- s.Run(ctx) }()
				for range 1000 {
					s.Order(tt.order)
					time.Sleep(10 * time.Millisecond) // on the clock of the bubble
				}
				if n := int(s.Stats().IPv4.Sweeps); n < tt.least || n > tt.most {
					t.Errorf("%d sweeps in 10 s, want %d to %d", n, tt.least, tt.most)
				}
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
