package main

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

// post is a sentry over the fake of nftables, in fake time. Jumps are missing when it is
// told so, and are there again when they are mended, unless they cannot be.
type post struct {
	*sentry
	tables *nftablestest.Fake
	logs   *observer.ObservedLogs

	mu             sync.Mutex
	gone           bool
	unmendable     bool
	looks, repairs []time.Duration // when, since the beginning
	began          time.Time
	during         func() // runs in each look
}

func newPost() *post {
	core, logs := observer.New(zap.DebugLevel)
	p := &post{tables: nftablestest.New(), logs: logs, began: time.Now()}
	own := &ownWrites{sign: func(ctx context.Context) (uint64, error) {
		n, err := p.tables.Generation(ctx)
		return uint64(n) + 1, err
	}}
	p.sentry = newSentry(zap.New(core), own, sentinels([]rules.Family{rules.IPv4}))
	p.watch, p.poll = p.tables.Watch, guardPeriod
	p.missing, p.repair = p.look, p.mend
	return p
}

func (p *post) look(context.Context, []rules.JumpKey) ([]rules.JumpKey, error) {
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

func (p *post) mend(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.repairs = append(p.repairs, time.Since(p.began))
	if p.unmendable {
		return errors.New("refused")
	}
	p.gone = false
	p.tables.Change()
	return nil
}

// flush is what somebody else does.
func (p *post) flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
	p.tables.Change()
}

// stand runs f beside the sentry in fake time, when that has looked for the first time.
func stand(t *testing.T, f func(p *post)) {
	t.Helper()
	standAs(t, func(*post) {}, f)
}

func standAs(t *testing.T, prepare, f func(p *post)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newPost()
		prepare(p)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.run(ctx)
		}()
		time.Sleep(2 * guardPeriod)
		synctest.Wait()
		f(p)
		stop()
		<-done
	})
}

// counts waits for a time and tells how many looks and repairs there were in it.
func (p *post) counts(d time.Duration) (looks, repairs int) {
	p.mu.Lock()
	looks, repairs = len(p.looks), len(p.repairs)
	p.mu.Unlock()
	time.Sleep(d)
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.looks) - looks, len(p.repairs) - repairs
}

// A flush is mended as soon as the kernel has told of it, and once.
func TestFlushIsMendedWhenTheKernelTells(t *testing.T) {
	stand(t, func(p *post) {
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

// What an agent costs that nobody disturbs, for a minute: calls to the kernel. To ask each
// half second was 120.
func TestIdleSentryCallsNobody(t *testing.T) {
	tests := map[string]struct {
		prepare          func(*post)
		least, most, of5 int // calls in a minute, and in five
	}{
		"the kernel tells": {func(*post) {}, 1, 2, 10},
		"the kernel tells not": {func(p *post) {
			p.watch = func(context.Context, func()) error { return fs.ErrPermission }
		}, 119, 121, 605},
		"legacy": {func(p *post) { p.watch, p.poll = nil, guardPoll }, 59, 61, 305},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			standAs(t, tt.prepare, func(p *post) {
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

// However much comes, looks are half a second apart; what came last is looked at.
func TestFloodIsFewLooks(t *testing.T) {
	floods := map[string]func(p *post){
		"others write":                  func(p *post) { p.tables.Change() },
		"more than the kernel can tell": func(p *post) { p.tables.Overrun(); p.tables.Change() },
	}
	for name, change := range floods {
		t.Run(name, func(t *testing.T) {
			stand(t, func(p *post) {
				p.counts(time.Minute)
				before := len(p.looks)
				for range 2000 { // two seconds
					change(p)
					time.Sleep(time.Millisecond)
				}
				p.flush()
				p.counts(guardPeriod)
				looks := p.looks[before:]
				if len(looks) < 4 || len(looks) > 6 || len(p.repairs) != 1 {
					t.Errorf("looks at %v, repairs at %v; want about five, and one", looks, p.repairs)
				}
				for i := 1; i < len(looks); i++ {
					if looks[i]-looks[i-1] < guardPeriod {
						t.Errorf("looks at %v and %v", looks[i-1], looks[i])
					}
				}
			})
		})
	}
	t.Run("nothing changed", func(t *testing.T) {
		stand(t, func(p *post) {
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

// A socket that is lost is opened again, after what may have been missed is looked at.
func TestBrokenWatchIsBegunAgain(t *testing.T) {
	stand(t, func(p *post) {
		p.counts(time.Minute)
		p.tables.BreakWatches(errors.New("lost"))
		p.flush()
		if _, repairs := p.counts(guardPeriod); repairs != 1 {
			t.Errorf("%d repairs of what came when nobody listened, want 1", repairs)
		}
		p.counts(2 * guardRest)
		calls := p.tables.Calls()
		p.counts(guardBelt)
		if n := p.tables.Calls() - calls; n > 1 {
			t.Errorf("%d calls, want one: to hear again", n)
		}
		p.flush()
		if _, repairs := p.counts(guardPeriod); repairs != 1 {
			t.Errorf("%d repairs of what came when it was begun again, want 1", repairs)
		}
	})
}

// Without notifications the sentry asks as often as it may, says so once, and tries again.
func TestDeafSentryAsks(t *testing.T) {
	standAs(t, func(p *post) {
		watch := p.watch
		var tries atomic.Int32
		p.watch = func(ctx context.Context, changed func()) error {
			if tries.Add(1) < 4 {
				return fs.ErrPermission
			}
			return watch(ctx, changed)
		}
	}, func(p *post) {
		p.counts(10 * time.Second)
		p.flush()
		if _, repairs := p.counts(guardPeriod); repairs != 1 {
			t.Errorf("%d repairs, want 1", repairs)
		}
		p.counts(4 * guardRest)
		if n := p.logs.FilterLevelExact(zap.DebugLevel).Len(); n != 1 {
			t.Errorf("said %d times", n)
		}
		p.flush()
		if _, repairs := p.counts(0); repairs != 1 {
			t.Errorf("%d repairs when it was let listen, want 1", repairs)
		}
	})
}

// Where the kernel stops to tell, a flush is found all the same.
func TestBelt(t *testing.T) {
	standAs(t, func(p *post) {
		p.watch = func(ctx context.Context, changed func()) error {
			changed()
			<-ctx.Done()
			return nil
		}
	}, func(p *post) {
		p.flush()
		if _, repairs := p.counts(guardBelt); repairs != 1 {
			t.Errorf("%d repairs, want 1", repairs)
		}
	})
}

// What cannot be mended is tried less and less, whatever else happens.
func TestUnmendableIsTriedLess(t *testing.T) {
	standAs(t, func(p *post) { p.unmendable = true }, func(p *post) {
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
		p.unmendable = false
		p.mu.Unlock()
		p.counts(time.Minute)
		p.flush()
		if _, repairs := p.counts(0); repairs != 1 {
			t.Errorf("%d repairs at once when all was well again, want 1", repairs)
		}
	})
}

// A jump that the agent takes away itself is not lost, though the kernel tells of it
// before the tool has come back.
func TestOwnWriteIsNoFlush(t *testing.T) {
	writes := map[string]func(p *post){
		"under way": func(p *post) {
			p.own.writing.Add(1)
			p.flush()
			p.counts(3 * time.Second)
			p.own.stood.set(p.jumps[0], false)
			p.own.stood.set(p.jumps[1], false)
			p.own.writing.Add(-1)
		},
		"begun in the middle of a look": func(p *post) {
			p.mu.Lock()
			p.during = func() {
				p.own.jumping.Add(1)
				p.gone, p.during = true, func() {
					p.own.stood.set(p.jumps[0], false)
					p.own.stood.set(p.jumps[1], false)
					p.during = nil
				}
			}
			p.tables.Change()
			p.mu.Unlock()
		},
	}
	for name, write := range writes {
		t.Run(name, func(t *testing.T) {
			stand(t, func(p *post) {
				write(p)
				looks, repairs := p.counts(time.Minute)
				if looks == 0 || len(p.repairs) != 0 {
					t.Errorf("%d looks and %d repairs after the write, %d in all; want some and none", looks, repairs, len(p.repairs))
				}
			})
		})
	}
}

// A sign that cannot be read is asked for again, and nothing is lost for it.
func TestSignThatCannotBeRead(t *testing.T) {
	stand(t, func(p *post) {
		p.tables.FailAlways(nftables.ErrBusy)
		p.flush()
		if looks, _ := p.counts(5 * time.Second); looks != 0 {
			t.Errorf("%d looks", looks)
		}
		p.tables.Heal()
		if _, repairs := p.counts(guardPeriod); repairs != 1 {
			t.Errorf("%d repairs, want 1", repairs)
		}
	})
}
