package packet

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
)

// locked makes a node that lets nothing in and nothing through but what it is told: the neighbours it asks for, and itself.
const locked = `
for ip in iptables ip6tables; do
	$ip-nft -A INPUT -i lo -j ACCEPT
	$ip-nft -P INPUT DROP
	$ip-nft -P FORWARD DROP
done
ip6tables-nft -I INPUT -p ipv6-icmp -j ACCEPT`

// rhel is how /etc/sysconfig/iptables of RHEL ends INPUT, but that each neighbour's solicitations come in.
const rhel = `
for ip in iptables ip6tables; do
	$ip-nft -A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
	$ip-nft -A INPUT -i lo -j ACCEPT
	$ip-nft -A INPUT -p tcp -m conntrack --ctstate NEW -m tcp --dport 22 -j ACCEPT
done
iptables-nft -A INPUT -p icmp -j ACCEPT
ip6tables-nft -A INPUT -p ipv6-icmp -j ACCEPT
iptables-nft -A INPUT -j REJECT --reject-with icmp-host-prohibited
ip6tables-nft -A INPUT -j REJECT --reject-with icmp6-adm-prohibited`

// ruleStores are the values of --rules that a test of ipvs mode runs with.
var ruleStores = []string{"iptables", "nftables"}

// eachLock runs a test with a node that is locked before the agent starts, and while it runs, for each value of --rules. The agent
// of the node has one Service with policy Cluster and one with policy Local.
func eachLock(t *testing.T, run func(t *testing.T, l locking)) {
	t.Helper()
	for _, rules := range ruleStores {
		for _, before := range []bool{true, false} {
			name := map[bool]string{true: "locked before the agent", false: "locked while it runs"}[before]
			t.Run(name+", rules in "+rules, func(t *testing.T) {
				w := newWorld(t)
				w.pod1.serve(t, 8080)
				w.remote1.serve(t, 8080)
				l := locking{world: w, spread: numberedService(1), local: numberedService(2), before: before, inNFT: rules == "nftables"}
				l.spread.backends, l.local.backends, l.local.externalLocal = endpoints(w.pod1, w.remote1), endpoints(w.pod1, w.remote1), true
				l.agent = newAgent(t, w.node, "--detect-local-mode", "NodeCIDR", "--rules", rules)
				l.agent.writeFile(t, "nodes.yaml", w.nodes())
				l.agent.write(t, l.spread, l.local)
				run(t, l)
			})
		}
	}
}

// locking is a node that is to be locked.
type locking struct {
	*world
	agent         *proxy
	spread, local service
	before        bool // the lock is there before the agent starts
	inNFT         bool // the rules of the agent are in nftables
}

// lock starts the agent and locks the node. With rules in nftables the lock gets the rules that explain names.
func (l locking) lock(t *testing.T, script string) {
	t.Helper()
	if l.before {
		l.node.shell(t, script)
	}
	l.agent.start(t)
	if !l.before {
		l.node.shell(t, script)
	}
	if l.inNFT {
		l.agent.open(t, l.spread, l.local)
	}
}

// TestRejectAtTheEnd: INPUT ends in a rule that refuses everything. Packets to Services are
// accepted before it, whichever rule came first, and all other packets are still refused.
func TestRejectAtTheEnd(t *testing.T) {
	t.Parallel()
	eachLock(t, func(t *testing.T, l locking) {
		// As iptables.service starts: it flushes all rules.
		l.lock(t, "for ip in iptables ip6tables; do $ip-nft -F INPUT; done"+rhel)
		if !l.inNFT {
			poll(t, "the rules to be back", settleTimeout, func() error {
				out, err := l.agent.try("ip6tables-nft", "-S", "INPUT")
				if err == nil && !strings.Contains(out, "-j KUBE-IPVS-ACCEPT\n-A INPUT -j REJECT") {
					err = errors.New(out)
				}
				return err
			})
		}
		refusing := ask("no Service", l.outside, fabAddr, 8080, outcome{fails: backend.Other}, backend.TCP)
		put(t, []any{"Service", "client"}, slices.Concat(refusing, l.throughLocked(l.spread, l.local)[4:]))
		out, err := l.agent.verb("explain", "10.96.1.1:80/tcp")
		if err != nil || !strings.Contains(out, "\nall is well") {
			t.Errorf("explain: %v\n%s", err, out)
		}
	})
}

// TestPolicyDrop: the node's own firewall lets nothing pass by default. Services work all the same, whichever came first; with rules
// in nftables after the commands of explain.
func TestPolicyDrop(t *testing.T) {
	t.Parallel()
	eachLock(t, func(t *testing.T, l locking) {
		l.lock(t, locked)
		put(t, []any{"Service", "client"}, l.throughLocked(l.spread, l.local))

		// The host hears no answer to anything it asks until the firewall lets it.
		l.node.shell(t, `for ip in iptables ip6tables; do $ip-nft -A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT; done`)
		put(t, []any{"Service", "client"}, l.byHost(l.spread, l.local))
	})
}

// throughLocked are the questions whose packets come by INPUT and FORWARD, and one that shows the lock.
func (w *world) throughLocked(spread, local service) []*question {
	questions := ask("no Service", w.outside, fabAddr, 8080, dropped)
	for _, frontend := range words[dimFrontend] {
		to, port := spread.target(frontend, fabAddr)
		for _, c := range []*pod{w.pod2, w.outside} {
			questions = slices.Concat(questions, ask("policy Cluster, "+frontend, c, to, port, by(w.pod1, w.remote1), protos...))
		}
		if frontend == "ClusterIP" {
			continue
		}
		to, port = local.target(frontend, fabAddr)
		questions = slices.Concat(questions,
			ask("policy Local, "+frontend, w.pod2, to, port, by(w.pod1, w.remote1).seeing(w.pod2.addr)),
			ask("policy Local, "+frontend, w.outside, to, port, by(w.pod1).seeing(w.outside.addr)),
		)
	}
	return questions
}

func (w *world) byHost(services ...service) []*question {
	var questions []*question
	for _, s := range services {
		for _, frontend := range words[dimFrontend] {
			to, port := s.target(frontend, fabAddr)
			questions = append(questions, ask(s.name+", "+frontend, w.host(), to, port, by(w.pod1, w.remote1))...)
		}
	}
	return questions
}
