package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// What was never there is not lost, and what was is lost once it is missing.
func TestOnlyWhatStoodIsLost(t *testing.T) {
	all := sentinels([]rules.Family{rules.IPv4, rules.IPv6})
	half := len(all) / 2
	if half < 3 {
		t.Fatalf("%d sentinels", len(all))
	}
	var stood standing
	for _, step := range []struct {
		name          string
		missing, want []rules.JumpKey
	}{
		{"nothing is written yet", all, nil},
		{"one family is", all[half:], nil},
		{"somebody flushed its nat", all[:2], all[:2]},
		{"and once more before it is mended", all[:2], all[:2]},
		{"it is mended, and the other is there", nil, nil},
		{"everything is flushed", all, all},
	} {
		if diff := cmp.Diff(step.want, stood.lost(all, step.missing)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
}

// What the agent wrote stands before anybody has looked, and what it took away does not.
func TestOwnJumpsStand(t *testing.T) {
	all := sentinels([]rules.Family{rules.IPv4})
	var stood standing
	stood.set(all[0], true)
	stood.set(all[1], true)
	stood.set(all[1], false)
	if diff := cmp.Diff(all[:1], stood.lost(all, all)); diff != "" {
		t.Errorf("lost (-want +got):\n%s", diff)
	}
}
