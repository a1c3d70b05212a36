package ipvs

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// The chains, by table (contract section 5.1).
const (
	chainServices    = "KUBE-SERVICES"
	chainPostrouting = "KUBE-POSTROUTING"
	chainMarkMasq    = "KUBE-MARK-MASQ"
	chainForward     = "KUBE-FORWARD"
	chainFilter      = "KUBE-IPVS-FILTER"
)

var chainTables = map[string]string{
	chainServices: "nat", chainPostrouting: "nat", chainMarkMasq: "nat",
	chainForward: "filter", chainFilter: "filter",
}

// jumps are listed in the order in which they are put at the head of their hook
// (contract section 5.1).
var jumps = []struct{ table, hook, target, comment string }{
	{"nat", "OUTPUT", chainServices, "kubernetes service portals"},
	{"nat", "PREROUTING", chainServices, "kubernetes service portals"},
	{"nat", "POSTROUTING", chainPostrouting, "kubernetes postrouting rules"},
	{"filter", "FORWARD", chainForward, "kubernetes forwarding rules"},
	{"filter", "INPUT", chainFilter, "kubernetes ipvs access filter"},
}

// OwnedChain tells whether a chain is one of ours, by name.
func OwnedChain(k rules.ChainKey) bool {
	table, ok := chainTables[k.Name]
	return ok && table == k.Table
}

// ruleWriter collects the rules of one family in the form of iptables-save, so
// that what is read back compares equal.
type ruleWriter struct {
	family model.Family
	chains map[rules.ChainKey]rules.Chain
}

func (w ruleWriter) chain(name string, lines ...string) {
	key := rules.ChainKey{Family: rules.Family(w.family), Table: chainTables[name], Name: name}
	w.chains[key] = rules.Chain{Rules: strings.Join(lines, "\n")}
}

// matchSet matches a set in the given directions ("dst,dst").
func (w ruleWriter) matchSet(name, directions string) string {
	return fmt.Sprintf("-m set --match-set %s %s", setName(w.family, name), directions)
}

func comment(text string) string { return fmt.Sprintf("-m comment --comment %q", text) }

func setComment(name string) string {
	for _, t := range setTypes {
		if t.name == name {
			return comment(t.comment)
		}
	}
	return ""
}

// baseRules renders all chains of a family. They do not depend on how many
// Services there are: rules refer to sets.
func (c Config) baseRules(f model.Family, node model.Node) map[rules.ChainKey]rules.Chain {
	w := ruleWriter{family: f, chains: map[rules.ChainKey]rules.Chain{}}
	c.natRules(w, node)
	c.filterRules(w)
	return w.chains
}

func (c Config) natRules(w ruleWriter, node model.Node) {
	loopback := "-s 127.0.0.0/8 -j RETURN"
	if w.family == model.IPv6 {
		loopback = "-s ::1/128 -j RETURN"
	}
	w.chain(chainServices,
		loopback,
		c.masqueradeClusterIP(w, node),
		w.matchSet(setClusterIP, "dst,dst")+" -j ACCEPT",
	)
	mark := c.mark()
	w.chain(chainMarkMasq, fmt.Sprintf("-j MARK --set-xmark %s/%s", mark, mark))
	w.chain(chainPostrouting,
		join(setComment(setLoopBack), w.matchSet(setLoopBack, "dst,dst,src"), "-j MASQUERADE"),
		fmt.Sprintf("-m mark ! --mark %s/%s -j RETURN", mark, mark),
		fmt.Sprintf("-j MARK --set-xmark %s/0x0", mark),
		join(comment("kubernetes service traffic requiring SNAT"), "-j MASQUERADE", c.randomFully(w.family)),
	)
}

// masqueradeClusterIP marks what has to leave with the node's address: all of
// it, or what does not come from a local pod, or, with no way to tell, what has
// a cluster IP as its source because it was sent by this host (contract 5.2).
func (c Config) masqueradeClusterIP(w ruleWriter, node model.Node) string {
	target := "-j " + chainMarkMasq
	what := setComment(setClusterIP)
	if c.MasqueradeAll {
		return join(what, w.matchSet(setClusterIP, "dst,dst"), target)
	}
	if local, ok := c.Local.Match(w.family, node); ok {
		return join("! "+local, what, w.matchSet(setClusterIP, "dst,dst"), target)
	}
	return join(what, w.matchSet(setClusterIP, "src,dst"), target)
}

// filterRules accept what was marked for masquerading, and keep the host's own
// daemons off the service addresses: those answer on service ports and to ping
// (decisions 9), everything else that is new is refused.
func (c Config) filterRules(w ruleWriter) {
	mark := c.mark()
	w.chain(chainForward,
		join(comment("kubernetes forwarding rules"), fmt.Sprintf("-m mark --mark %s/%s -j ACCEPT", mark, mark)),
		join(comment("kubernetes forwarding conntrack rule"), "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"),
	)
	ping, refuse := "-p icmp -m icmp --icmp-type 8 -j RETURN", "icmp-port-unreachable"
	if w.family == model.IPv6 {
		ping, refuse = "-p ipv6-icmp -m icmp6 --icmpv6-type 128 -j RETURN", "icmp6-port-unreachable"
	}
	w.chain(chainFilter,
		w.matchSet(setClusterIP, "dst,dst")+" -j RETURN",
		ping,
		join("-m conntrack --ctstate NEW", w.matchSet(setIPVSIPs, "dst"), "-j REJECT --reject-with "+refuse),
	)
}

// mark is the masquerade bit as iptables-save prints it.
func (c Config) mark() string { return fmt.Sprintf("%#x", uint32(1)<<c.MasqueradeBit) }

func (c Config) randomFully(f model.Family) string {
	if c.RandomFully == nil || c.RandomFully(f) {
		return "--random-fully"
	}
	return ""
}

// join puts the parts of a rule together, leaving out empty ones.
func join(parts ...string) string {
	var out []string
	for _, p := range parts {
		if p != "" {
			out = append(out, p)
		}
	}
	return strings.Join(out, " ")
}

// baseJumps renders the jumps of a family.
func baseJumps(f model.Family) map[rules.JumpKey]rules.Jump {
	out := map[rules.JumpKey]rules.Jump{}
	for _, j := range jumps {
		key := rules.JumpKey{Family: rules.Family(f), Table: j.table, Hook: j.hook, Target: j.target}
		out[key] = rules.Jump{Args: comment(j.comment)}
	}
	return out
}

// compareJumps keeps the order of the jumps list; unknown ones come last.
func compareJumps(a, b rules.JumpKey) int {
	return cmp.Or(cmp.Compare(a.Family, b.Family), cmp.Compare(jumpRank(a), jumpRank(b)), a.Compare(b))
}

func jumpRank(k rules.JumpKey) int {
	for i, j := range jumps {
		if j.table == k.Table && j.hook == k.Hook && j.target == k.Target {
			return i
		}
	}
	return len(jumps)
}

// chainStore reads and writes chains.
type chainStore struct{ rules Rules }

// List returns our chains.
func (s chainStore) List(ctx context.Context) (map[rules.ChainKey]rules.Chain, error) {
	chains, _, err := s.rules.List(ctx)
	return chains, err
}

// Write hands all changed chains over at once.
func (s chainStore) Write(ctx context.Context, changes []delta.Change[rules.ChainKey, rules.Chain]) []error {
	batch := make([]rules.ChainChange, len(changes))
	for i, c := range changes {
		batch[i] = rules.ChainChange{Op: ruleOps[c.Op], Key: c.Key, Chain: c.Value}
	}
	return s.rules.WriteChains(ctx, batch)
}

// jumpStore reads and writes the jumps to our chains.
type jumpStore struct{ rules Rules }

// List returns the jumps.
func (s jumpStore) List(ctx context.Context) (map[rules.JumpKey]rules.Jump, error) {
	_, jumps, err := s.rules.List(ctx)
	return jumps, err
}

// Write hands all changed jumps over at once.
func (s jumpStore) Write(ctx context.Context, changes []delta.Change[rules.JumpKey, rules.Jump]) []error {
	batch := make([]rules.JumpChange, len(changes))
	for i, c := range changes {
		batch[i] = rules.JumpChange{Op: ruleOps[c.Op], Key: c.Key, Jump: c.Value}
	}
	return s.rules.WriteJumps(ctx, batch)
}

var ruleOps = map[delta.Op]rules.Op{delta.Add: rules.Add, delta.Update: rules.Update, delta.Delete: rules.Delete}
