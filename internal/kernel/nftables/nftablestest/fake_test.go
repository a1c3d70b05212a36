package nftablestest

import (
	"context"
	"errors"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
)

func TestFakeContract(t *testing.T) {
	Contract(t, func(*testing.T) Subject {
		f := New()
		add := func(_ *testing.T, keys ...nftables.Key) { f.Add(keys...) }
		return Subject{
			Client: f,
			Add:    add,
			Fill:   func(t *testing.T, k nftables.Key) { add(t, k) },
			Own: func(_ *testing.T, k nftables.Key) {
				f.Add(k)
				f.Keep(k, fs.ErrPermission)
			},
			Readers: map[string]func(*testing.T) string{"String": func(*testing.T) string { return f.String() }},
		}
	})
}

var errPlanned = errors.New("planned")

func TestFakeFailsAsPlanned(t *testing.T) {
	ctx := context.Background()
	tests := []struct {
		name string
		plan func(*Fake)
		want []bool // whether a list, a deletion, a list fail
	}{
		{"nothing", func(*Fake) {}, []bool{false, false, false}},
		{"the next call", func(f *Fake) { f.FailCall(1, errPlanned) }, []bool{true, false, false}},
		{"the second call", func(f *Fake) { f.FailCall(2, errPlanned) }, []bool{false, true, false}},
		{"always", func(f *Fake) { f.FailAlways(errPlanned) }, []bool{true, true, true}},
		{"this table", func(f *Fake) { f.Keep(six, errPlanned) }, []bool{false, true, false}},
		{"another table", func(f *Fake) { f.Keep(other, errPlanned) }, []bool{false, false, false}},
		{"healed", func(f *Fake) { f.FailAlways(errPlanned); f.Keep(six, errPlanned); f.HangCall(1); f.Heal() }, []bool{false, false, false}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := New(four, six)
			tt.plan(f)
			_, first := f.List(ctx)
			errs := f.Delete(ctx, []nftables.Key{four, six})
			_, last := f.List(ctx)
			for i, err := range []error{first, errors.Join(errs...), last} {
				if failed := errors.Is(err, errPlanned); failed != tt.want[i] || (err == nil) == tt.want[i] {
					t.Errorf("call %d: %v, want a failure: %v", i+1, err, tt.want[i])
				}
			}
			if f.Calls() != 3 {
				t.Errorf("%d calls, want 3", f.Calls())
			}
			if gone := f.String() == ""; gone == tt.want[1] {
				t.Errorf("tables after a deletion that failed: %v:\n%s", tt.want[1], f)
			}
		})
	}
}

func TestFakeHangsUntilTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(four)
		f.HangCall(1)
		start := time.Now()
		errs := f.Delete(context.Background(), []nftables.Key{four})
		if len(errs) != 1 || !errors.Is(errs[0], nftables.ErrBusy) || !errors.Is(errs[0], context.DeadlineExceeded) {
			t.Errorf("errors %v", errs)
		}
		if took := time.Since(start); took != hangTime || f.String() != "table ip kube-proxy\n" {
			t.Errorf("after %s:\n%s", took, f)
		}
	})
}

// A watch is told of an overrun, ends with an error when it is broken, and may be begun
// again; it calls the kernel only to begin.
func TestFakeWatchBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New()
		f.FailCall(2, errPlanned)
		for _, want := range []int{2, 0, 2} { // times it is told
			told, ended := 0, make(chan error, 1)
			go func() { ended <- f.Watch(t.Context(), func([]nftables.Writer) { told++ }) }()
			synctest.Wait()
			f.Overrun()
			synctest.Wait()
			f.BreakWatches(errPlanned)
			if err := <-ended; !errors.Is(err, errPlanned) || told != want {
				t.Errorf("%v after %d calls, want %v after %d", err, told, errPlanned, want)
			}
		}
		if f.Calls() != 3 {
			t.Errorf("%d calls, want 3", f.Calls())
		}
	})
}
