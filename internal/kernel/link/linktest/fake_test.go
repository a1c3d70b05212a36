package linktest_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link/linktest"
)

// That the fake answers like the kernel is the business of the contract test of
// package link; here is what only a fake can do.

var (
	errPlanned = errors.New("planned")
	first      = netip.MustParseAddr("10.96.0.1")
	second     = netip.MustParseAddr("10.96.0.2")
)

func bound(t *testing.T, addrs ...netip.Addr) *linktest.Fake {
	t.Helper()
	f := linktest.New()
	if _, err := f.Ensure(t.Context()); err != nil {
		t.Fatalf("Ensure: %v", err)
	}
	if errs := f.Write(t.Context(), adds(addrs...)); errs != nil {
		t.Fatalf("Write: %v", errs)
	}
	return f
}

func adds(addrs ...netip.Addr) []link.Change {
	var rows []link.Change
	for _, a := range addrs {
		rows = append(rows, link.Change{Op: link.Add, Addr: a})
	}
	return rows
}

// calls makes every call once and returns what came of each.
func calls(ctx context.Context, f *linktest.Fake) map[linktest.Call]error {
	_, ensure := f.Ensure(ctx)
	_, list := f.List(ctx)
	_, local := f.Local(ctx)
	_, gateways := f.Gateways(ctx)
	_, listRoutes := f.ListRoutes(ctx)
	return map[linktest.Call]error{
		linktest.Ensure: ensure, linktest.List: list, linktest.Local: local, linktest.Gateways: gateways,
		linktest.Write: errors.Join(f.Write(ctx, adds(second))...), linktest.ListRoutes: listRoutes,
		linktest.WriteRoutes: errors.Join(f.WriteRoutes(ctx, []link.RouteChange{{Op: link.Add, Prefix: netip.MustParsePrefix("10.96.0.0/16")}})...),
	}
}

func TestFailNth(t *testing.T) {
	for _, call := range []linktest.Call{linktest.Ensure, linktest.List, linktest.Local, linktest.Gateways, linktest.Write, linktest.ListRoutes, linktest.WriteRoutes} {
		t.Run(string(call), func(t *testing.T) {
			f := bound(t, first)
			f.FailNth(call, 2, errPlanned)
			for round := 1; round <= 3; round++ {
				for c, err := range calls(t.Context(), f) {
					if want := c == call && round == 2; want != errors.Is(err, errPlanned) || !want && err != nil {
						t.Errorf("round %d: %s: %v, want planned failure: %v", round, c, err, want)
					}
				}
			}
		})
	}
}

func TestFailAlwaysUntilHeal(t *testing.T) {
	f := bound(t, first)
	f.FailAlways(linktest.Remove, errPlanned)
	for range 3 {
		if err := f.Remove(t.Context()); !errors.Is(err, errPlanned) {
			t.Errorf("Remove: %v, want %v", err, errPlanned)
		}
	}
	f.Heal()
	if err := f.Remove(t.Context()); err != nil {
		t.Errorf("Remove after Heal: %v", err)
	}
	if got := f.Calls(linktest.Remove); got != 4 {
		t.Errorf("%d calls of Remove, want 4", got)
	}
}

func TestFailedWriteAppliesNothing(t *testing.T) {
	f := bound(t, first)
	f.FailNth(linktest.Write, 1, errPlanned)
	errs := f.Write(t.Context(), adds(second, first))
	if len(errs) != 2 || !errors.Is(errs[0], errPlanned) || !errors.Is(errs[1], errPlanned) {
		t.Errorf("Write = %v, want the failure in every row", errs)
	}
	wantText(t, f, "ip addr add 10.96.0.1/32 dev kube-ipvs0\n")
}

func TestFailAddrLeavesNeighbours(t *testing.T) {
	f := bound(t)
	f.FailAddr(first, link.ErrUnsupported)
	errs := f.Write(t.Context(), adds(first, second))
	if len(errs) != 2 || !errors.Is(errs[0], link.ErrUnsupported) || errs[1] != nil {
		t.Errorf("Write = %v, want the first row refused", errs)
	}
	wantText(t, f, "ip addr add 10.96.0.2/32 dev kube-ipvs0\n")
	if diff := cmp.Diff([]string{"add 10.96.0.2/32"}, applied(f)); diff != "" {
		t.Errorf("applied rows (-want +got):\n%s", diff)
	}
	if got := f.Counters(); got.Rows != 2 || got.Failed != 1 {
		t.Errorf("Counters = %+v, want 2 rows, 1 failed", got)
	}
}

func TestHideShortensLists(t *testing.T) {
	f := bound(t, first, second)
	f.Hide(first)
	got, err := f.List(t.Context())
	if _, there := got[second]; err != nil || len(got) != 1 || !there {
		t.Errorf("List = %v, %v, want only %s", got, err, second)
	}
	f.Heal()
	if got, _ = f.List(t.Context()); len(got) != 2 {
		t.Errorf("List after Heal = %v, want both", got)
	}
}

func TestHangEndsAtDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := bound(t, first)
		f.Hang(linktest.List)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start := time.Now()
		got, err := f.List(ctx)
		if got != nil || !errors.Is(err, link.ErrBusy) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("List = %v, %v, want busy at the deadline", got, err)
		}
		if waited := time.Since(start); waited != 5*time.Second {
			t.Errorf("List waited %s, want 5s", waited)
		}
		if got := f.Counters().Timeouts; got != 1 {
			t.Errorf("%d time-outs, want 1", got)
		}
	})
}

func TestListIsACopy(t *testing.T) {
	f := bound(t, first)
	got, err := f.List(t.Context())
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	clear(got)
	wantText(t, f, "ip addr add 10.96.0.1/32 dev kube-ipvs0\n")
}

func TestWithoutDummy(t *testing.T) {
	f := linktest.New()
	f.WithoutDummy()
	if _, err := f.Ensure(t.Context()); !errors.Is(err, link.ErrUnsupported) {
		t.Errorf("Ensure: %v, want %v", err, link.ErrUnsupported)
	}
}

func TestWatchOverrunDropsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := bound(t, first, second)
		ctx, cancel := context.WithCancel(t.Context())
		hold := make(chan struct{})
		var got []string
		ended := make(chan error, 1)
		go func() {
			ended <- f.Watch(ctx, func(e link.Event) {
				got = append(got, e.String())
				if e.Kind == link.Ready {
					<-hold
				}
			})
		}()
		synctest.Wait()
		f.LoseAddress(first)
		f.Overrun()
		f.LoseAddress(second)
		f.LoseAddress(second) // it is gone: nothing to tell
		close(hold)
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Watch: %v", err)
		}
		want := []string{"ready", "overrun", "our address lost 10.96.0.2"}
		if !slices.Equal(want, got) {
			t.Errorf("events (-want +got):\n%s", cmp.Diff(want, got))
		}
	})
}

func TestWatchCanFail(t *testing.T) {
	f := linktest.New()
	f.FailNth(linktest.Watch, 1, link.ErrBusy)
	err := f.Watch(t.Context(), func(e link.Event) { t.Errorf("event %s", e) })
	if !errors.Is(err, link.ErrBusy) {
		t.Errorf("Watch: %v, want %v", err, link.ErrBusy)
	}
}

func applied(f *linktest.Fake) []string {
	var rows []string
	for _, c := range f.Applied() {
		rows = append(rows, c.String())
	}
	return rows
}

func wantText(t *testing.T, f *linktest.Fake, want string) {
	t.Helper()
	if diff := cmp.Diff(want, f.String()); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
}
