package scenarios_test

import (
	"flag"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/testkit/randomops"
)

var (
	seed   = flag.Uint64("seed", 0, "seed of the first walk of the model test; 0 takes a new one")
	ops    = flag.Int("ops", 0, "operations of the model test; 0 takes few")
	keepIn = flag.String("keep", "", "directory for scenarios of walks that fail; a temporary one if empty")
)

// opsAWalk is how long walks are: longer ones find more and take longer to shrink.
const opsAWalk = 500

// atOnce is how many walks go on at a time: most of each is waiting.
const atOnce = 40

// TestModel does random walks on fakes: whatever happens to a node, whenever it comes to
// rest it is the result of a fresh compile. The seeds of walks follow each other.
func TestModel(t *testing.T) {
	total := *ops
	if total == 0 {
		if total = 10_000; testing.Short() {
			total = 2_000
		}
	}
	h := &randomops.Search{
		Open:     func() (randomops.Node, error) { return randomops.NewFakes(), nil },
		Patience: time.Minute, Again: 10 * time.Second, Tries: 2, Budget: randomops.Budget{Runs: 400, Time: 2 * time.Minute},
		Dir: keeping(t), Count: &randomops.Count{},
		Repeat: func(w randomops.Walk) string {
			return fmt.Sprintf("make stress WHAT=model SEED=%d OPS=%d", w.Seed, min(opsAWalk, total))
		},
	}
	first := firstSeed()
	defer watched(t, h.Count, first)()
	search(t, h, walks{first, total, opsAWalk, randomops.Fakes}, atOnce, func() bool { return false })
}

// walks are of seeds that follow each other, and have so many operations together.
type walks struct {
	first      uint64
	total, one int
	on         randomops.On
}

// all makes them as they are wanted.
func (w walks) all() iter.Seq[randomops.Walk] {
	return func(yield func(randomops.Walk) bool) {
		for i := range (w.total + w.one - 1) / w.one {
			if !yield(randomops.New(w.first+uint64(i), min(w.one, w.total), w.on)) {
				return
			}
		}
	}
}

// search does walks, some at a time, until enough of them have failed or it is over.
func search(t *testing.T, h *randomops.Search, w walks, atOnce int, over func() bool) {
	places := make(chan struct{}, atOnce)
	var group sync.WaitGroup
	defer group.Wait()
	var failed atomic.Int32
	for next := range w.all() {
		places <- struct{}{}
		if over() || failed.Load() >= enoughFailures {
			return
		}
		group.Go(func() { // a goroutine each: a node may take its thread with it
			defer func() { <-places }()
			if err := h.Try(next); err != nil {
				t.Error(err)
				failed.Add(1)
			}
		})
	}
}

// enoughFailures is how many failures are printed: more are often the same again.
const enoughFailures = 8

// keeping is where scenarios of what failed go, and stay.
func keeping(t *testing.T) string {
	dir := *keepIn
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "walks"); err != nil { //nolint:usetesting // files that are kept outlive the test
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(dir) }) // unless there is something in it
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func firstSeed() uint64 {
	if *seed != 0 {
		return *seed
	}
	return rand.Uint64() >> 16 // short enough to be typed
}

// watched tells every few seconds how far it has come, and the function that it returns
// tells the end.
func watched(t *testing.T, c *randomops.Count, first uint64) (end func()) {
	began, done, over := time.Now(), make(chan struct{}), make(chan struct{})
	say := func(what string) {
		took := time.Since(began)
		t.Logf("%s: %d operations, %d quiet points in %s (%.0f a second), seeds from %d", what, c.Ops.Load(), c.Quiet.Load(),
			took.Round(time.Second/10), float64(c.Ops.Load())/took.Seconds(), first)
	}
	go func() {
		defer close(over)
		tick := time.NewTicker(10 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				say("so far")
			case <-done:
				return
			}
		}
	}()
	return func() {
		close(done)
		<-over
		say("model test")
	}
}
