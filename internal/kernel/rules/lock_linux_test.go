package rules_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// After one wait for the lock has timed out, no family and no process waits again while it is held;
// once it is free, calls work at once.
func TestHeldLockIsWaitedForOnce(t *testing.T) {
	namespace(t)
	needBackend(t, rules.Legacy)
	h := newHandle(t, rules.Options{Backend: rules.Legacy, LockWait: time.Second})
	var chains []rules.ChainChange
	for _, f := range h.Families() {
		chains = append(chains, rules.ChainChange{Op: rules.Add, Key: rules.ChainKey{Family: f, Table: "nat", Name: "KUBE-A"}})
	}
	jumps := []rules.JumpKey{{Family: rules.IPv4, Table: "nat", Hook: "OUTPUT", Target: "KUBE-A"}}
	lock, err := os.OpenFile(os.Getenv("XTABLES_LOCKFILE"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	before := h.Counters()
	for range 3 {
		errs := h.WriteChains(t.Context(), chains)
		_, err := h.JumpsThere(t.Context(), jumps)
		for _, err := range append(errs, err) {
			var soon interface{ RetryWithin() time.Duration }
			if !errors.Is(err, rules.ErrBusy) || !strings.Contains(err.Error(), "xtables lock") || !errors.As(err, &soon) || soon.RetryWithin() != time.Second {
				t.Errorf("%v: want the lock to be held, and another try within a second", err)
			}
		}
	}
	after := h.Counters()
	if n := after.Restore + after.Jump - before.Restore - before.Jump; n != 1 {
		t.Errorf("%d processes waited for the lock, want one", n)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	if errs := h.WriteChains(t.Context(), chains); errs != nil {
		t.Errorf("with a free lock: %v", errs)
	}
	if missing, err := h.JumpsThere(t.Context(), jumps); err != nil || len(missing) != 1 {
		t.Errorf("missing %v, %v", missing, err)
	}
}
