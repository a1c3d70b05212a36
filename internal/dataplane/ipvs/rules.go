package ipvs

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// The chains of kube-proxy's ipvs mode (pkg/proxy/ipvs/proxier.go, v1.36), and our own.
const (
	chainServices     = "KUBE-SERVICES"
	chainPostrouting  = "KUBE-POSTROUTING"
	chainNodePort     = "KUBE-NODE-PORT" // one in nat, one in filter
	chainLoadBalancer = "KUBE-LOAD-BALANCER"
	chainMarkMasq     = "KUBE-MARK-MASQ"
	chainForward      = "KUBE-FORWARD"
	chainFirewall     = "KUBE-PROXY-FIREWALL"
	chainSourceRanges = "KUBE-SOURCE-RANGES-FIREWALL"
	chainFilter       = "KUBE-IPVS-FILTER"
	chainOutFilter    = "KUBE-IPVS-OUT-FILTER" // one in filter, one of our own in mangle
	// chainDetour decides who takes a detour, the other two know where to.
	chainDetour     = "KUBE-DETOUR"
	chainDetourTo   = "KUBE-DETOUR-TO"
	chainDetourSCTP = "KUBE-DETOUR-SCTP"
	// chainAccept stands behind the rules of INPUT that packets to Services may meet.
	chainAccept = "KUBE-IPVS-ACCEPT"
	// Of addresses from which backends answer themselves: what comes to them, and a tunnel's
	// room. They are there while there are such addresses.
	chainDirect    = "KUBE-DIRECT"
	chainDirectMSS = "KUBE-DIRECT-MSS"
	// chainCapture, one in mangle and one in filter, is there while an address has captured ports.
	chainCapture = "KUBE-CAPTURE"
)

var chainTables = map[string][]string{
	"nat": {
		chainServices, chainPostrouting, chainNodePort, chainLoadBalancer, chainMarkMasq, chainDetour, chainDetourTo, chainDetourSCTP,
	},
	"filter": {
		chainForward, chainNodePort, chainFirewall, chainSourceRanges, chainFilter, chainOutFilter, chainAccept, chainCapture,
	},
	"mangle": {chainOutFilter, chainDirect, chainDirectMSS, chainCapture},
}

// jumps are listed in the order in which they are inserted at the head of their hook, which
// is kube-proxy's, or at its end.
var jumps = []struct {
	table, hook, target, comment string
	last                         bool
}{
	{"nat", "OUTPUT", chainServices, "kubernetes service portals", false},
	{"nat", "PREROUTING", chainServices, "kubernetes service portals", false},
	{"nat", "POSTROUTING", chainPostrouting, "kubernetes postrouting rules", false},
	{"filter", "FORWARD", chainForward, "kubernetes forwarding rules", false},
	{"filter", "FORWARD", chainCapture, "kubernetes captured ports", false},
	{"filter", "INPUT", chainNodePort, "kubernetes health check rules", false},
	{"filter", "INPUT", chainFirewall, "kube-proxy firewall rules", false},
	{"filter", "FORWARD", chainFirewall, "kube-proxy firewall rules", false},
	{"filter", "INPUT", chainFilter, "kubernetes ipvs access filter", false},
	{"filter", "OUTPUT", chainOutFilter, "kubernetes ipvs access filter", false},
	{"mangle", "OUTPUT", chainOutFilter, "kubernetes ipvs access filter", false},
	{"mangle", "PREROUTING", chainDirect, "kubernetes direct server return", false},
	{"mangle", "FORWARD", chainDirectMSS, "kubernetes direct server return", false},
	{"mangle", "PREROUTING", chainCapture, "kubernetes captured ports", false},
	{"filter", "INPUT", chainAccept, "kubernetes service traffic", true},
}

// OwnedChain tells whether a chain is one of ours, by name. That it is one of ours
// does not mean that it is wanted.
func OwnedChain(k rules.ChainKey) bool {
	return slices.Contains(chainTables[k.Table], k.Name) || leftByIPTables(k)
}

// ruleWriter collects the rules of one family in the form of iptables-save, so
// that what is read back compares equal.
type ruleWriter struct {
	family model.Family
	chains map[rules.ChainKey]rules.Chain
	ranges []netip.Prefix // local as a whole, of this family
}

// extras are the chains of a family that are there while some address needs them.
type extras struct {
	direct  bool // backends answer from it themselves
	capture bool // ports of it are captured
}

// has reports whether a chain is wanted: those that are always there are.
func (e extras) has(k rules.ChainKey) bool {
	switch {
	case isDirectChain(k):
		return e.direct
	case isCaptureChain(k):
		return e.capture
	}
	return true
}

func (w ruleWriter) chain(table, name string, lines ...string) {
	key := rules.ChainKey{Family: rules.Family(w.family), Table: table, Name: name}
	w.chains[key] = rules.Chain{Rules: strings.Join(lines, "\n")}
}

// matchSet matches a set in the given directions ("dst,dst").
func (w ruleWriter) matchSet(name, directions string) string {
	return fmt.Sprintf("-m set --match-set %s %s", setName(w.family, name), directions)
}

// notInSet matches what matchSet does not.
func (w ruleWriter) notInSet(name, directions string) string {
	return fmt.Sprintf("-m set ! --match-set %s %s", setName(w.family, name), directions)
}

// commented matches a set, with the comment that kube-proxy gives such rules.
func (w ruleWriter) commented(name, directions string) string {
	return join(setComment(name), w.matchSet(name, directions))
}

// comment matches anything, and says why.
func comment(text string) string { return "-m comment --comment " + rules.Quote(text) }

func setComment(name string) string {
	for _, t := range setTypes {
		if t.name == name {
			return comment(t.comment)
		}
	}
	return ""
}

// baseRules renders all chains of a family but the one of the detours. They do
// not depend on how many Services there are: rules refer to sets. During a takeover there
// is one more. Ranges that are local as a whole have rules of their own, and so have
// addresses from which others answer and those with captured ports.
func (c Config) baseRules(f model.Family, node model.Node, takeover bool, ranges []netip.Prefix, more extras) map[rules.ChainKey]rules.Chain {
	w := ruleWriter{family: f, chains: map[rules.ChainKey]rules.Chain{}, ranges: ofFamily(f, ranges)}
	c.natRules(w, node)
	c.postrouting(w, takeover)
	c.detourRules(w, node)
	c.filterRules(w)
	c.accessRules(w)
	outputRules(w)
	if more.direct {
		c.directRules(w)
	}
	if more.capture {
		c.captureRules(w)
	}
	return w.chains
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
func baseJumps(f model.Family, more extras) map[rules.JumpKey]rules.Jump {
	out := map[rules.JumpKey]rules.Jump{}
	for _, j := range jumps {
		key := rules.JumpKey{Family: rules.Family(f), Table: j.table, Hook: j.hook, Target: j.target}
		if !more.has(rules.ChainKey{Table: j.table, Name: j.target}) {
			continue
		}
		out[key] = rules.Jump{Args: comment(j.comment)}
	}
	return out
}

// compareJumps keeps the order of the jumps list; unknown ones come last.
func compareJumps(a, b rules.JumpKey) int {
	return cmp.Or(cmp.Compare(a.Family, b.Family), cmp.Compare(jumpRank(a), jumpRank(b)), a.Compare(b))
}

// above lists the targets of the jumps that stand above one in its hook.
func above(k rules.JumpKey) []string {
	var out []string
	for i, j := range jumps {
		if i > jumpRank(k) && j.table == k.Table && j.hook == k.Hook && !j.last {
			out = append(out, j.target)
		}
	}
	return out
}

// compareInHook orders jumps the way they stand in their hooks: what is put at the
// head last comes first.
func compareInHook(a, b rules.JumpKey) int {
	return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Hook, b.Hook), cmp.Compare(place(a), place(b)), a.Compare(b))
}

func place(k rules.JumpKey) int {
	if isLast(k) {
		return jumpRank(k)
	}
	return -jumpRank(k)
}

func jumpRank(k rules.JumpKey) int {
	for i, j := range jumps {
		if j.table == k.Table && j.hook == k.Hook && j.target == k.Target {
			return i
		}
	}
	return len(jumps)
}

func isLast(k rules.JumpKey) bool {
	rank := jumpRank(k)
	return rank < len(jumps) && jumps[rank].last
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
		batch[i] = rules.JumpChange{Op: ruleOps[c.Op], Key: c.Key, Jump: c.Value, Last: isLast(c.Key), Behind: above(c.Key)}
	}
	return s.rules.WriteJumps(ctx, batch)
}

var ruleOps = map[delta.Op]rules.Op{delta.Add: rules.Add, delta.Update: rules.Update, delta.Delete: rules.Delete}
