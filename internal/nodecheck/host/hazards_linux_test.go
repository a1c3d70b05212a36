package host_test

import (
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/diagnosis"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/nodefs"
)

// A sysctl that the agent needs and cannot set keeps it from carrying Services.
func TestHazardsOfReadOnlySysctls(t *testing.T) {
	if !nodefs.OwnMounts(t) {
		return
	}
	for name, tt := range map[string]struct {
		key   string
		state diagnosis.State
	}{
		"required": {"net.ipv4.ip_forward", diagnosis.Lacks},
		"wanted":   {"net.ipv4.vs.expire_nodest_conn", diagnosis.Warn},
	} {
		t.Run(name, func(t *testing.T) {
			n := well(t)
			n.Sysctl(t, tt.key, "0")
			n.ReadOnly(t)
			v := verdictOf(t, diagnosis.Run(t.Context(), n.host(t).Hazards(options())), "sysctls")
			if v.State != tt.state || !strings.Contains(v.Detail, tt.key+"=0 must be 1") || !strings.Contains(v.Fix, "sysctl -w "+tt.key+"=1;") {
				t.Errorf("%+v, want %s with the command", v, tt.state)
			}
		})
	}
}

// The kernel is asked as ethtool does; loopback offloads checksums, because they are not read.
func TestChecksumOffloadOfThisKernel(t *testing.T) {
	n := well(t)
	n.Sysctl(t, "kernel.osrelease", "4.15.0")
	n.link(t, "lo", "vxlan") // as far as the tree tells
	n.link(t, "flannel.1", "")
	o := options()
	o.ChecksumOffload = nil
	v := verdictOf(t, diagnosis.Run(t.Context(), n.host(t).Hazards(o)), "vxlan checksum offload")
	if v.State != diagnosis.Warn || !strings.HasPrefix(v.Detail, "lo offloads checksums") {
		t.Errorf("%+v, want that lo does", v)
	}
	n.link(t, "none0", "vxlan")
	v = verdictOf(t, diagnosis.Run(t.Context(), n.host(t).Hazards(o)), "vxlan checksum offload")
	if v.State != diagnosis.Failed || !strings.Contains(v.Detail, "none0") {
		t.Errorf("%+v, want that none0 is unknown", v)
	}
}
