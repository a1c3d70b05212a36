package connlimit_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/connlimit"
)

// TestOneTooManyCostsTheOldestThatWaits: connections with a request under way keep their place, and where all have one the newest goes.
func TestOneTooManyCostsTheOldestThatWaits(t *testing.T) {
	changed := connlimit.Bound(3)
	var conns []net.Conn
	open := func() {
		_, server := net.Pipe()
		conns = append(conns, server)
		changed(server, http.StateNew)
	}
	closed := func() (out []int) {
		for i, c := range conns {
			if err := c.SetReadDeadline(time.Time{}); errors.Is(err, io.ErrClosedPipe) {
				out = append(out, i)
			}
		}
		return out
	}
	want := func(when string, gone ...int) {
		t.Helper()
		got := closed()
		if len(got) != len(gone) {
			t.Fatalf("%s: closed %v, want %v", when, got, gone)
		}
		for i := range got {
			if got[i] != gone[i] {
				t.Fatalf("%s: closed %v, want %v", when, got, gone)
			}
		}
		for _, i := range got {
			changed(conns[i], http.StateClosed)
			conns[i], _ = net.Pipe() // counted
		}
	}
	for range 3 {
		open()
	}
	want("three of three")
	changed(conns[0], http.StateActive)
	open()
	want("the second waits longest", 1)
	changed(conns[0], http.StateIdle) // it waits now, for less long than the third
	open()
	want("the third waits longest", 2)
	for _, i := range []int{0, 3, 4} {
		changed(conns[i], http.StateActive)
	}
	open()
	want("all are being answered", 5)
}
