package load_test

import (
	"net"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/load"
)

// TestProcessesBesideALoad: a process that is being started has a copy of every socket for a moment, and so a socket that was
// closed meanwhile has news after its end.
func TestProcessesBesideALoad(t *testing.T) {
	const patience = 5 * time.Millisecond
	v := listen(t, func(conn net.Conn) {
		time.Sleep(patience) // the answer comes when the client has just gone
		answer(conn)
	})
	run := begin(t, load.Profile{To: v.to, New: 2000, Timeout: patience})
	var starting sync.WaitGroup
	for range 4 {
		starting.Go(func() {
			for range 250 {
				if err := exec.CommandContext(t.Context(), "true").Run(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	starting.Wait()
	if got := stop(t, run); got.Failures() == 0 {
		t.Errorf("no client went before its answer:\n%s", text(got))
	}
}
