package packet

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/scenario"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// view is a node's kernel as its tools print it: one list of lines for each tool, in an order that does not depend on history.
type view map[string][]string

// The scripts of a view run in one go; a program start is what costs under emulation. Servers
// are read until two reads agree. Before each namespace had its own table, a dump of several
// messages resumed at a row number that counted rows of other namespaces. So it listed some rows
// twice or not at all while other tests added and deleted rows (ip_vs_genl_dump_services).
const serversScript = `
echo ==servers; before=none
for try in 1 2 3 4 5 6 7 8 9; do
	now=$(ipvsadm -Sn)
	[ "$now" != "$before" ] || break
	before=$now
done
printf '%s\n' "$now"`

// rulesScript prints what there is without IPVS.
const rulesScript = `
echo ==rules4; iptables-$1-save
echo ==rules6; ip6tables-$1-save
echo ==addresses; ip -o addr show
echo ==links; ip -o link show`

// look reads the kernel; backend is the iptables whose rules count. Rules and sets in our tables of nftables are shown in the words of
// iptables and ipset.
func (n *node) look(t *testing.T, backend string) view {
	t.Helper()
	script := serversScript + rulesScript
	if kernelHasIPSet() {
		script += "\necho ==sets; ipset save"
	}
	v := n.show(t, script, backend)
	var h *nft.Handle
	n.must(t, n.do(func() (err error) {
		h, err = nft.New(zap.NewNop(), nft.Options{})
		return err
	}))
	defer h.Close()
	for kind, lines := range inNFTables(t, h) {
		v[kind] = append(v[kind], lines...)
	}
	return v
}

// kernelHasIPSet asks the kernel.
var kernelHasIPSet = sync.OnceValue(func() bool {
	h, err := ipset.Open(context.Background(), ipset.Options{})
	if err == nil {
		h.Close()
	}
	return !errors.Is(err, ipset.ErrUnsupported)
})

// inNFTables returns the rules and sets in our tables, nothing where there are none.
func inNFTables(t *testing.T, h *nft.Handle) view {
	t.Helper()
	found, err := h.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(found.Tables) == 0 {
		return nil
	}
	tables := scenario.Tables{Kernel: h}
	sets, unread := tables.Text("sets")
	rules, err := tables.Text("rules")
	if err := errors.Join(unread, err); err != nil {
		t.Fatal(err)
	}
	rules4, rules6, _ := strings.Cut(rules, "# ip6\n")
	lines := func(text string) []string { return strings.Split(strings.TrimSpace(text), "\n") }
	return view{"sets": normal("sets", lines(sets)), "rules4": normal("rules4", lines(rules4)), "rules6": normal("rules6", lines(rules6))}
}

// lookAtRules is look where there is nothing but rules, those of iptables mode. The rules that lead to Services stand in no order.
func (n *node) lookAtRules(t *testing.T, backend string) view {
	t.Helper()
	return n.show(t, rulesScript, backend).withoutOrder()
}

func (n *node) show(t *testing.T, script, backend string) view {
	t.Helper()
	out := n.run(t, "sh", "-ec", script, "sh", backend)
	v := view{}
	for _, section := range strings.Split(out, "==")[1:] {
		name, body, _ := strings.Cut(section, "\n")
		v[name] = normal(name, strings.Split(strings.TrimSpace(body), "\n"))
	}
	return v
}

// normal leaves out what differs between two reads of the same state.
func normal(kind string, lines []string) []string {
	switch kind {
	case "rules4", "rules6":
		return normalRules(lines)
	case "addresses":
		return normalAddresses(lines)
	case "links":
		return normalLinks(lines)
	case "sets":
		for i, l := range lines {
			lines[i] = setSecrets.ReplaceAllString(l, "")
		}
	}
	lines = slices.DeleteFunc(lines, func(l string) bool { return l == "" })
	slices.Sort(lines)
	return lines
}

// dispatching are the chains of iptables mode with a rule for each address of a Service.
var dispatching = regexp.MustCompile(`^\S+ -A KUBE-(SERVICES|NODEPORTS|EXTERNAL-SERVICES|PROXY-FIREWALL) `)

// withoutOrder sorts the rules of those chains, up to the way to NodePorts: rules behind it are out of place, and stay there.
func (v view) withoutOrder() view {
	for _, kind := range []string{"rules4", "rules6"} {
		lines := v[kind]
		for from := 0; from < len(lines); {
			end := from + 1
			for end < len(lines) && dispatching.MatchString(lines[from]) && chainOf(lines[end]) == chainOf(lines[from]) &&
				!strings.HasSuffix(lines[end], " -j KUBE-NODEPORTS") {
				end++
			}
			slices.Sort(lines[from:end])
			from = end
		}
	}
	return v
}

// setSecrets are options that newer sets have: a random number, and a size that no user chose.
var setSecrets = regexp.MustCompile(` (bucketsize|initval) \S+`)

// normalRules puts the table before each rule and orders by chain: the order of rules within a chain is kept, the order of
// chains is the history of their making.
func normalRules(lines []string) []string {
	var out []string
	table := ""
	for _, l := range lines {
		switch {
		case strings.HasPrefix(l, "*"):
			table = l[1:]
		case strings.HasPrefix(l, ":") && strings.Contains(l, " - "), strings.HasPrefix(l, "-A"):
			l, _, _ = strings.Cut(l, " [")
			out = append(out, table+" "+l)
		}
	}
	slices.SortStableFunc(out, func(a, b string) int { return strings.Compare(chainOf(a), chainOf(b)) })
	return out
}

// chainOf is the table, the kind of line and the chain it is about.
func chainOf(line string) string {
	return strings.Join(strings.Fields(line)[:min(3, len(strings.Fields(line)))], " ")
}

func normalAddresses(lines []string) []string {
	var out []string
	for _, l := range lines {
		if f := strings.Fields(l); len(f) > 3 {
			out = append(out, f[1]+" "+f[3])
		}
	}
	slices.Sort(out)
	return out
}

func normalLinks(lines []string) []string {
	var out []string
	for _, l := range lines {
		if f := strings.Fields(l); len(f) > 2 {
			out = append(out, f[1]+" "+f[2])
		}
	}
	slices.Sort(out)
	return out
}

// same fails the test where two views differ.
func same(t *testing.T, what string, want, got view) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// count is the number of lines of a kind that have one of some texts in them.
func (v view) count(kind string, texts ...string) uint64 {
	n := uint64(0)
	for _, line := range v[kind] {
		if slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(line, text) }) {
			n++
		}
	}
	return n
}

// jumps are how rules of the kernel's own chains begin.
var jumps = []string{" -A PREROUTING ", " -A INPUT ", " -A FORWARD ", " -A OUTPUT ", " -A POSTROUTING "}
