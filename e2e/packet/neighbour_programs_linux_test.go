package packet

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
	"github.com/kube-ipvs/kube-ipvs/e2e/load"
	"github.com/kube-ipvs/kube-ipvs/internal/diagnosis"
)

// This file runs other programs of a node beside the agent: the packages of Debian, as e2e/install.sh neighbours installs them.

// programsRoot is the variable that names the root file system with these programs.
const programsRoot = "KUBE_IPVS_E2E_NEIGHBOURS"

// needProgram skips where a program cannot run.
func needProgram(t *testing.T, path string) {
	t.Helper()
	root := os.Getenv(programsRoot)
	if root == "" {
		t.Skip("make stress WHAT=neighbours runs it")
	}
	if _, err := os.Stat(filepath.Join(root, path)); err != nil {
		t.Skipf("%s is not installed: e2e/install.sh neighbours", path)
	}
}

// A programRoot is the file system that programs of a node see: that of the machine, read-only, with all that they write in memory.
type programRoot struct {
	*node
	dir string
}

const makeRoot = `
mount -t tmpfs none "$2"
mkdir "$2/upper" "$2/work" "$2/root"
mount -t overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" none "$2/root"
cd "$2/root"
for dir in run tmp var/log; do mount -t tmpfs none $dir; done
mount -t proc none proc
mount -t sysfs -o ro none sys # with one that can be written NetworkManager and networkd wait for udev
mount -t devtmpfs none dev
mkdir run/dbus run/lock`

// newRoot mounts such a file system until the test ends.
func newRoot(t *testing.T, n *node) *programRoot {
	t.Helper()
	dir, err := os.MkdirTemp("", "root-") //nolint:usetesting // t.TempDir has the comma of the name of the test, which ends an option of mount
	n.must(t, err)
	t.Cleanup(func() {
		_, err := n.try("umount", "-R", "-l", dir)
		if err := errors.Join(err, os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	n.run(t, "sh", "-ec", makeRoot, "sh", os.Getenv(programsRoot), dir)
	return &programRoot{node: n, dir: filepath.Join(dir, "root")}
}

// inside is a command line that runs in the root.
func (r *programRoot) inside(args ...string) []string {
	return append([]string{"chroot", r.dir, "/usr/bin/env", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, args...)
}

// sh runs lines of shell in the root.
func (r *programRoot) sh(t *testing.T, script string) string {
	t.Helper()
	args := r.inside("sh", "-ec", script)
	return r.run(t, args[0], args[1:]...)
}

// daemon runs a program in the root until the test ends or the function that it returns is called.
func (r *programRoot) daemon(t *testing.T, args ...string) (stop func()) {
	t.Helper()
	args = r.inside(args...)
	return r.background(t, args[0], args[1:]...)
}

// bus runs the system's message bus.
func (r *programRoot) bus(t *testing.T) {
	t.Helper()
	r.sh(t, "dbus-uuidgen --ensure")
	r.daemon(t, "dbus-daemon", "--system", "--nofork", "--nopidfile")
	r.ready(t, "the message bus", "test -S /run/dbus/system_bus_socket")
}

// ready waits until a command succeeds.
func (r *programRoot) ready(t *testing.T, what, command string) {
	t.Helper()
	args := r.inside("sh", "-ec", command)
	poll(t, what, settleTimeout, func() error {
		out, err := r.try(args[0], args[1:]...)
		if err != nil {
			return fmt.Errorf("%w %s", err, out)
		}
		return nil
	})
}

// A shared node has an agent with one Service, and another program.
type sharedNode struct {
	*world
	root  *programRoot
	agent *proxy
	web   service
	loads []*load.Run
}

// newSharedNode has no agent running yet.
func newSharedNode(t *testing.T, rules string) *sharedNode {
	t.Helper()
	w := newWorld(t)
	w.pod1.serve(t, 8080)
	w.remote1.serve(t, 8080)
	n := &sharedNode{world: w, root: newRoot(t, w.node), web: numberedService(1)}
	n.web.backends = endpoints(w.pod1, w.remote1)
	n.agent = newAgent(t, w.node, "--detect-local-mode", "NodeCIDR", "--rules", rules)
	n.agent.writeFile(t, "nodes.yaml", w.nodes())
	n.agent.write(t, n.web)
	return n
}

// answers checks each frontend in each protocol.
func (n *sharedNode) answers(t *testing.T) {
	t.Helper()
	put(t, []any{"Service", "client"}, n.through(n.web))
}

// well waits until explain finds nothing.
func (n *sharedNode) well(t *testing.T) {
	t.Helper()
	poll(t, "all to be well", settleTimeout, func() error {
		out, err := n.agent.verb("explain", "test/"+n.web.name)
		if !strings.HasPrefix(out, "all is well") {
			return errors.Join(err, errors.New(out))
		}
		return err
	})
}

// load has a pod ask the ClusterIP, and a client outside the NodePort, until the test ends.
func (n *sharedNode) load(t *testing.T) {
	t.Helper()
	for _, one := range []struct {
		from *pod
		to   string
	}{
		{n.pod2, hostPort(n.web.vip.v4, 80)}, {n.outside, hostPort(fabAddr.v4, n.web.nodePort)},
		{n.pod2, hostPort(n.web.vip.v6, 80)}, {n.outside, hostPort(fabAddr.v6, n.web.nodePort)},
	} {
		n.loads = append(n.loads, one.from.load(t, load.Profile{To: netip.MustParseAddrPort(one.to), New: perSecond / 2, Long: 2, Every: time.Second}))
	}
	for _, run := range n.loads {
		until(t, run, "answers", func(r load.Report) bool { return r.OK > 10 && r.Long.Alive == 2 })
	}
}

// during has the other program do something under load. Afterwards our rows are as before, and requests are answered. The lines
// that the agent logs, and the requests that failed, are figures.
func (n *sharedNode) during(t *testing.T, what string, act func()) {
	t.Helper()
	want := ours(n.node.look(t, "nft"))
	logged := len(n.agent.output.String())
	var before []load.Report
	for _, run := range n.loads {
		before = append(before, run.Report())
	}
	act()
	for i, run := range n.loads {
		ok := run.Report().OK
		until(t, run, what+": answers afterwards", func(r load.Report) bool { return r.OK >= ok+20 })
		now := run.Report()
		t.Logf("figure: %s: client %d: of %d new connections %d failed (%v); of 2 held open %d live", what, i,
			now.OK+now.Failures()-before[i].OK-before[i].Failures(), now.Failures()-before[i].Failures(), now.Failed, now.Long.Alive)
	}
	n.agent.quiet(t)
	same(t, "our rows after: "+what, want, ours(n.node.look(t, "nft")))
	n.answers(t)
	t.Logf("figure: %s: the agent logged\n%s", what, n.agent.output.String()[logged:])
}

// theirs are the rows of firewalls, without ours and without counters.
func (n *sharedNode) theirs(t *testing.T) string {
	t.Helper()
	const script = `
for ip in iptables ip6tables; do $ip-nft-save | grep '^-' | grep -v KUBE- | sort; done
nft -s list ruleset | sed -n '/^table inet [^k]/,/^}/p'`
	return n.node.shell(t, script)
}

// TestNeighbourFirewalld: firewalld is on the node before the agent, blocks Services, and lets them pass after the commands that
// explain prints. Its reloads, a zone that changes, its end and its start leave Services as they are.
func TestNeighbourFirewalld(t *testing.T) {
	needProgram(t, "/usr/sbin/firewalld")
	for _, rules := range ruleStores {
		for _, kind := range []string{"nftables", "iptables"} {
			t.Run("firewalld in "+kind+", rules in "+rules, func(t *testing.T) {
				n := newSharedNode(t, rules)
				// The guest's kernel has no rpfilter of iptables.
				n.root.sh(t, "sed -i -e 's/^FirewallBackend=.*/FirewallBackend="+kind+"/' -e 's/^IPv6_rpfilter=.*/IPv6_rpfilter=no/' /etc/firewalld/firewalld.conf")
				n.root.bus(t)
				stop := n.root.firewalld(t)
				alone := n.theirs(t)
				n.agent.start(t)
				if now := n.theirs(t); now != alone {
					t.Errorf("the start of the agent changed rows of firewalld:\n%s\nthey were\n%s", now, alone)
				}
				cause, fails := "table inet firewalld, chain filter_IN_public", backend.Other
				if kind == "iptables" {
					cause, fails = "table iptables-nft filter, chain IN_public", backend.Refused
				}
				fixes := n.agent.named(t, cause)
				put(t, []any{"Service", "client"}, ask("walled", n.pod2, n.web.vip, 80, outcome{fails: fails}, backend.TCP))
				n.root.sh(t, strings.Join(fixes, "\n"))
				n.well(t)
				n.answers(t)
				n.load(t)
				for _, command := range []string{"firewall-cmd --reload", "firewall-cmd --complete-reload", "firewall-cmd --zone=work --change-interface=cni0"} {
					n.during(t, command, func() { n.root.sh(t, command) })
				}
				n.during(t, "firewalld ends", func() { n.root.sh(t, "pkill -TERM -x firewalld; while pgrep -x firewalld; do sleep 0.2; done") })
				stop()
				n.during(t, "firewalld starts", func() { n.root.firewalld(t) })
			})
		}
	}
}

// firewalld runs until the test ends.
func (r *programRoot) firewalld(t *testing.T) (stop func()) {
	t.Helper()
	stop = r.daemon(t, "firewalld", "--nofork", "--nopid")
	r.ready(t, "firewalld", "firewall-cmd --state")
	return stop
}

// TestNeighbourUFW: ufw is enabled, reloaded and disabled beside the agent. With rules in nftables it blocks Services until the
// commands of explain have run, which its reload keeps.
func TestNeighbourUFW(t *testing.T) {
	needProgram(t, "/usr/sbin/ufw")
	for _, rules := range ruleStores {
		t.Run("rules in "+rules, func(t *testing.T) {
			n := newSharedNode(t, rules)
			// The guest's kernel knows neither the hop limit nor the routing header of IPv6.
			n.root.sh(t, "sed -i -e 's/ -m hl --hl-eq [0-9]*//' -e '/ -m rt /d' /etc/ufw/before6.rules; sed -i s/^ENABLED=.*/ENABLED=no/ /etc/ufw/ufw.conf")
			n.agent.start(t)
			n.load(t)
			if rules == "iptables" {
				n.during(t, "ufw enable", func() { n.root.sh(t, "ufw --force enable") })
			} else {
				n.root.sh(t, "ufw --force enable")
				fixes := n.agent.named(t, "table iptables-nft filter, chain ")
				t.Logf("figure: explain prints\n%s", strings.Join(fixes, "\n"))
				n.agent.open(t, n.web)
			}
			n.well(t)
			for _, command := range []string{"ufw allow 22/tcp", "ufw reload"} {
				n.during(t, command, func() { n.root.sh(t, command) })
			}
			theirs := n.theirs(t) // with rules that come with the first reload
			for _, command := range []string{"ufw reload", "ufw disable", "ufw --force enable"} {
				n.during(t, command, func() { n.root.sh(t, command) })
			}
			if now := n.theirs(t); now != theirs {
				t.Errorf("rows of ufw are\n%s\nthey were\n%s", now, theirs)
			}
			n.well(t)
		})
	}
}

// TestNeighbourNFTablesService: the commands of nftables.service flush all rules of the node, ours among them.
func TestNeighbourNFTablesService(t *testing.T) {
	needProgram(t, "/usr/sbin/nft")
	for _, rules := range ruleStores {
		t.Run("rules in "+rules, func(t *testing.T) {
			n := newSharedNode(t, rules)
			n.agent.start(t)
			n.load(t)
			for _, command := range []string{"nft -f /etc/nftables.conf", `nft 'flush ruleset; include "/etc/nftables.conf";'`, "nft flush ruleset"} {
				n.during(t, command, func() { n.root.sh(t, command) })
			}
			n.well(t)
		})
	}
}

// checkNetworkd returns the item of check about systemd-networkd. The verb reads /sys of the node and /run of the root.
func (n *sharedNode) checkNetworkd(t *testing.T, says string) diagnosis.Item {
	t.Helper()
	const script = `mount -t sysfs sysfs /sys; mkdir -p /run/systemd; mount --bind "$0" /run/systemd; exec "$@"`
	args := append([]string{"-m", "sh", "-ec", script, filepath.Join(n.root.dir, "run/systemd"), program(), "check", "-o", "json"}, n.agent.flags...)
	var report diagnosis.Report
	if err := json.Unmarshal([]byte(n.node.run(t, "unshare", args...)), &report); err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(report.Items, func(i diagnosis.Item) bool { return i.Name == "systemd-networkd" })
	if at < 0 {
		t.Fatalf("no item about systemd-networkd in %+v", report)
	}
	item := report.Items[at]
	if !strings.HasPrefix(item.Detail, says) || (item.State == diagnosis.OK) != (item.Remedy == "") {
		t.Errorf("check: %+v, want %q", item, says)
	}
	return item
}

// TestNeighbourNetworkd: systemd-networkd manages the device of Services as a file that matches it says, and deletes addresses that it does
// not know from it. The remedy of check prevents that.
func TestNeighbourNetworkd(t *testing.T) {
	const program = "/lib/systemd/systemd-networkd"
	needProgram(t, program)
	const unmanaged = "kube-ipvs0 is unmanaged"
	for _, tt := range []struct{ name, section, state, says string }{
		{"a file matches all links", "[Network]\nLinkLocalAddressing=no", "configured", "systemd-networkd manages kube-ipvs0 as /etc/systemd/network/10-all.network says"},
		{"a file leaves the device alone", "[Link]\nUnmanaged=yes", "unmanaged", unmanaged},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newSharedNode(t, "iptables")
			n.root.bus(t)
			// The links of the test keep their addresses: a file for all would take those, too.
			n.root.sh(t, "mkdir -p /run/systemd/netif/links /run/systemd/netif/leases /run/systemd/netif/lldp; chown -R systemd-network: /run/systemd/netif\n"+
				"printf '[Match]\\nName=kube-ipvs*\\n"+strings.ReplaceAll(tt.section, "\n", `\n`)+"\\n' >/etc/systemd/network/10-all.network")
			n.agent.start(t)
			n.load(t)
			has := func(state string) string {
				return "grep -q ADMIN_STATE=" + state + " /run/systemd/netif/links/$(cat /sys/class/net/kube-ipvs0/ifindex)"
			}
			stop := func() {}
			start := func() {
				stop = n.root.daemon(t, program)
				n.root.ready(t, "networkd to see kube-ipvs0", has(tt.state))
			}
			reconfigure := func(state string) {
				n.during(t, "networkctl reconfigure, "+state, func() { n.root.sh(t, "networkctl reconfigure kube-ipvs0 2>&1 || true; sleep 1;"+has(state)) })
			}
			n.during(t, "networkd starts", start)
			item := n.checkNetworkd(t, tt.says)
			reconfigure(tt.state)
			stop()
			n.during(t, "networkd starts again", start)
			n.well(t)
			if item.State != diagnosis.OK {
				n.during(t, "the remedy of check", func() {
					n.root.sh(t, item.Remedy)
					n.root.ready(t, "networkd to leave kube-ipvs0 alone", has("unmanaged"))
				})
				n.checkNetworkd(t, unmanaged)
				reconfigure("unmanaged")
			}
		})
	}
}

// TestNeighbourNetworkManager: NetworkManager takes kube-ipvs0 for a link of others, until an operator tells it to manage the device.
func TestNeighbourNetworkManager(t *testing.T) {
	needProgram(t, "/usr/sbin/NetworkManager")
	n := newSharedNode(t, "iptables")
	n.root.bus(t)
	n.agent.start(t)
	n.load(t)
	n.during(t, "NetworkManager starts", func() {
		n.root.daemon(t, "NetworkManager", "--no-daemon")
		n.root.ready(t, "NetworkManager", "nmcli -t -f RUNNING general | grep -qx running")
	})
	for _, command := range []string{
		"nmcli device", "nmcli general reload", "nmcli device set kube-ipvs0 managed yes", "nmcli device disconnect kube-ipvs0", "nmcli device",
		"printf '[keyfile]\\nunmanaged-devices=interface-name:kube-ipvs0\\n' >/etc/NetworkManager/conf.d/kube-ipvs.conf; nmcli general reload",
		"nmcli device set kube-ipvs0 managed no", "nmcli device disconnect kube-ipvs0",
	} {
		n.during(t, command, func() {
			t.Logf("figure: %s prints\n%s", command, n.root.sh(t, "{ "+command+"; } 2>&1 || true; sleep 1"))
		})
	}
	n.well(t)
}
