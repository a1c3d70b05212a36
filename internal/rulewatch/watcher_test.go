package rulewatch

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables/nftablestest"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// A rig is a watcher over the fake of nftables, in fake time. A flush makes jumps missing until a
// repair, unless the rig is unrepairable.
type rig struct {
	*Watcher
	tables *nftablestest.Fake
	logs   *observer.ObservedLogs

	mu             sync.Mutex
	gone           bool
	unrepairable   bool
	looks, repairs []time.Duration // when, since the beginning
	began          time.Time
	during         func() // runs in each look
}

func newRig() *rig {
	core, logs := observer.New(zap.DebugLevel)
	p := &rig{tables: nftablestest.New(), logs: logs, began: time.Now()}
	own := &TrackedRules{generation: func(ctx context.Context) (uint64, error) {
		n, err := p.tables.Generation(ctx)
		return uint64(n) + 1, err
	}}
	p.Watcher = newWatcher(zap.New(core), own, watchedJumps([]rules.Family{rules.IPv4}))
	p.watch, p.poll = p.tables.Watch, minPollInterval
	p.missing, p.repair = p.readMissing, p.repairAll
	return p
}

func (p *rig) readMissing(context.Context, []rules.JumpKey) ([]rules.JumpKey, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.looks = append(p.looks, time.Since(p.began))
	if p.during != nil {
		p.during()
	}
	if p.gone {
		return p.jumps[:2], nil
	}
	return nil, nil
}

func (p *rig) repairAll(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.repairs = append(p.repairs, time.Since(p.began))
	if p.unrepairable {
		return errors.New("refused")
	}
	p.gone = false
	p.tables.Change()
	return nil
}

// flush removes jumps as another program does.
func (p *rig) flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
	p.tables.Change()
}

// beside runs f beside the watcher in fake time, after its first look.
func beside(t *testing.T, f func(p *rig)) {
	t.Helper()
	besideAs(t, func(*rig) {}, f)
}

func besideAs(t *testing.T, prepare, f func(p *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newRig()
		prepare(p)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.Run(ctx)
		}()
		time.Sleep(2 * minPollInterval)
		synctest.Wait()
		f(p)
		stop()
		<-done
	})
}

// counts waits for d and returns the looks and repairs of that time.
func (p *rig) counts(d time.Duration) (looks, repairs int) {
	p.mu.Lock()
	looks, repairs = len(p.looks), len(p.repairs)
	p.mu.Unlock()
	time.Sleep(d)
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.looks) - looks, len(p.repairs) - repairs
}

// TestFlushIsRepairedOnNotification: one notification causes one look and one repair at once.
func TestFlushIsRepairedOnNotification(t *testing.T) {
	beside(t, func(p *rig) {
		p.counts(10 * time.Second)
		p.flush()
		if looks, repairs := p.counts(0); looks != 1 || repairs != 1 {
			t.Errorf("%d looks and %d repairs at once, want 1 and 1", looks, repairs)
		}
		if looks, repairs := p.counts(time.Minute); looks != 1 || repairs != 0 {
			t.Errorf("%d looks and %d repairs after it, want 1 and 0", looks, repairs)
		}
	})
}

// TestIdleWatcherCallsRarely counts the calls to the kernel in a minute without changes. Polling
// each half second costs 120.
func TestIdleWatcherCallsRarely(t *testing.T) {
	tests := map[string]struct {
		prepare          func(*rig)
		least, most, of5 int // calls in a minute, and in five
	}{
		"notifications": {func(*rig) {}, 1, 2, 10},
		"no notifications": {func(p *rig) {
			p.watch = func(context.Context, func([]nftables.Writer)) error { return fs.ErrPermission }
		}, 119, 121, 605},
		"legacy": {func(p *rig) { p.watch, p.poll = nil, legacyPollInterval }, 59, 61, 305},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			besideAs(t, tt.prepare, func(p *rig) {
				before := p.tables.Calls()
				looks, _ := p.counts(time.Minute)
				calls := p.tables.Calls() - before
				t.Logf("%d calls, %d looks", calls, looks)
				if calls < tt.least || calls > tt.most || looks != 0 {
					t.Errorf("%d calls and %d looks in a minute, want %d to %d and 0", calls, looks, tt.least, tt.most)
				}
				p.counts(4 * time.Minute)
				if calls = p.tables.Calls() - before; calls > tt.of5 {
					t.Errorf("%d calls in five minutes, want at most %d", calls, tt.of5)
				}
			})
		})
	}
}

// TestFloodIsFewLooks: looks are half a second apart under a flood of changes, and the last change
// gets one.
func TestFloodIsFewLooks(t *testing.T) {
	floods := map[string]func(p *rig){
		"others write":                  func(p *rig) { p.tables.Change() },
		"more than the kernel can tell": func(p *rig) { p.tables.Overrun(); p.tables.Change() },
	}
	for name, change := range floods {
		t.Run(name, func(t *testing.T) {
			beside(t, func(p *rig) {
				p.counts(time.Minute)
				before := len(p.looks)
				for range 2000 { // two seconds
					change(p)
					time.Sleep(time.Millisecond)
				}
				p.flush()
				p.counts(minPollInterval)
				looks := p.looks[before:]
				if len(looks) < 4 || len(looks) > 6 || len(p.repairs) != 1 {
					t.Errorf("looks at %v, repairs at %v; want about five, and one", looks, p.repairs)
				}
				for i := 1; i < len(looks); i++ {
					if looks[i]-looks[i-1] < minPollInterval {
						t.Errorf("looks at %v and %v", looks[i-1], looks[i])
					}
				}
			})
		})
	}
	t.Run("nothing changed", func(t *testing.T) {
		beside(t, func(p *rig) {
			for range 100 {
				p.tables.Overrun()
				time.Sleep(time.Millisecond)
			}
			if looks, _ := p.counts(time.Minute); looks != 0 {
				t.Errorf("%d looks", looks)
			}
		})
	})
}

// TestBrokenWatchIsRetried: a lost socket causes a poll, and is opened again.
func TestBrokenWatchIsRetried(t *testing.T) {
	beside(t, func(p *rig) {
		p.counts(time.Minute)
		p.tables.BreakWatches(errors.New("lost"))
		p.flush()
		if _, repairs := p.counts(minPollInterval); repairs != 1 {
			t.Errorf("%d repairs after the flush without a watch, want 1", repairs)
		}
		p.counts(2 * maxRetryInterval)
		calls := p.tables.Calls()
		p.counts(safetyPollInterval)
		if n := p.tables.Calls() - calls; n > 1 {
			t.Errorf("%d calls, want one: to watch again", n)
		}
		p.flush()
		if _, repairs := p.counts(minPollInterval); repairs != 1 {
			t.Errorf("%d repairs after the watch was retried, want 1", repairs)
		}
	})
}

// TestWatcherPollsWithoutNotifications: the watcher polls, logs that once, and tries to watch again.
func TestWatcherPollsWithoutNotifications(t *testing.T) {
	besideAs(t, func(p *rig) {
		watch := p.watch
		var tries atomic.Int32
		p.watch = func(ctx context.Context, changed func([]nftables.Writer)) error {
			if tries.Add(1) < 4 {
				return fs.ErrPermission
			}
			return watch(ctx, changed)
		}
	}, func(p *rig) {
		p.counts(10 * time.Second)
		p.flush()
		if _, repairs := p.counts(minPollInterval); repairs != 1 {
			t.Errorf("%d repairs, want 1", repairs)
		}
		p.counts(4 * maxRetryInterval)
		if n := p.logs.FilterLevelExact(zap.DebugLevel).Len(); n != 1 {
			t.Errorf("logged %d times", n)
		}
		p.flush()
		if _, repairs := p.counts(0); repairs != 1 {
			t.Errorf("%d repairs when notifications work, want 1", repairs)
		}
	})
}

// TestSafetyPoll: the safety poll finds a flush when notifications stop.
func TestSafetyPoll(t *testing.T) {
	besideAs(t, func(p *rig) {
		p.watch = func(ctx context.Context, changed func([]nftables.Writer)) error {
			changed(nil)
			<-ctx.Done()
			return nil
		}
	}, func(p *rig) {
		p.flush()
		if _, repairs := p.counts(safetyPollInterval); repairs != 1 {
			t.Errorf("%d repairs, want 1", repairs)
		}
	})
}

// TestRepairsBackOff: repairs that fail back off, even under other changes.
func TestRepairsBackOff(t *testing.T) {
	besideAs(t, func(p *rig) { p.unrepairable = true }, func(p *rig) {
		p.flush()
		for range 120 {
			p.tables.Change()
			time.Sleep(time.Second)
		}
		synctest.Wait()
		var gaps []time.Duration
		for i := 1; i < len(p.repairs); i++ {
			gaps = append(gaps, p.repairs[i]-p.repairs[i-1])
		}
		want := []time.Duration{1e9, 2e9, 4e9, 8e9, 16e9, 30e9, 30e9}
		if !slices.Equal(gaps, want) {
			t.Errorf("tried after %v, want %v", gaps, want)
		}
		p.mu.Lock()
		p.unrepairable = false
		p.mu.Unlock()
		p.counts(time.Minute)
		p.flush()
		if _, repairs := p.counts(0); repairs != 1 {
			t.Errorf("%d repairs at once when all was well again, want 1", repairs)
		}
	})
}

// TestOwnWriteIsNoFlush: a jump that the agent deletes is not lost, though the notification comes
// before the tool has ended.
func TestOwnWriteIsNoFlush(t *testing.T) {
	writes := map[string]func(p *rig){
		"under way": func(p *rig) {
			p.own.writing.Add(1)
			p.flush()
			p.counts(3 * time.Second)
			p.own.known.set(p.jumps[0], false)
			p.own.known.set(p.jumps[1], false)
			p.own.writing.Add(-1)
		},
		"begun in the middle of a look": func(p *rig) {
			p.mu.Lock()
			p.during = func() {
				p.own.jumping.Add(1)
				p.gone, p.during = true, func() {
					p.own.known.set(p.jumps[0], false)
					p.own.known.set(p.jumps[1], false)
					p.during = nil
				}
			}
			p.tables.Change()
			p.mu.Unlock()
		},
	}
	for name, write := range writes {
		t.Run(name, func(t *testing.T) {
			beside(t, func(p *rig) {
				write(p)
				looks, repairs := p.counts(time.Minute)
				if looks == 0 || len(p.repairs) != 0 {
					t.Errorf("%d looks and %d repairs after the write, %d in all; want some and none", looks, repairs, len(p.repairs))
				}
			})
		})
	}
}

// TestUnreadableGeneration: the watcher polls again after an error, and misses no flush.
func TestUnreadableGeneration(t *testing.T) {
	beside(t, func(p *rig) {
		p.tables.FailAlways(nftables.ErrBusy)
		p.flush()
		if looks, _ := p.counts(5 * time.Second); looks != 0 {
			t.Errorf("%d looks", looks)
		}
		p.tables.Heal()
		if _, repairs := p.counts(minPollInterval); repairs != 1 {
			t.Errorf("%d repairs, want 1", repairs)
		}
	})
}
