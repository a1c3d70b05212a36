package host_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/diagnosis"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/sysctl"
	"github.com/kube-ipvs/kube-ipvs/internal/nodecheck/host"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/nodefs"
)

// well is a node that has nothing to repair: one uplink, a bridge with a pod, VXLAN.
func well(t *testing.T) node {
	t.Helper()
	n := newNode(t)
	n.healthy(t)
	for key, value := range map[string]string{
		"net.ipv4.vs.conntrack": "1", "net.ipv4.vs.expire_nodest_conn": "1", "net.ipv4.vs.expire_quiescent_template": "1",
		"net.ipv4.ip_forward": "1", "net.netfilter.nf_conntrack_count": "1000",
		"net.ipv4.conf.all.rp_filter": "0", "net.ipv4.conf.eth0.rp_filter": "1", "net.ipv4.conf.eth1.rp_filter": "2",
		"net.ipv4.conf.all.arp_ignore": "0", "net.ipv4.conf.all.arp_announce": "0",
		"net.ipv4.ip_local_port_range": "32768 60999", "net.ipv4.ip_local_reserved_ports": "",
		"net.bridge.bridge-nf-call-iptables": "1", "net.bridge.bridge-nf-call-ip6tables": "1",
	} {
		n.Sysctl(t, key, value)
	}
	n.link(t, "eth0", "")
	n.File(t, "sys/class/net/eth0/device/vendor", "0x1af4")
	n.link(t, "cni0", "bridge")
	n.File(t, "sys/class/net/cni0/brif/veth1/port_no", "1")
	n.link(t, "flannel.1", "vxlan")
	n.File(t, "proc/net/ip_vs", ipvsList)
	n.File(t, "proc/net/tcp", socketsHead+socket("00000000:2808", "0A"))
	n.File(t, "proc/net/udp", socketsHead)
	n.process(t, 1, "systemd")
	return n
}

func (n node) link(t *testing.T, name, kind string) {
	t.Helper()
	text := "INTERFACE=" + name
	if kind != "" {
		text = "DEVTYPE=" + kind + "\n" + text
	}
	n.File(t, "sys/class/net/"+name+"/uevent", text)
}

func (n node) process(t *testing.T, pid int, comm string) {
	t.Helper()
	n.File(t, fmt.Sprintf("proc/%d/comm", pid), comm)
}

const (
	ipvsList = `IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
TCP  0A600001:01BB rr
  -> 0A000005:192B      Masq    1      3          4`
	socketsHead = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
)

// socket is a line of /proc/net/tcp.
func socket(local, state string) string {
	return "   0: " + local + " 00000000:0000 " + state + " 00000000:00000000 00:00000000 00000000     0        0 1 1\n"
}

// summary returns the lines above the table.
func summary(t *testing.T, verdicts []diagnosis.Verdict) string {
	t.Helper()
	var b strings.Builder
	if err := diagnosis.WriteSummary(&b, verdicts); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(b.String(), "\n"); lines > 3 {
		t.Errorf("a summary of %d lines:\n%s", lines, &b)
	}
	return b.String()
}

// device has the addresses of Services.
const device = "kube-ipvs0"

func options() host.HazardOptions {
	return host.HazardOptions{
		IPVS: true, Device: device, NodePorts: [2]uint16{30000, 32767}, Sysctls: sysctl.IPVSSysctls(sysctl.IPVSOptions{Release: "6.1.0"}),
		ChecksumOffload: func(string) (bool, error) { return true, nil },
		RawSocket:       func() error { return nil },
		DiskSpace:       func(string) (host.DiskSpace, error) { return host.DiskSpace{Bytes: 1, Files: 1}, nil },
	}
}

// Each broken node: its cause and the command that mends it.
func TestHazards(t *testing.T) {
	set := func(key, value string) func(*testing.T, node) {
		return func(t *testing.T, n node) { n.Sysctl(t, key, value) }
	}
	file := func(name, text string) func(*testing.T, node) {
		return func(t *testing.T, n node) { n.File(t, name, text) }
	}
	process := func(name string) func(*testing.T, node) {
		return func(t *testing.T, n node) { n.process(t, 7, name) }
	}
	link := func(name, kind string) func(*testing.T, node) {
		return func(t *testing.T, n node) { n.link(t, name, kind) }
	}
	for name, tt := range map[string]struct {
		breaks []func(*testing.T, node)
		says   string // of the summary
		fix    string
		opts   func(*host.HazardOptions)
	}{
		"all well":       {says: "ok: 14 checks, nothing to repair"},
		"conntrack full": {breaks: []func(*testing.T, node){set("net.netfilter.nf_conntrack_count", "260000")}, says: "warning: connection tracking in use: 260000 of 262144", fix: "sysctl -w net.netfilter.nf_conntrack_max=524288"},
		"long chains": {breaks: []func(*testing.T, node){file("sys/module/ip_vs/parameters/conn_tab_bits", "8"), file("proc/net/ip_vs", strings.Replace(ipvsList, "     3          4", "  3000       4000", 1))},
			says: "warning: ipvs connections: 7000 connections in 256 buckets: each lookup walks 27 entries", fix: "conn_tab_bits=13"},
		"bridge without rules": {breaks: []func(*testing.T, node){set("net.bridge.bridge-nf-call-iptables", "0")}, says: "warning: bridged traffic: cni0", fix: "sysctl -w net.bridge.bridge-nf-call-iptables=1"},
		"br_netfilter missing": {breaks: []func(*testing.T, node){func(t *testing.T, n node) { n.Remove(t, "proc/sys/net/bridge/bridge-nf-call-iptables") }},
			says: "warning: bridged traffic: cni0", fix: "modprobe br_netfilter"},
		"vxlan on an old kernel": {breaks: []func(*testing.T, node){set("kernel.osrelease", "4.15.0-20")}, says: "warning: vxlan checksum offload: flannel.1", fix: "ethtool -K flannel.1 tx-checksum-ip-generic off"},
		"vxlan without offload": {breaks: []func(*testing.T, node){set("kernel.osrelease", "4.15.0-20")}, says: "ok: 14 checks",
			opts: func(o *host.HazardOptions) { o.ChecksumOffload = func(string) (bool, error) { return false, nil } }},
		"vxlan not told": {breaks: []func(*testing.T, node){set("kernel.osrelease", "4.15.0-20")}, says: "failed: vxlan checksum offload: read whether flannel.1", fix: "root",
			opts: func(o *host.HazardOptions) {
				o.ChecksumOffload = func(string) (bool, error) { return false, errors.New("no") }
			}},
		"two uplinks": {breaks: []func(*testing.T, node){link("eth1", ""), file("sys/class/net/eth1/device/vendor", "1")},
			says: "warning: reverse path filter: strict on eth0, and this machine has 2 uplinks", fix: "sysctl -w net.ipv4.conf.eth0.rp_filter=2"},
		"strict everywhere": {breaks: []func(*testing.T, node){link("eth0.7", "vlan"), set("net.ipv4.conf.all.rp_filter", "1"), file("proc/sys/net/ipv4/conf/eth0.7/rp_filter", "0")},
			says: "strict on eth0, eth0.7", fix: "net.ipv4.conf.eth0/7.rp_filter=2"},
		"MetalLB":               {breaks: []func(*testing.T, node){process("speaker")}, says: "warning: strict arp: speaker (MetalLB) runs", fix: "--ipvs-strict-arp"},
		"keepalived":            {breaks: []func(*testing.T, node){process("keepalived")}, says: "warning: other owners of ipvs: keepalived is running", fix: "--ipvs-exclude-cidrs"},
		"kube-vip, strict":      {breaks: []func(*testing.T, node){process("kube-vip")}, says: "warning: other owners of ipvs: kube-vip is running", fix: "lb_enable=false", opts: func(o *host.HazardOptions) { o.StrictARP = true }},
		"kube-proxy":            {breaks: []func(*testing.T, node){process("kube-proxy")}, says: "warning: kube-proxy: kube-proxy is running", fix: "delete daemonset kube-proxy"},
		"kube-proxy not seen":   {breaks: []func(*testing.T, node){file("proc/net/tcp", socketsHead+socket("00000000:2810", "0A"))}, says: "warning: kube-proxy: a process listens on port 10256", fix: "ss -ltnp 'sport = :10256'"},
		"an agent on that port": {breaks: []func(*testing.T, node){file("proc/net/tcp", socketsHead+socket("00000000:2810", "0A"))}, says: "ok: 14 checks", opts: func(o *host.HazardOptions) { o.Running = true }},
		"our image, started as kube-proxy": {breaks: []func(*testing.T, node){process("kube-proxy"), func(t *testing.T, n node) {
			if err := os.Symlink("/usr/local/bin/kube-ipvs", n.Path("proc/7/exe")); err != nil {
				t.Fatal(err)
			}
		}}, says: "ok: 14 checks"},
		"Cilium":      {breaks: []func(*testing.T, node){link("cilium_host", ""), file("sys/fs/bpf/tc/globals/cilium_lb4_reverse_sk", "")}, says: "warning: network plug-in: the kube-proxy replacement of Cilium translates sockets of pods", fix: "kube-proxy-replacement false"},
		"Calico eBPF": {breaks: []func(*testing.T, node){link("bpfin.cali", "")}, says: "warning: network plug-in: the eBPF mode of Calico serves Services", fix: `"bpfEnabled":false`},
		"local ports": {breaks: []func(*testing.T, node){set("net.ipv4.ip_local_port_range", "1024 65535"), set("net.ipv4.ip_local_reserved_ports", "9100")},
			says: "warning: node port range: outgoing connections of this node may use ports 30000-32767", fix: "ip_local_reserved_ports=9100,30000-32767"},
		"local ports, reserved":        {breaks: []func(*testing.T, node){set("net.ipv4.ip_local_port_range", "1024 65535"), set("net.ipv4.ip_local_reserved_ports", "30000-31000,31001-32767")}, says: "ok: 14 checks"},
		"a sysctl that the agent sets": {breaks: []func(*testing.T, node){set("net.ipv4.ip_forward", "0")}, says: "ok: 14 checks"},
		"a strange count":              {breaks: []func(*testing.T, node){set("net.netfilter.nf_conntrack_count", "many")}, says: "failed: connection tracking in use", fix: "root"},
	} {
		t.Run(name, func(t *testing.T) {
			n := well(t)
			for _, b := range tt.breaks {
				b(t, n)
			}
			o := options()
			if tt.opts != nil {
				tt.opts(&o)
			}
			verdicts := diagnosis.Run(t.Context(), n.host(t).Hazards(o))
			if got := summary(t, verdicts); !strings.Contains(got, tt.says) {
				t.Errorf("the first lines lack %q:\n%s", tt.says, got)
			}
			bad := 0
			for _, v := range verdicts {
				if v.State == diagnosis.OK {
					continue
				}
				bad++
				if tt.fix == "" || !strings.Contains(v.Fix, tt.fix) && v.Name != "strict arp" {
					t.Errorf("%+v, want the remedy %q", v, tt.fix)
				}
			}
			if (bad == 0) != (tt.fix == "") {
				t.Errorf("%d found, want the remedy %q", bad, tt.fix)
			}
		})
	}
}

// systemd-networkd manages the device, or does not, or there is no answer.
func TestHazardsNameNetworkd(t *testing.T) {
	const unmanage = `printf '[Match]\nName=kube-ipvs0\n[Link]\nUnmanaged=yes\n' > /etc/systemd/network/00-kube-ipvs0.network && networkctl reload`
	manages := func(as string) string {
		return "systemd-networkd manages kube-ipvs0 as " + as + " says: networkctl reconfigure deletes the addresses of Services, until the agent binds them again"
	}
	state := func(lines ...string) []string {
		return append([]string{"# This is private data. Do not parse."}, lines...)
	}
	for name, tt := range map[string]struct {
		index string
		file  []string
		want  diagnosis.Verdict
	}{
		"no device":         {},
		"no file":           {index: "7", want: diagnosis.Verdict{Detail: "no state of kube-ipvs0 in /run/systemd/netif/links; a container does not see that of its node"}},
		"of another link":   {index: "8", file: state("ADMIN_STATE=configured"), want: diagnosis.Verdict{Detail: "no state of kube-ipvs0 in /run/systemd/netif/links; a container does not see that of its node"}},
		"unmanaged":         {index: "7", file: state("ADMIN_STATE=unmanaged", "OPER_STATE=off"), want: diagnosis.Verdict{Detail: "kube-ipvs0 is unmanaged"}},
		"not decided":       {index: "7", file: state("ADMIN_STATE=pending")},
		"of another format": {index: "7", file: []string{`{"state": "configured"}`}},
		"configured": {index: "7", file: state("ADMIN_STATE=configured", "OPER_STATE=off", "NETWORK_FILE=/etc/systemd/network/10-all.network", "DNS="),
			want: diagnosis.Verdict{State: diagnosis.Warn, Detail: manages("/etc/systemd/network/10-all.network"), Fix: unmanage}},
		"configuring": {index: "7", file: state("ADMIN_STATE=configuring"), want: diagnosis.Verdict{State: diagnosis.Warn, Detail: manages("a .network file"), Fix: unmanage}},
		"failed":      {index: "7", file: state("ADMIN_STATE=failed"), want: diagnosis.Verdict{State: diagnosis.Warn, Detail: manages("a .network file"), Fix: unmanage}},
	} {
		t.Run(name, func(t *testing.T) {
			n := well(t)
			if tt.index != "" {
				n.link(t, device, "")
				n.File(t, "sys/class/net/kube-ipvs0/ifindex", tt.index)
			}
			if tt.file != nil {
				n.File(t, "run/systemd/netif/links/7", strings.Join(tt.file, "\n"))
			}
			if tt.want.Name = "systemd-networkd"; tt.want.State == "" {
				tt.want.State = diagnosis.OK
			}
			if diff := cmp.Diff(tt.want, verdictOf(t, diagnosis.Run(t.Context(), n.host(t).Hazards(options())), "systemd-networkd")); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHazardsOfRules(t *testing.T) {
	n := well(t)
	o := options()
	o.IPVS = false
	for _, c := range n.host(t).Hazards(o) {
		if strings.Contains(c.Name, "ipvs") || c.Name == "strict arp" {
			t.Errorf("check %q without IPVS", c.Name)
		}
	}
}

func TestHazardsWithoutARunDirectory(t *testing.T) {
	n := well(t)
	nodefs.WriteFile(t, n.Run, "a file is in the way", 0o600)
	n.Run = filepath.Join(n.Run, "below")
	v := verdictOf(t, diagnosis.Run(t.Context(), n.host(t).Hazards(options())), "run directory")
	if v.State != diagnosis.Lacks || !strings.Contains(v.Fix, "--run-dir") {
		t.Errorf("%+v, want missing with another --run-dir", v)
	}
}

// TestHazardsNameLargeDatagrams: only where pods on a bridge meet IPVS over IPv6, and it is no warning: nothing is to be mended.
func TestHazardsNameLargeDatagrams(t *testing.T) {
	for _, tt := range []struct {
		ipvs, ipv6, bridge, named bool
	}{{true, true, true, true}, {false, true, true, false}, {true, false, true, false}, {true, true, false, false}} {
		n, o := well(t), options()
		o.IPVS, o.IPv6 = tt.ipvs, tt.ipv6
		if !tt.bridge {
			if err := os.RemoveAll(n.Path("sys/class/net/cni0/brif")); err != nil {
				t.Fatal(err)
			}
		}
		v := verdictOf(t, diagnosis.Run(t.Context(), n.host(t).Hazards(o)), "bridged traffic")
		if v.State != diagnosis.OK || strings.Contains(v.Detail, "EMSGSIZE") != tt.named {
			t.Errorf("%+v: %+v", tt, v)
		}
	}
}

// A sysctl that the agent needs is missing, and one that it wants is a warning.
func TestHazardsTellWhatIsLost(t *testing.T) {
	space := func(r host.DiskSpace, err error) func(*host.HazardOptions) {
		return func(o *host.HazardOptions) { o.DiskSpace = func(string) (host.DiskSpace, error) { return r, err } }
	}
	socket := func(err error) func(*host.HazardOptions) {
		return func(o *host.HazardOptions) { o.RawSocket = func() error { return err } }
	}
	for name, tt := range map[string]struct {
		check     string
		lacks     func(*host.HazardOptions)
		state     diagnosis.State
		says, fix string
	}{
		"no bytes":      {"run directory", space(host.DiskSpace{Files: 1}, nil), diagnosis.Warn, "cleanup would not restore", "free space"},
		"no files":      {"run directory", space(host.DiskSpace{Bytes: 1}, nil), diagnosis.Lacks, "the agent would not start", "--run-dir"},
		"unknown":       {"run directory", space(host.DiskSpace{}, errors.New("no")), diagnosis.Failed, "read the free space", "root"},
		"CAP_NET_RAW":   {"sets in rules", socket(os.NewSyscallError("socket", unix.EPERM)), diagnosis.Lacks, "serve no new Services", "grant CAP_NET_RAW"},
		"no descriptor": {"sets in rules", socket(unix.EMFILE), diagnosis.Failed, "too many open files", "root"},
	} {
		t.Run(name, func(t *testing.T) {
			o := options()
			tt.lacks(&o)
			v := verdictOf(t, diagnosis.Run(t.Context(), well(t).host(t).Hazards(o)), tt.check)
			if v.State != tt.state || !strings.Contains(v.Detail, tt.says) || !strings.Contains(v.Fix, tt.fix) {
				t.Errorf("%+v, want %s, %q and %q", v, tt.state, tt.says, tt.fix)
			}
		})
	}
}

// Rules of iptables mode name no sets.
func TestHazardsOfRulesNeedsNoRawSocket(t *testing.T) {
	o := options()
	o.IPVS, o.RawSocket = false, func() error { return unix.EPERM }
	for _, v := range diagnosis.Run(t.Context(), well(t).host(t).Hazards(o)) {
		if v.State != diagnosis.OK {
			t.Errorf("%+v, want all well", v)
		}
	}
}

func TestListeners(t *testing.T) {
	n := well(t)
	n.File(t, "proc/net/tcp", socketsHead+socket("00000000:7530", "0A")+socket("0100007F:7531", "0A")+socket("0A000001:7532", "01"))
	n.File(t, "proc/net/tcp6", socketsHead+socket("00000000000000000000000000000000:7530", "0A")+socket("00000000000000000000000001000000:7533", "0A"))
	n.File(t, "proc/net/udp", socketsHead+socket("00000000:0035", "07")+socket("00000000:0036", "01"))
	got, err := n.host(t).Listeners()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]host.Listener{{Port: 53}, {TCP: true, Port: 30000}}, got); diff != "" {
		t.Errorf("listeners (-want +got):\n%s", diff)
	}
}
