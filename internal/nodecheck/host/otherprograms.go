package host

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/diagnosis"
)

// askOwners looks for programs that write virtual servers, too. Virtual servers that they have written are found by another check.
func (h *Node) askOwners(HazardOptions) error {
	running := h.processes()
	var found []string
	for _, p := range owners {
		if running[p.name] {
			found = append(found, fmt.Sprintf("%s is running and may have virtual servers of its own (%s)", p.name, p.what))
		}
	}
	if len(found) == 0 {
		return nil
	}
	return diagnosis.Remedied(diagnosis.Warning(errors.New(strings.Join(found, ", "))),
		"exclude their addresses with --ipvs-exclude-cidrs, or configure them not to use IPVS (kube-vip: lb_enable=false)")
}

// The ports that a kube-proxy listens on.
var proxyPorts = []uint16{10256, 10249}

const proxyFix = "kubectl -n kube-system delete daemonset kube-proxy, or swap its image as manifests/docs/migrate.md says"

// askKubeProxy looks for the process, and where that of another container is not to be
// seen for its listeners.
func (h *Node) askKubeProxy(o HazardOptions) error {
	if h.processes()["kube-proxy"] {
		return diagnosis.Remedied(diagnosis.Warning(errors.New("kube-proxy is running: both would write the same rules and virtual servers")), proxyFix)
	}
	if o.Running {
		return nil
	}
	open, err := h.Listeners()
	if err != nil {
		return err
	}
	for _, l := range open {
		if l.TCP && slices.Contains(proxyPorts, l.Port) {
			return diagnosis.Remedied(diagnosis.Warning(fmt.Errorf("a process listens on port %d, as kube-proxy does, and no agent with run directory %s answers", l.Port, h.runDir)),
				fmt.Sprintf("ss -ltnp 'sport = :%d' shows the process; if it is kube-proxy: %s", l.Port, proxyFix))
		}
	}
	return nil
}

// Listener is a socket that others can reach: it is not bound to loopback.
type Listener struct {
	TCP  bool // else UDP
	Port uint16
}

// Listeners are those of the network namespace, in TCP and UDP of both families, as the
// kernel lists them (tcp4_seq_show, udp4_seq_show).
func (h *Node) Listeners() ([]Listener, error) {
	const listening, unconnected = "0A", "07" // TCP_LISTEN, TCP_CLOSE
	found := map[Listener]bool{}
	for _, table := range []struct {
		file, state string
		tcp         bool
	}{{"tcp", listening, true}, {"tcp6", listening, true}, {"udp", unconnected, false}, {"udp6", unconnected, false}} {
		text, err := os.ReadFile(h.files.Path("proc/net", table.file))
		if errors.Is(err, fs.ErrNotExist) { // a kernel without IPv6
			continue
		}
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) < 4 || f[3] != table.state {
				continue
			}
			addr, port, _ := strings.Cut(f[1], ":")
			n, err := strconv.ParseUint(port, 16, 16)
			if err != nil {
				return nil, fmt.Errorf("read /proc/net/%s: %w", table.file, err)
			}
			if !loopback(addr) {
				found[Listener{table.tcp, uint16(n)}] = true
			}
		}
	}
	all := make([]Listener, 0, len(found))
	for l := range found {
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b Listener) int { return int(a.Port) - int(b.Port) })
	return all, nil
}

// loopback reads addresses as these lists have them: words of 32 bits as the machine
// stores them, the first byte last on little-endian ones.
func loopback(addr string) bool {
	return len(addr) == 8 && (strings.HasSuffix(addr, "7F") || strings.HasPrefix(addr, "7F")) ||
		addr == "00000000000000000000000001000000" || addr == "00000000000000000000000000000001"
}

// askPlugin knows network plug-ins by their links, and whether one of them serves
// Services itself.
func (h *Node) askPlugin(HazardOptions) error {
	links, err := h.links()
	if err != nil {
		return err
	}
	has := func(prefix string) bool {
		return slices.ContainsFunc(links, func(name string) bool { return strings.HasPrefix(name, prefix) })
	}
	switch {
	case has("cilium_"):
		return h.askCilium()
	case has("bpfin.cali") || has("bpfout.cali"):
		return diagnosis.Remedied(diagnosis.Warning(errors.New("the eBPF mode of Calico serves Services itself (bpfin.cali) and conflicts with kube-ipvs")),
			`kubectl patch felixconfiguration default --type merge -p '{"spec":{"bpfEnabled":false}}', or do not use kube-ipvs`)
	case has("cali"):
		return diagnosis.Note("Calico: restart it so that it detects kube-ipvs0 and supports IPVS; its iptables backend must be that of the node")
	case has("antrea-gw"):
		return diagnosis.Note("Antrea: with antreaProxy.proxyAll it serves Services itself; its Egress does not work with --ipvs-strict-arp")
	case has("kube-bridge"):
		return diagnosis.Note("kube-router: with --run-service-proxy it serves Services itself")
	}
	return nil
}

// askCilium: Cilium pins a map of reversed addresses where it translates service addresses in the sockets of
// pods, which is a part of replacing kube-proxy.
func (h *Node) askCilium() error {
	_, err := os.Stat(h.files.Path("sys/fs/bpf/tc/globals/cilium_lb4_reverse_sk"))
	switch {
	case err == nil:
		return diagnosis.Remedied(diagnosis.Warning(errors.New("the kube-proxy replacement of Cilium translates sockets of pods, so their connections bypass IPVS")),
			"cilium config set kube-proxy-replacement false, or do not use kube-ipvs")
	case errors.Is(err, fs.ErrNotExist):
		return diagnosis.Note("Cilium: it must not serve Services (kubeProxyReplacement=false; cilium-dbg status shows it)")
	}
	return err
}

// networkdLinks has a file for each link that systemd-networkd knows, named by the index of the link. systemd calls the format
// private. The keys ADMIN_STATE and NETWORK_FILE have been in it since 2014; without them there is no finding.
const networkdLinks = "run/systemd/netif/links"

// askNetworkd warns if systemd-networkd manages the device. It then deletes the addresses that its .network file does not have
// when it configures the device again.
func (h *Node) askNetworkd(o HazardOptions) error {
	index, err := h.files.Read("sys/class/net/" + o.Device + "/ifindex")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	text, err := os.ReadFile(h.files.Path(networkdLinks, index))
	if errors.Is(err, fs.ErrNotExist) {
		return diagnosis.Note("no state of %s in /%s; a container does not see that of its node", o.Device, networkdLinks)
	}
	if err != nil {
		return err
	}
	has := map[string]string{}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		has[key] = value
	}
	switch state := has["ADMIN_STATE"]; state {
	case "configuring", "configured", "failed":
		return diagnosis.Remedied(diagnosis.Warning(fmt.Errorf("systemd-networkd manages %s as %s says: networkctl reconfigure deletes the addresses of Services, until the agent binds them again",
			o.Device, cmp.Or(has["NETWORK_FILE"], "a .network file"))),
			fmt.Sprintf(`printf '[Match]\nName=%[1]s\n[Link]\nUnmanaged=yes\n' > /etc/systemd/network/00-%[1]s.network && networkctl reload`, o.Device))
	case "unmanaged":
		return diagnosis.Note("%s is unmanaged", o.Device)
	}
	return nil
}
