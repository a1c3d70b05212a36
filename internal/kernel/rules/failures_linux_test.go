package rules_test

import (
	"context"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// Dashboards count failed restores by family, so one family's trouble must not
// show as the other's.
func TestRestoreFailuresAreCounted(t *testing.T) {
	const refuses = "echo 'line 2 failed' >&2; exit 1"
	for _, tc := range []struct {
		name         string
		four, six    string
		late         bool // the tool outlives its time-out, and IPv4 alone is written
		stopped      bool
		want4, want6 uint64
	}{
		{name: "none fails"},
		{name: "IPv4 is refused", four: refuses, want4: 1},
		{name: "IPv6 is refused", six: refuses, want6: 1},
		{name: "killed at its deadline", four: "exec sleep 60", late: true, want4: 1},
		{name: "the agent was told to stop", four: "exec sleep 60", six: refuses, stopped: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tools := ipv4Scripts(tc.four, "")
			tools["ip6tables"], tools["ip6tables-save"], tools["ip6tables-restore"] = "", "", tc.six
			scripts(t, tools)
			h := newHandle(t, rules.Options{LockWait: time.Second})
			if len(h.Families()) != 2 {
				t.Skipf("families %v: this machine has no IPv6", h.Families())
			}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			if tc.stopped {
				stop()
			}
			key6 := keyA
			key6.Family = rules.IPv6
			changes := addA()
			if tc.late {
				h.SetTimeout(300 * time.Millisecond)
			} else {
				changes = append(changes, rules.ChainChange{Op: rules.Add, Key: key6})
			}
			h.WriteChains(ctx, changes)
			if got4, got6 := h.RestoreFailures(rules.IPv4), h.RestoreFailures(rules.IPv6); got4 != tc.want4 || got6 != tc.want6 {
				t.Errorf("IPv4 %d, IPv6 %d, want %d, %d", got4, got6, tc.want4, tc.want6)
			}
		})
	}
}

// Each refused piece of a halved batch is a failed run.
func TestRestoreFailuresCountEachRun(t *testing.T) {
	scripts(t, ipv4Scripts("grep -q KUBE-B && exit 1; exit 0", ""))
	h := newHandle(t, rules.Options{Families: []rules.Family{rules.IPv4}})
	keyB := keyA
	keyB.Name = "KUBE-B"
	errs := h.WriteChains(t.Context(), append(addA(), rules.ChainChange{Op: rules.Add, Key: keyB}))
	if len(errs) != 2 || errs[0] != nil || errs[1] == nil {
		t.Fatalf("got %v, want the second alone to fail", errs)
	}
	if got := h.RestoreFailures(rules.IPv4); got != 2 {
		t.Errorf("%d failed runs, want the batch and the half with the bad chain", got)
	}
	if got := h.RestoreFailures(rules.IPv6); got != 0 {
		t.Errorf("%d failures of a family that is not in use", got)
	}
}
