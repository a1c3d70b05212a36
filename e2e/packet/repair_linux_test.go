package packet

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// loss is something that another program deletes, and a command whose output differs until it is
// back.
type loss struct {
	name, script, probe string
	// large: a sample or an event tells of it, no audit is needed.
	large bool
}

const (
	listBound   = "ip -o addr show dev kube-ipvs0 2>/dev/null | wc -l"
	listServers = "ipvsadm -Sn | wc -l"
)

// loseDestination takes one from the third of the numbered Services.
var loseDestination = fmt.Sprintf("ipvsadm -d -t 10.100.0.3:80 -r %s:8080", numberedEndpoint(2, 0).addr)

var lossesOfIPVS = []loss{
	{"every virtual server", "ipvsadm -C", listServers, true},
	{"one virtual server", "ipvsadm -D -t 10.100.0.3:80", listServers, false},
	{"one destination", loseDestination, listServers, false},
	{"flags of a scheduler", "ipvsadm -E -t 10.100.0.3:80 -s rr -b flag-1", "ipvsadm -Sn | grep 10.100.0.3:80 | grep -c flag || true", false},
	{"every entry of a set", "ipset flush KUBE-CLUSTER-IP", "ipset list -t KUBE-CLUSTER-IP | grep entries", true},
	{"one entry", "ipset del KUBE-CLUSTER-IP 10.100.0.3,tcp:80", "ipset list -t KUBE-CLUSTER-IP | grep entries", true},
	{"rules of a chain", "iptables-nft -t nat -F KUBE-MARK-MASQ", "iptables-nft -t nat -S KUBE-MARK-MASQ", false},
	{"a jump", `iptables-nft -t nat -D PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`, "iptables-nft -t nat -S PREROUTING", true},
	{"an address", "ip addr del 10.100.0.3/32 dev kube-ipvs0", listBound, true},
	{"the device", "ip link del kube-ipvs0", listBound, true},
	{"a sysctl", "sysctl -qw net.ipv4.vs.conntrack=0", "sysctl -n net.ipv4.vs.conntrack", true},
}

var lossesOfIPTables = []loss{
	{"every rule of nat", "iptables-nft -t nat -F", "iptables-nft -t nat -S | wc -l", true},
	{"rules of a chain", "iptables-nft -t nat -F KUBE-MARK-MASQ", "iptables-nft -t nat -S KUBE-MARK-MASQ", false},
	{"one rule of all Services", "iptables-nft -t nat -D KUBE-SERVICES 1", "iptables-nft -t nat -S KUBE-SERVICES | wc -l", false},
	{"a jump", `iptables-nft -t nat -D PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`, "iptables-nft -t nat -S PREROUTING", true},
	{"a sysctl", "sysctl -qw net.ipv4.ip_forward=0", "sysctl -n net.ipv4.ip_forward", true},
}

// suffer has a node lose something and waits until it is back.
func (n *proxy) suffer(t *testing.T, l loss) time.Duration {
	t.Helper()
	want := n.shell(t, l.probe)
	n.shell(t, l.script)
	start := time.Now()
	poll(t, l.name+" to be back", settleTimeout, func() error {
		if got := n.shell(t, l.probe); got != want {
			return fmt.Errorf("%s: %q, want %q", l.probe, got, want)
		}
		return nil
	})
	took := time.Since(start)
	n.quiet(t)
	return took
}

// TestLargeLossesNeedNoAudit: sets, tables and chains that are lost as a whole are back though the next audit is an hour away.
func TestLargeLossesNeedNoAudit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	for i := range 10 {
		n.write(t, numbered(i))
	}
	n.start(t)
	for _, l := range lossesOfIPVS {
		if l.large {
			n.suffer(t, l)
		}
	}
}

// TestIPTablesLargeLossesNeedNoAudit is the same in iptables mode.
func TestIPTablesLargeLossesNeedNoAudit(t *testing.T) {
	needKernel(t)
	t.Parallel()
	w := iptablesWorld(t)
	n := newAgent(t, w.node, inIPTables("nft", "--cluster-cidr", clusters)...)
	for i := range 10 {
		n.write(t, numbered(i))
	}
	n.start(t)
	for _, l := range lossesOfIPTables {
		if l.large {
			n.suffer(t, l)
		}
	}
}

// TestAuditVerb: an operator who does not wait for the next audit asks for one, and it names what it finds and repairs.
func TestAuditVerb(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	for i := range 500 { // so that no sample is likely to come first
		n.write(t, numbered(i))
	}
	n.start(t)
	n.shell(t, loseDestination)
	out := n.run(t, program(), append([]string{"audit"}, n.flags...)...)
	for _, want := range []string{"1 row was not as desired: repaired", "-a -t 10.100.0.3:80 -r "} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if out := n.run(t, program(), append([]string{"audit"}, n.flags...)...); !strings.Contains(out, "the kernel is as desired") {
		t.Errorf("after the repair:\n%s", out)
	}
}

// TestRepairTimes measures, with the default sync period, how long each loss takes to be repaired, and what an idle minute
// costs, at the numbers of Services that KUBE_IPVS_E2E_REPAIRS has.
func TestRepairTimes(t *testing.T) {
	sizes := strings.FieldsFunc(os.Getenv("KUBE_IPVS_E2E_REPAIRS"), func(r rune) bool { return r == ',' })
	if len(sizes) == 0 {
		t.Skip("measures: make stress WHAT=repairs")
	}
	table := newTable("mode", "Services", "loss", "repaired after", "idle CPU of a minute")
	for _, size := range sizes {
		services, err := strconv.Atoi(size)
		if err != nil {
			t.Fatal(err)
		}
		for _, mode := range []string{"ipvs", "iptables"} {
			t.Run(mode+"/"+size, func(t *testing.T) { measureRepairs(t, mode, services, table.row) })
		}
	}
	t.Logf("repairs with the default sync period\n%s", table)
}

func measureRepairs(t *testing.T, mode string, services int, row func(...any)) {
	w, flags, losses := buildWorld(t), []string{"--ipvs-sync-period", "30s"}, lossesOfIPVS
	if mode == "iptables" {
		flags, losses = append(inIPTables("nft"), "--iptables-sync-period", "30s"), lossesOfIPTables
	}
	n := newAgent(t, w.node, append(flags, "--cluster-cidr", clusters)...)
	for i := range services {
		n.write(t, numbered(i))
	}
	n.start(t)
	t.Run("idle", func(t *testing.T) {
		time.Sleep(time.Minute) // the work that a start defers is done by then
		before, err := n.status()
		if err != nil {
			t.Fatal(err)
		}
		began := n.cpu(t)
		time.Sleep(time.Minute) // the measured minute
		row(mode, services, "none", "", n.cpu(t)-began)
		if s, err := n.status(); err != nil || s.Drifted != before.Drifted {
			t.Errorf("an idle node drifted: %+v, %v", s, err)
		}
	})
	for _, l := range losses {
		t.Run(l.name, func(t *testing.T) { row(mode, services, l.name, n.suffer(t, l).Round(10*time.Millisecond), "") })
	}
}
