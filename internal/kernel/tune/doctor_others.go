package tune

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

// askOwners looks for programs that write virtual servers, too. Another check, which reads IPVS,
// finds the servers that they have written.
func (t *Tuner) askOwners(DoctorOptions) error {
	running := t.processes()
	var found []string
	for _, p := range owners {
		if running[p.name] {
			found = append(found, fmt.Sprintf("%s is running and may have virtual servers of its own (%s)", p.name, p.what))
		}
	}
	if len(found) == 0 {
		return nil
	}
	return Remedied(Warning(errors.New(strings.Join(found, ", "))),
		"exclude their addresses with --ipvs-exclude-cidrs, or configure them not to use IPVS (kube-vip: lb_enable=false)")
}

// The ports that a kube-proxy listens on.
var proxyPorts = []uint16{10256, 10249}

const proxyFix = "kubectl -n kube-system delete daemonset kube-proxy, or swap its image as manifests/docs/migrate.md says"

// askKubeProxy looks for the process, and where that of another container is not to be
// seen for its listeners.
func (t *Tuner) askKubeProxy(o DoctorOptions) error {
	if t.processes()["kube-proxy"] {
		return Remedied(Warning(errors.New("kube-proxy is running: both would write the same rules and virtual servers")), proxyFix)
	}
	if o.Running {
		return nil
	}
	open, err := t.Listeners()
	if err != nil {
		return err
	}
	for _, l := range open {
		if l.TCP && slices.Contains(proxyPorts, l.Port) {
			return Remedied(Warning(fmt.Errorf("a process listens on port %d, as kube-proxy does, and no agent with run directory %s answers", l.Port, t.opts.RunDir)),
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
func (t *Tuner) Listeners() ([]Listener, error) {
	const listening, unconnected = "0A", "07" // TCP_LISTEN, TCP_CLOSE
	found := map[Listener]bool{}
	for _, table := range []struct {
		file, state string
		tcp         bool
	}{{"tcp", listening, true}, {"tcp6", listening, true}, {"udp", unconnected, false}, {"udp6", unconnected, false}} {
		text, err := os.ReadFile(t.path("proc/net", table.file))
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
func (t *Tuner) askPlugin(DoctorOptions) error {
	links, err := t.links()
	if err != nil {
		return err
	}
	has := func(prefix string) bool {
		return slices.ContainsFunc(links, func(name string) bool { return strings.HasPrefix(name, prefix) })
	}
	switch {
	case has("cilium_"):
		return t.askCilium()
	case has("bpfin.cali") || has("bpfout.cali"):
		return Remedied(Warning(errors.New("the eBPF mode of Calico serves Services itself (bpfin.cali) and conflicts with kube-ipvs")),
			`kubectl patch felixconfiguration default --type merge -p '{"spec":{"bpfEnabled":false}}', or do not use kube-ipvs`)
	case has("cali"):
		return Note("Calico: restart it so that it detects kube-ipvs0 and supports IPVS; its iptables backend must be that of the node")
	case has("antrea-gw"):
		return Note("Antrea: with antreaProxy.proxyAll it serves Services itself; its Egress does not work with --ipvs-strict-arp")
	case has("kube-bridge"):
		return Note("kube-router: with --run-service-proxy it serves Services itself")
	}
	return nil
}

// askCilium: Cilium pins a map of reversed addresses where it translates service addresses in the sockets of
// pods, which is a part of replacing kube-proxy.
func (t *Tuner) askCilium() error {
	_, err := os.Stat(t.path("sys/fs/bpf/tc/globals/cilium_lb4_reverse_sk"))
	switch {
	case err == nil:
		return Remedied(Warning(errors.New("Cilium translates sockets of pods (kube-proxy replacement), so their connections bypass IPVS")),
			"cilium config set kube-proxy-replacement false, or do not use kube-ipvs")
	case errors.Is(err, fs.ErrNotExist):
		return Note("Cilium: it must not serve Services (kubeProxyReplacement=false; cilium-dbg status shows it)")
	}
	return err
}
