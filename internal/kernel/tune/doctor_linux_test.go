package tune_test

import (
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/tune"
)

// A sysctl that the agent needs and cannot set keeps it from serving; a sysctl that it only wants
// does not.
func TestDoctorOfReadOnlySysctls(t *testing.T) {
	if !ownMounts(t) {
		return
	}
	for name, tt := range map[string]struct {
		key   string
		state tune.State
	}{
		"required": {"net.ipv4.ip_forward", tune.Lacks},
		"wanted":   {"net.ipv4.vs.expire_nodest_conn", tune.Warn},
	} {
		t.Run(name, func(t *testing.T) {
			n := well(t)
			n.sysctl(t, tt.key, "0")
			n.readOnly(t)
			v := verdictOf(t, tune.RunChecks(t.Context(), n.tuner(t).Doctor(options())), "sysctls")
			if v.State != tt.state || !strings.Contains(v.Detail, tt.key+"=0 must be 1") || !strings.Contains(v.Fix, "sysctl -w "+tt.key+"=1;") {
				t.Errorf("%+v, want %s with the command", v, tt.state)
			}
		})
	}
}

// The kernel is asked as ethtool does; loopback offloads checksums, because its packets never leave
// the machine.
func TestChecksumOffloadOfThisKernel(t *testing.T) {
	n := well(t)
	n.sysctl(t, "kernel.osrelease", "4.15.0")
	n.link(t, "lo", "vxlan") // as far as the tree tells
	n.link(t, "flannel.1", "")
	o := options()
	o.ChecksumOffload = nil
	v := verdictOf(t, tune.RunChecks(t.Context(), n.tuner(t).Doctor(o)), "vxlan checksum offload")
	if v.State != tune.Warn || !strings.HasPrefix(v.Detail, "lo offloads checksums") {
		t.Errorf("%+v, want that lo does", v)
	}
	n.link(t, "none0", "vxlan")
	v = verdictOf(t, tune.RunChecks(t.Context(), n.tuner(t).Doctor(o)), "vxlan checksum offload")
	if v.State != tune.Failed || !strings.Contains(v.Detail, "none0") {
		t.Errorf("%+v, want that nobody knows of none0", v)
	}
}
