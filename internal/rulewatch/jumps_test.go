package rulewatch

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// TestOnlyKnownJumpsAreLost: a jump that was never in place is not lost, one that was is lost as
// soon as it is missing.
func TestOnlyKnownJumpsAreLost(t *testing.T) {
	all := watchedJumps([]rules.Family{rules.IPv4, rules.IPv6})
	half := len(all) / 2
	if half < 3 {
		t.Fatalf("%d jumps", len(all))
	}
	var known knownJumps
	for _, step := range []struct {
		name          string
		missing, want []rules.JumpKey
	}{
		{"nothing is written yet", all, nil},
		{"one family is", all[half:], nil},
		{"another program flushed its nat", all[:2], all[:2]},
		{"and once more before the repair", all[:2], all[:2]},
		{"it is repaired, and the other family is written", nil, nil},
		{"everything is flushed", all, all},
	} {
		if diff := cmp.Diff(step.want, known.lost(all, step.missing)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
}

// TestOwnJumpsAreKnown: jumps that the agent wrote are known before the first look, and those that
// it deleted are not.
func TestOwnJumpsAreKnown(t *testing.T) {
	all := watchedJumps([]rules.Family{rules.IPv4})
	var known knownJumps
	known.set(all[0], true)
	known.set(all[1], true)
	known.set(all[1], false)
	if diff := cmp.Diff(all[:1], known.lost(all, all)); diff != "" {
		t.Errorf("lost (-want +got):\n%s", diff)
	}
}
