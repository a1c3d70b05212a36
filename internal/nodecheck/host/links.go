package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/diagnosis"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/procfs"
)

// links lists the links of the network namespace by name.
func (h *Node) links() ([]string, error) {
	entries, err := os.ReadDir(h.files.Path("sys/class/net"))
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// kind is the kind of a link as the kernel names it in its uevent (DEVTYPE): vxlan,
// bridge, vlan, bond; empty for others.
func (h *Node) kind(link string) string {
	b, err := os.ReadFile(h.files.Path("sys/class/net", link, "uevent"))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if kind, ok := strings.CutPrefix(strings.TrimSpace(line), "DEVTYPE="); ok {
			return kind
		}
	}
	return ""
}

// uplink reports whether a link leads off this machine: hardware has a device, and bonds and VLANs
// are based on such links.
func (h *Node) uplink(link string) bool {
	if kind := h.kind(link); kind == "bond" || kind == "vlan" {
		return true
	}
	_, err := os.Stat(h.files.Path("sys/class/net", link, "device"))
	return err == nil
}

// mendedVXLAN is the release since which masquerading leaves a UDP checksum of 0 alone, as VXLAN has it
// (Linux: netfilter: nat: never update the UDP checksum when it's 0).
var mendedVXLAN = procfs.Version{Major: 5, Minor: 7}

// askVXLAN: before mendedVXLAN, packets to service addresses have a wrong checksum if they are
// masqueraded twice and leave through VXLAN. TCP gets them through after 1 to 63 seconds
// (kubernetes/kubernetes#88986).
func (h *Node) askVXLAN(o HazardOptions) error {
	release, err := h.files.Release()
	if err != nil {
		return err
	}
	version, known := procfs.ParseVersion(release)
	links, err := h.links()
	if err != nil {
		return err
	}
	links = slices.DeleteFunc(links, func(name string) bool { return h.kind(name) != "vxlan" })
	if len(links) == 0 || known && !version.Before(mendedVXLAN) {
		return nil
	}
	var offloading, fix []string
	for _, name := range links {
		on, err := o.ChecksumOffload(name)
		if err != nil {
			return fmt.Errorf("read whether %s offloads checksums: %w", name, err)
		}
		if on {
			offloading = append(offloading, name)
			fix = append(fix, "ethtool -K "+name+" tx-checksum-ip-generic off")
		}
	}
	if len(offloading) == 0 {
		return nil
	}
	return diagnosis.Remedied(diagnosis.Warning(fmt.Errorf("%s offloads checksums, which kernels before %s compute wrongly (%s) unless the distribution fixed it: "+
		"connections to service addresses take 1 to 63 seconds to open", strings.Join(offloading, ", "), mendedVXLAN, release)), strings.Join(fix, " && "))
}

// strict is the value of rp_filter that drops a packet if the route back to its source uses another link.
// The larger value of conf/all and of the link holds (Documentation/networking/ip-sysctl.rst).
const strict = 1

// askReversePath looks at links that lead off this machine. One alone is harmless, for all
// ways back lead through it; those of pods are strict on purpose with some plug-ins.
func (h *Node) askReversePath(HazardOptions) error {
	links, err := h.links()
	if err != nil {
		return err
	}
	all, err := h.count("proc/sys/net/ipv4/conf/all/rp_filter")
	if err != nil {
		return err
	}
	var uplinks, filtered, fix []string
	for _, name := range links {
		if !h.uplink(name) {
			continue
		}
		uplinks = append(uplinks, name)
		own, err := h.count("proc/sys/net/ipv4/conf/" + name + "/rp_filter")
		if errors.Is(err, fs.ErrNotExist) { // without IPv4, or gone
			continue
		}
		if err != nil {
			return err
		}
		if max(all, own) == strict {
			filtered = append(filtered, name)
			fix = append(fix, "net.ipv4.conf."+strings.ReplaceAll(name, ".", "/")+".rp_filter=2")
		}
	}
	switch {
	case len(filtered) == 0:
		return nil
	case len(uplinks) == 1:
		return diagnosis.Note("strict on %s, which is harmless: this machine has no other uplink", filtered[0])
	}
	return diagnosis.Remedied(diagnosis.Warning(fmt.Errorf("strict on %s, and this machine has %d uplinks: packets of clients whose return route uses another uplink are dropped silently",
		strings.Join(filtered, ", "), len(uplinks))), "sysctl -w "+strings.Join(fix, " "))
}

// askBridges: two pods on one bridge answer each other past the rules, unless the bridge hands packets to
// iptables. A client of a service address then gets its answer from another address.
func (h *Node) askBridges(o HazardOptions) error {
	links, err := h.links()
	if err != nil {
		return err
	}
	bridges := slices.DeleteFunc(links, func(name string) bool { return !h.carriesPods(name) })
	if len(bridges) == 0 {
		return nil
	}
	var off []string
	for _, key := range []string{"bridge-nf-call-iptables", "bridge-nf-call-ip6tables"} {
		n, err := h.count("proc/sys/net/bridge/" + key)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if n == 0 {
			off = append(off, "net.bridge."+key+"=1")
		}
	}
	switch {
	case len(off) == 0 && o.IPVS && o.IPv6:
		// A bridge puts fragments together for the rules and does not split them again
		// (IP6CB(skb)->frag_max_size), so IPVS takes the datagram for one that is too big
		// (__mtu_check_toobig_v6 in net/netfilter/ipvs/ip_vs_xmit.c).
		return diagnosis.Note("rules apply to it; pods on %s cannot send UDP datagrams larger than the MTU to a Service over IPv6 (EMSGSIZE: the kernel's IPVS, with bridge-nf-call-ip6tables=1)",
			strings.Join(bridges, ", "))
	case len(off) == 0:
		return nil
	}
	return diagnosis.Remedied(diagnosis.Warning(fmt.Errorf("%s forwards packets between its pods without applying rules: a pod gets no answer from a Service endpoint on the same bridge",
		strings.Join(bridges, ", "))), "modprobe br_netfilter && sysctl -w "+strings.Join(off, " "))
}

// carriesPods reports whether a link is a bridge with ports that is not known to be for
// something else.
func (h *Node) carriesPods(link string) bool {
	if strings.HasPrefix(link, "docker") || strings.HasPrefix(link, "virbr") {
		return false
	}
	ports, err := os.ReadDir(h.files.Path("sys/class/net", link, "brif"))
	return err == nil && len(ports) > 0
}

// askARP: with IPVS all service addresses are bound on every node, and the kernel answers ARP for them on
// all links. A program that announces an address from one node does not expect that.
func (h *Node) askARP(o HazardOptions) error {
	ignore, err := h.count("proc/sys/net/ipv4/conf/all/arp_ignore")
	if err != nil {
		return err
	}
	announce, err := h.count("proc/sys/net/ipv4/conf/all/arp_announce")
	if err != nil {
		return err
	}
	if o.StrictARP || ignore >= 1 && announce == 2 {
		return nil
	}
	running := h.processes()
	for _, p := range announcers {
		if running[p.name] {
			return diagnosis.Remedied(diagnosis.Warning(fmt.Errorf("%s (%s) runs, and this node answers ARP for every service address (arp_ignore=%d, arp_announce=%d)",
				p.name, p.what, ignore, announce)), "--ipvs-strict-arp (ipvs.strictARP: true)")
		}
	}
	return diagnosis.Note("arp_ignore=%d, arp_announce=%d: this node answers ARP for service addresses; set --ipvs-strict-arp if another program announces them by ARP (MetalLB, kube-vip)", ignore, announce)
}

// process is one that a checker knows by its name (comm).
type process struct{ name, what string }

// The announcers of addresses by ARP.
var announcers = []process{{"speaker", "MetalLB"}, {"kube-vip", "kube-vip"}, {"keepalived", "VRRP"}}

// The owners of virtual servers.
var owners = []process{{"keepalived", "its virtual_server sections"}, {"kube-vip", "with lb_enable"}, {"ldirectord", "its virtual servers"}, {"kube-router", "with --run-service-proxy"}}

// processes are the names of those that are visible from here; of another process
// namespace none is.
func (h *Node) processes() map[string]bool {
	names := map[string]bool{}
	dirs, err := os.ReadDir(h.files.Path("proc"))
	if err != nil {
		return names
	}
	for _, d := range dirs {
		if _, err := strconv.Atoi(d.Name()); err != nil {
			continue
		}
		comm, err := h.files.Read("proc/" + d.Name() + "/comm")
		if err != nil { // it has ended
			continue
		}
		// Our image has a link named kube-proxy, for manifests that start that.
		if exe, err := os.Readlink(h.files.Path("proc", d.Name(), "exe")); err == nil && path.Base(exe) == ourName {
			comm = ourName
		}
		names[comm] = true
	}
	return names
}

const ourName = "kube-ipvs"
