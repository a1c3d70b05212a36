package vm

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

const sampleDep = `kernel/net/netfilter/ipvs/ip_vs.ko: kernel/net/netfilter/nf_conntrack.ko kernel/lib/libcrc32c.ko
kernel/net/netfilter/nf_conntrack.ko: kernel/lib/libcrc32c.ko
kernel/lib/libcrc32c.ko:
kernel/net/netfilter/xt_set.ko.xz: kernel/net/netfilter/ipset/ip_set.ko.xz
kernel/net/netfilter/ipset/ip_set.ko.xz:
kernel/drivers/net/virtio_net.ko: kernel/net/core/failover.ko
kernel/net/core/failover.ko:
kernel/net/bluetooth/bluetooth.ko:
kernel/drivers/gpu/drm/drm.ko:
kernel/drivers/net/vxlan/vxlan.ko: kernel/drivers/odd/helper.ko
kernel/drivers/odd/helper.ko:
kernel/arch/x86/crypto/crc32c-intel.ko:
`

func TestModulesOfTheGuest(t *testing.T) {
	index := parseModules(sampleDep, "")
	want := []string{
		"kernel/arch/x86/crypto/crc32c-intel.ko",
		"kernel/drivers/net/virtio_net.ko",
		"kernel/drivers/net/vxlan/vxlan.ko",
		"kernel/drivers/odd/helper.ko", // only because vxlan needs it
		"kernel/lib/libcrc32c.ko",
		"kernel/net/core/failover.ko",
		"kernel/net/netfilter/ipset/ip_set.ko.xz",
		"kernel/net/netfilter/ipvs/ip_vs.ko",
		"kernel/net/netfilter/nf_conntrack.ko",
		"kernel/net/netfilter/xt_set.ko.xz",
	}
	if diff := cmp.Diff(want, index.wanted()); diff != "" {
		t.Errorf("modules (-want +got):\n%s", diff)
	}
}

func TestModulesByName(t *testing.T) {
	index := parseModules(sampleDep, "kernel/drivers/virtio/virtio_pci.ko\nkernel/fs/9p/9p.ko\n")
	tests := []struct {
		name  string
		names []string
		want  bool
	}{
		{name: "modules", names: []string{"ip_vs", "xt_set"}, want: true},
		{name: "built in", names: []string{"virtio_pci", "9p"}, want: true},
		{name: "dash in the file name", names: []string{"crc32c_intel"}, want: true},
		{name: "missing", names: []string{"ip_vs", "dummy"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := index.hasAll(tt.names); got != tt.want {
				t.Errorf("hasAll(%v) = %t, want %t", tt.names, got, tt.want)
			}
		})
	}
}

func TestIndexModulesWithoutDepmod(t *testing.T) {
	if _, err := indexModules(t.TempDir()); err == nil {
		t.Error("a directory without modules.dep was accepted")
	}
}
