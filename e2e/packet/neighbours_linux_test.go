package packet

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/e2e/load"
	"github.com/kube-ipvs/kube-ipvs/e2e/transcript"
	"github.com/kube-ipvs/kube-ipvs/internal/agent"
)

// moreForeign is further state of other programs: rules of the other iptables backend, sets of all
// kinds, and a table of nftables. It also has routes, a local one among them, and the addresses of
// other owners of virtual servers.
const moreForeign = `
ipset create OTHER-NETS hash:net
ipset add OTHER-NETS 203.0.0.0/16
ipset create KUBE-SETS list:set
ipset add KUBE-SETS OTHER-NETS
iptables-nft -t raw -A PREROUTING -s 198.51.100.2/32 -j DROP
iptables-legacy -A INPUT -s 198.51.100.3/32 -j DROP
iptables-legacy -t nat -N LEGACY-OTHER
iptables-legacy -t nat -A POSTROUTING -s 198.51.100.4/32 -j LEGACY-OTHER
ip6tables-legacy -t mangle -N LEGACY-OTHER
` + foreignTables + `
ip route add 198.18.77.0/24 dev nowhere
ip route add local 198.18.78.0/24 dev lo
ip route add default dev nowhere table 77
ip rule add from 198.18.79.0/24 lookup 77
ip addr add 172.16.2.1/32 dev nowhere
ip addr add fd00:172::21/128 dev nowhere nodad
ip addr add 172.16.3.1/32 dev nowhere`

// foreignTables are those of nftables that no iptables knows.
const foreignTables = `nft -f - <<-NFT
	table inet other {
		set senders { type ipv4_addr; elements = { 198.51.100.5 }; }
		chain forward { type filter hook forward priority 10; policy accept; ip saddr @senders drop; }
	}
	table bridge other {
		chain forward { type filter hook forward priority 0; policy accept; }
	}
NFT`

// keepalivedConf has virtual servers at addresses and by a firewall mark, all without checks. The node's pod-3 serves them.
const keepalivedConf = `
virtual_server 172.16.2.1 80 {
	lvs_sched wrr
	lvs_method NAT
	protocol TCP
	real_server 10.244.0.3 8080 {
		weight 3
	}
}
virtual_server fd00:172::21 80 {
	lvs_sched rr
	lvs_method NAT
	protocol TCP
	real_server fd00:10:244::3 8080 {
		weight 1
	}
}
virtual_server fwmark 77 {
	lvs_sched wlc
	lvs_method DR
	real_server 10.244.0.3 0 {
		weight 1
	}
}
`

// kubeVIP sees to its own virtual server all the time.
const kubeVIP = `while sleep 1; do
	ipvsadm -A -t 172.16.3.1:6443 -s rr -p 50 || true
	ipvsadm -a -t 172.16.3.1:6443 -r 10.244.0.3:8080 -m || true
done 2>/dev/null`

// neighbours are other software on a node, with objects of every kind that the agent has, too.
type neighbours struct {
	*node
	dir    string // the text of their rules, a file for each table, and of their sets and servers
	client *load.Run
	w      *world
	stop   func() // ends keepalived
}

// ruleTables are the tables of iptables with something foreign.
var ruleTables = []string{"iptables filter", "iptables nat", "iptables mangle", "iptables raw", "ip6tables filter", "ip6tables nat", "ip6tables mangle"}

// newNeighbours moves in before the agent.
func newNeighbours(t *testing.T, w *world) *neighbours {
	t.Helper()
	w.pod3.serve(t, 8080)
	n := &neighbours{node: w.node, dir: t.TempDir(), w: w}
	n.run(t, "sh", "-ec", foreign+moreForeign, "sh", "nft")
	n.shell(t, "ipvsadm -Sn >"+n.file("servers"))
	for _, table := range ruleTables {
		program, name, _ := strings.Cut(table, " ")
		n.shell(t, program+"-nft-save -t "+name+" >"+n.file(table))
	}
	n.shell(t, "ipset save >"+n.file("sets"))
	n.must(t, os.WriteFile(n.file("keepalived.conf"), []byte(keepalivedConf), 0o600))
	n.background(t, "sh", "-c", kubeVIP)
	n.keepalived(t)
	n.connect(t)
	n.addressed(t)
	return n
}

// addressed waits until each link has its link-local address. The kernel adds it and its routes some time after the link is up, and a view
// would change by itself.
func (n *neighbours) addressed(t *testing.T) {
	t.Helper()
	poll(t, "link-local addresses", settleTimeout, func() error {
		links, err := n.links.LinkList()
		if err != nil {
			return err
		}
		for _, l := range links {
			if l.Attrs().Flags&net.FlagLoopback != 0 || l.Attrs().OperState != netlink.OperUp {
				continue
			}
			addrs, err := n.links.AddrList(l, netlink.FAMILY_V6)
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(addrs, func(a netlink.Addr) bool { return a.IP.IsLinkLocalUnicast() && a.Flags&unix.IFA_F_TENTATIVE == 0 }) {
				return fmt.Errorf("%s has none", l.Attrs().Name)
			}
		}
		return nil
	})
}

func (n *neighbours) file(name string) string {
	return filepath.Join(n.dir, strings.ReplaceAll(name, " ", "-"))
}

// keepalived is started, or started again, and waited for.
func (n *neighbours) keepalived(t *testing.T) {
	t.Helper()
	if n.stop != nil {
		n.stop()
	}
	n.stop = n.background(t, "keepalived", "--dont-fork", "--log-console", "--check", "--use-file", n.file("keepalived.conf"),
		"--pid", n.file("pid"), "--checkers_pid", n.file("checkers-pid"))
	poll(t, "the virtual servers of others", settleTimeout, func() error {
		if got := n.run(t, "ipvsadm", "-Sn"); strings.Count(got, "-A ") < 3+3+1 || strings.Count(got, ":8080 ")+strings.Count(got, "10.244.0.3:0 ") < 4 {
			return fmt.Errorf("they are\n%s", got)
		}
		return nil
	})
}

// connect has a client hold connections to a virtual server of keepalived.
func (n *neighbours) connect(t *testing.T) {
	t.Helper()
	if n.client != nil {
		_, _ = n.client.Stop() // connections that were cut are counted already
	}
	n.client = n.w.outside.load(t, load.Profile{To: netip.MustParseAddrPort("172.16.2.1:80"), Long: 3, Every: time.Second})
	until(t, n.client, "connections to a server of keepalived", func(r load.Report) bool { return r.Long.Alive == 3 })
}

// remake restores rows of other programs that a damage deleted: another program may damage them,
// and the agent does not care.
func (n *neighbours) remake(t *testing.T, hit ...string) {
	t.Helper()
	for _, what := range hit {
		switch what {
		case "forwarding": // the agent turns it on again, and a request that waited longer than its time-out is over by then
		case "servers":
			n.shell(t, "ipvsadm -R <"+n.file("servers"))
			n.keepalived(t)
		case "sets":
			n.shell(t, "ipset -exist restore <"+n.file("sets"))
		case "nftables":
			n.shell(t, foreignTables)
		default:
			program, _, _ := strings.Cut(what, " ")
			n.shell(t, program+"-nft-restore --noflush <"+n.file(what))
		}
	}
}

// restScript prints what look leaves out: other objects of other programs, and settings.
const restScript = `
echo ==legacy4; iptables-legacy-save | grep '^[*-]'
echo ==legacy6; ip6tables-legacy-save | grep '^[*-:]' | sed 's/ \[.*//'
echo ==nftables; nft list table inet other; nft list table bridge other
echo ==routes; ip route show table all; ip -6 route show table all; ip rule; ip -6 rule
echo ==settings; ipvsadm --list --timeout; sysctl net.ipv4.vs.conntrack net.ipv4.vs.expire_nodest_conn net.ipv4.ip_forward`

// all reads all rows, with the rules of other programs apart, because their order is undefined.
func (n *neighbours) all(t *testing.T) view {
	t.Helper()
	v := n.look(t, "nft")
	maps.Copy(v, n.show(t, restScript, ""))
	for _, kind := range []string{"rules4", "rules6"} {
		mine, theirs := []string{}, []string{}
		for _, line := range v[kind] {
			if strings.Contains(line, "KUBE-") && !strings.Contains(line, "KUBE-FIREWALL") && !strings.Contains(line, "KUBE-OTHER") {
				mine = append(mine, line)
			} else {
				theirs = append(theirs, line)
			}
		}
		v[kind], v["foreign "+kind] = mine, theirs
	}
	return v
}

// background runs a program with all that it starts until the test ends, or the function that it returns is called.
func (s *space) background(t *testing.T, name string, args ...string) (stop func()) {
	t.Helper()
	output := &transcript.Transcript{}
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second
	if err := s.do(cmd.Start); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it is killed
		close(done)
	}()
	stop = func() {
		if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Errorf("end %s: %v", name, err)
		}
		<-done
	}
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			t.Logf("output of %s:\n%s", name, output.Tail())
		}
	})
	return stop
}

// again repeats a script, so that its effect in the kernel persists in spite of repairs, until the
// test ends or the returned function is called.
func (s *space) again(t *testing.T, script string) (stop func()) {
	t.Helper()
	return s.background(t, "sh", "-c", "while :; do { "+script+"; } >/dev/null 2>&1; sleep 0.2; done")
}

// cni is a plug-in that writes its chains again each second, and puts its jumps before all others.
const cni = `while :; do
	for ip in iptables ip6tables; do
		for jump in "filter FORWARD" "nat POSTROUTING" "nat PREROUTING"; do
			$ip-nft -t ${jump% *} -D ${jump#* } -j CNI-${jump#* } || true
		done 2>/dev/null
		$ip-nft-restore --noflush <<-RULES
			*filter
			:CNI-FORWARD - [0:0]
			-A CNI-FORWARD -p tcp --dport 9 -j ACCEPT
			-I FORWARD -j CNI-FORWARD
			COMMIT
			*nat
			:CNI-POSTROUTING - [0:0]
			:CNI-PREROUTING - [0:0]
			-A CNI-POSTROUTING -p tcp --dport 9 -j MASQUERADE
			-A CNI-PREROUTING -p tcp --dport 9 -j ACCEPT
			-I POSTROUTING -j CNI-POSTROUTING
			-I PREROUTING -j CNI-PREROUTING
			COMMIT
		RULES
	done
	echo written
	sleep 1
done`

// TestPluginRewritesItsChains: another program writes rules all the time. The agent looks, and
// writes nothing; no request is lost.
func TestPluginRewritesItsChains(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web := w.web(t)
	n := newAgent(t, w.node, "--cluster-cidr", clusters, "--ipvs-sync-period", "2s")
	n.write(t, web)
	n.start(t)
	want := ours(w.node.look(t, "nft"))
	runs := w.steady(t, web.vip)
	for _, run := range runs {
		more(t, run, 20)
	}
	before := n.settle(t, "have written everything", func(s agent.Status) bool { return s.Failures == 0 })
	cpu, begun := n.cpu(t), time.Now()
	n.background(t, "sh", "-c", cni)
	n.settle(t, "have audited beside the plugin", func(s agent.Status) bool { return s.Audits >= before.Audits+2 })
	cost, took := n.cpu(t)-cpu, time.Since(begun)
	now := n.settle(t, "have written everything", func(s agent.Status) bool { return s.Failures == 0 && s.Audits > before.Audits })
	if diff := cmp.Diff(before.Written, now.Written); diff != "" || now.Drifted != before.Drifted {
		t.Errorf("the agent wrote, and %d rows drifted (-before +now):\n%s", now.Drifted-before.Drifted, diff)
	}
	same(t, "the agent's own rows", want, ours(w.node.look(t, "nft")))
	t.Logf("figure: rules of others written each second for %s: %d audits, %s of CPU", took.Round(time.Second), now.Audits-before.Audits, cost)
	settled(t, runs, 5)
}

// takes reports whether a damage also deletes rows of other programs, of some kinds.
func (d damage) takes(kinds ...string) bool {
	return slices.ContainsFunc(d.hits, func(hit string) bool {
		return slices.ContainsFunc(kinds, func(kind string) bool { return strings.HasPrefix(hit, kind) })
	})
}

// connected requires connections held open to a neighbour's server to live on, unless the damage was to them.
func (n *neighbours) connected(t *testing.T, after damage) {
	t.Helper()
	if after.takes("forwarding", "servers", "iptables", "ip6tables", "nftables") {
		n.connect(t)
		return
	}
	if r := n.client.Report(); r.Long.Alive != 3 {
		t.Errorf("connections of others:\n%s", report(r))
	}
}

// asked are the new connections that were answered, or not.
func asked(r load.Report) int { return r.OK + r.Failures() }

// lockHeld is how long another program holds the lock of legacy's tools: twice the deadline of a call that waits for it.
const lockHeld = 20 * time.Second

// TestRulesLockHeld has another program hold the lock of legacy's tools, as one does that hangs. Requests and connections go on,
// and endpoints change all the time; changes that need rules wait, are reported as pending, and are there when the lock is free.
func TestRulesLockHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web := w.web(t)
	w.pod3.serve(t, 8080)
	lock := filepath.Join(t.TempDir(), "xtables.lock") // others in this machine use their own
	n := newAgent(t, w.node, "--cluster-cidr", clusters, "--iptables-backend", "legacy")
	n.writeFile(t, "nodes.yaml", w.nodes())
	n.write(t, web)
	n.launch(t, append([]string{"env", "XTABLES_LOCKFILE=" + lock, program()}, n.flags...))
	n.settle(t, "be ready", func(s agent.Status) bool { return s.Ready && s.Failures == 0 })
	runs := w.steady(t, web.vip)
	rows := w.node.watch(t)

	held, err := os.OpenFile(lock, os.O_RDWR|os.O_CREATE, 0o600)
	w.node.must(t, err)
	w.node.must(t, unix.Flock(int(held.Fd()), unix.LOCK_EX))
	begun, cpu, called := time.Now(), n.cpu(t), n.metric(t, ruleCalls)
	detour := numberedService(4) // its clients on this node have a rule of their own
	detour.backends, detour.internalLocal, detour.externalLocal = endpoints(w.pod1, w.remote1), true, true
	n.write(t, detour)

	var took []time.Duration
	most := 0
	pod3 := serving{"TCP", netip.MustParseAddrPort(hostPort(web.vip.v4, 80)), netip.MustParseAddrPort(hostPort(w.pod3.addr.v4, 8080))}
	for time.Since(begun) < lockHeld {
		web.backends = endpoints(w.pod1, w.pod2, w.remote1)
		wanted := len(took)%2 == 0
		if wanted {
			web.backends = append(web.backends, endpoints(w.pod3)...)
		}
		start := time.Now()
		n.write(t, web)
		rows.until(t, "an endpoint to change while the lock is held", func(rows map[serving]row) bool {
			most = max(most, n.children(t))
			return rows[pod3].weight > 0 == wanted
		})
		took = append(took, time.Since(start))
		time.Sleep(time.Second)
	}
	s, err := n.status()
	w.node.must(t, err)
	healthz := n.page(t, "/healthz")
	calls := n.metric(t, ruleCalls) - called
	if s.Failures == 0 || !strings.Contains(s.LastError, "xtables lock") {
		t.Errorf("%d failures, %q: want the lock to be named", s.Failures, s.LastError)
	}
	cost := n.cpu(t) - cpu
	w.node.must(t, held.Close())
	free := time.Now()
	n.quiet(t)
	done := time.Since(free)
	slices.Sort(took)
	t.Logf("figure: lock held for %s: %d changes of endpoints took %s, at most %s; %d failures, %.0f processes for rules, at most %d at once, %s of CPU; "+
		"all was written %s after it was free", lockHeld, len(took), quantile(took, 0.5).Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond),
		s.Failures, calls, most, cost, done.Round(time.Millisecond))
	t.Logf("figure: meanwhile /healthz said %s, and status %s", healthz, s.LastError)
	put(t, []any{"Service", "client"}, ask("detour", w.host(), detour.lb, 80, by(w.pod1, w.remote1).any()))
	for _, run := range runs {
		got, err := run.Stop()
		t.Logf("figure: of %d new connections %d failed, at most %s late; of %d held open %d live",
			got.Started, got.Failures(), got.Late.Round(time.Millisecond), len(got.Long.Conns), got.Long.Alive)
		if got.Late >= patience/2 {
			t.Logf("not judged: this machine stood still for %s, and a request may take %s", got.Late.Round(time.Millisecond), patience)
			continue
		}
		unfailing(t, got, err)
	}
}

// ruleCalls is how many processes were started for rules.
const ruleCalls = `kube_ipvs_kernel_call_duration_seconds_count{room="rules"}`

// children are how many processes the agent has right now.
func (n *proxy) children(t *testing.T) int {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", n.process.Process.Pid))
	n.must(t, err)
	if len(lists) == 0 {
		t.Fatal("this kernel does not tell of children")
	}
	count := 0
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // a thread that has ended
			t.Fatal(err)
		}
		count += len(strings.Fields(string(text)))
	}
	return count
}
