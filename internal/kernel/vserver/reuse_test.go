package vserver_test

import (
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

func TestBestReuseMode(t *testing.T) {
	var (
		both   = vserver.ReuseOutcome{Prompt: true, LeavesDrained: true}
		prompt = vserver.ReuseOutcome{Prompt: true}
		leaves = vserver.ReuseOutcome{LeavesDrained: true}
		none   = vserver.ReuseOutcome{}
	)
	tests := []struct {
		name string
		vserver.Reuse
		want int
		why  string
	}{
		{"Linux 5.16: no difference that matters", vserver.Reuse{Mode0: both, Mode1: both, Default: 1}, 1,
			"a reused source port is answered at once and kept from draining destinations, with 0 as with 1; 1 is the kernel's own"},
		{"a kernel of another default", vserver.Reuse{Mode0: both, Mode1: both, Default: 0}, 0,
			"a reused source port is answered at once and kept from draining destinations, with 0 as with 1; 0 is the kernel's own"},
		{"Linux 5.9", vserver.Reuse{Mode0: prompt, Mode1: both, Default: 1}, 1,
			"a reused source port is answered at once and kept from draining destinations; with 0 it is answered at once, but led to draining destinations too"},
		{"Linux 4.1", vserver.Reuse{Mode0: prompt, Mode1: none, Default: 1}, 0,
			"a reused source port is answered at once, but led to draining destinations too; with 1 it is answered a second late"},
		{"a kernel nobody has seen", vserver.Reuse{Mode0: both, Mode1: prompt, Default: 1}, 0, ""},
		{"a lost packet is worse than a draining destination", vserver.Reuse{Mode0: prompt, Mode1: leaves, Default: 1}, 0,
			"a reused source port is answered at once, but led to draining destinations too; with 1 it is answered a second late, though kept from draining destinations"},
		{"and so the other way round", vserver.Reuse{Mode0: leaves, Mode1: prompt, Default: 0}, 1, ""},
		{"late in any case", vserver.Reuse{Mode0: none, Mode1: leaves, Default: 0}, 1, ""},
		{"nothing works", vserver.Reuse{Default: 1}, 1, ""},
		{"a default that was not tried", vserver.Reuse{Mode0: both, Mode1: both, Default: 3}, 1, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			mode, why := tt.Best()
			if mode != tt.want {
				t.Errorf("mode %d, want %d", mode, tt.want)
			}
			if tt.why != "" && why != tt.why || !strings.HasPrefix(why, "a reused source port is answered ") {
				t.Errorf("why: %s\nwant %s", why, tt.why)
			}
		})
	}
}
