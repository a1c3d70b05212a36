package vm

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// moduleIndex knows the modules of one kernel, as depmod wrote them down.
type moduleIndex struct {
	files   map[string]string   // name → path relative to the modules directory
	needs   map[string][]string // path → paths of the modules that must be loaded before it
	builtin map[string]bool
}

// indexModules reads modules.dep and modules.builtin of a modules directory.
func indexModules(dir string) (moduleIndex, error) {
	dep, err := os.ReadFile(filepath.Join(dir, "modules.dep"))
	if err != nil {
		return moduleIndex{}, fmt.Errorf("list modules: %w", err)
	}
	builtin, err := os.ReadFile(filepath.Join(dir, "modules.builtin"))
	if err != nil {
		return moduleIndex{}, fmt.Errorf("list built-in modules: %w", err)
	}
	return parseModules(string(dep), string(builtin)), nil
}

func parseModules(dep, builtin string) moduleIndex {
	index := moduleIndex{files: map[string]string{}, needs: map[string][]string{}, builtin: map[string]bool{}}
	for line := range strings.Lines(dep) {
		file, needs, ok := strings.Cut(line, ":")
		if ok {
			index.files[moduleName(file)] = file
			index.needs[file] = strings.Fields(needs)
		}
	}
	for line := range strings.Lines(builtin) {
		index.builtin[moduleName(strings.TrimSpace(line))] = true
	}
	return index
}

// moduleName turns a file such as kernel/net/netfilter/xt_set.ko.xz into the name modprobe uses. The kernel treats "-" and "_"
// alike.
func moduleName(file string) string {
	name, _, _ := strings.Cut(path.Base(file), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}

func (m moduleIndex) hasAll(names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return m.files[name] == "" && !m.builtin[name] })
}

// wantedTrees and wantedNames choose what goes into the guest: everything a network test may load on demand, the devices
// QEMU shows, and the few helpers they depend on. Sound, graphics, storage and real network cards stay out.
var (
	wantedTrees = []string{
		"kernel/net/", "kernel/lib/", "kernel/drivers/virtio/", "kernel/drivers/net/virtio_net", "kernel/drivers/net/net_failover",
		"kernel/drivers/net/dummy", "kernel/drivers/net/veth", "kernel/drivers/net/macvlan", "kernel/drivers/net/ipvlan/",
		"kernel/drivers/net/tun", "kernel/drivers/net/ifb", "kernel/drivers/net/vrf", "kernel/drivers/net/vxlan",
		"kernel/drivers/net/nlmon", "kernel/drivers/char/virtio_console", "kernel/drivers/char/hw_random/virtio", "kernel/fs/9p/",
		"kernel/fs/fscache/", "kernel/fs/netfs/", "kernel/fs/overlayfs/", "kernel/fs/configfs/",
	}
	wantedNames   = []string{"crc32c_generic", "crc32c_intel", "libcrc32c", "sha256_generic", "failover", "hmac"}
	unwantedTrees = []string{
		"kernel/net/bluetooth/", "kernel/net/mac80211/", "kernel/net/wireless/", "kernel/net/nfc/", "kernel/net/sunrpc/",
		"kernel/net/ceph/", "kernel/net/tipc/", "kernel/net/rds/", "kernel/net/can/", "kernel/net/atm/", "kernel/net/batman-adv/",
		"kernel/net/ax25/", "kernel/net/dccp/", "kernel/net/smc/", "kernel/net/ieee802154/", "kernel/net/mac802154/",
		"kernel/net/rxrpc/", "kernel/lib/test",
	}
)

// wanted lists the module files for the guest with all they depend on, sorted. modules.dep is transitive, so one step is enough.
func (m moduleIndex) wanted() []string {
	chosen := map[string]bool{}
	for name, file := range m.files {
		inTree := hasAnyPrefix(file, wantedTrees) && !hasAnyPrefix(file, unwantedTrees)
		if !inTree && !slices.Contains(wantedNames, name) {
			continue
		}
		chosen[file] = true
		for _, need := range m.needs[file] {
			chosen[need] = true
		}
	}
	return slices.Sorted(maps.Keys(chosen))
}

func hasAnyPrefix(text string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(text, prefix) })
}
