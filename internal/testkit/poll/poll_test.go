package poll_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
)

// failing records the message of Fatalf, and ends the function under test as Fatalf does.
type failing struct {
	testing.TB
	message string
}

func (f *failing) Helper() {}

func (f *failing) Fatalf(format string, args ...any) {
	f.message = fmt.Sprintf(format, args...)
	panic(f)
}

// message returns the message of the failure that the function reports, "" for none.
func message(t *testing.T, do func(testing.TB)) string {
	t.Helper()
	f := &failing{TB: t}
	func() {
		defer func() {
			if r := recover(); r != nil && r != any(f) {
				panic(r)
			}
		}()
		do(f)
	}()
	return f.message
}

func TestUntil(t *testing.T) {
	for _, tt := range []struct {
		name  string
		after time.Duration
		want  string
	}{
		{"the state is there", 0, ""},
		{"the state comes late", poll.Patience - time.Second, ""},
		{"the state never comes", 2 * poll.Patience, "waited 1m0s in vain for the third row\nrows: 2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				got := message(t, func(t testing.TB) {
					poll.Until(t, "the third row", func() bool { return time.Since(began) >= tt.after }, func() string { return "rows: 2" })
				})
				if got != tt.want {
					t.Errorf("message %q, want %q", got, tt.want)
				}
			})
		})
	}
}

func TestReceive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		numbers := make(chan int)
		go func() {
			time.Sleep(poll.Patience / 2)
			numbers <- 7
		}()
		if got := poll.Receive(t, "a number", numbers); got != 7 {
			t.Errorf("received %d, want 7", got)
		}
		if got := message(t, func(t testing.TB) { poll.Receive(t, "a second number", numbers) }); !strings.HasSuffix(got, "in vain for a second number") {
			t.Errorf("message %q, want what was waited for", got)
		}
	})
}
