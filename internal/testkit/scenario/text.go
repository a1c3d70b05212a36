package scenario

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/iptables"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// Kinds lists what Normal knows and plans print. The kind "link", the name of our
// device if it exists, is not part of a plan.
func Kinds() []string { return []string{"servers", "sets", "rules", "addresses"} }

// Normal brings the text of a tool into a form that does not depend on the
// tool's version or order, so that equal kernels give equal text:
//
//	servers    ipvsadm -Sn     a server, then its destinations; sorted as text
//	sets       ipset save      without hash parameters, sets and entries sorted
//	rules      iptables-save   "ip nat -N CHAIN" and "ip nat -A CHAIN ...": families
//	           ("# ip", "# ip6")  and chains sorted, the rules of a chain in order, but
//	                              for those that iptables mode keeps in no order
//	addresses  ip addr add,    sorted
//	           ip route add
//	link                       as it is
func Normal(kind, text string) (string, error) {
	switch kind {
	case "servers":
		return sortedLines(text, serverOrder), nil
	case "sets":
		return ipset.NormalizeSave(text)
	case "rules":
		return flatRules(text)
	case "addresses":
		return sortedLines(text, strings.Clone), nil
	case "link":
		return text, nil
	}
	return "", fmt.Errorf("no kernel text of kind %q: use one of %s, link", kind, strings.Join(Kinds(), ", "))
}

// sortedLines trims the lines of text and sorts them by what order makes of them.
func sortedLines(text string, order func(string) string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	slices.SortFunc(lines, func(a, b string) int { return cmp.Or(cmp.Compare(order(a), order(b)), cmp.Compare(a, b)) })
	return joined(lines)
}

// serverOrder puts "-A -t ADDR ..." before all "-a -t ADDR ...".
func serverOrder(line string) string {
	words := strings.Fields(line)
	if len(words) < 3 {
		return line
	}
	return strings.Join(words[1:3], " ") + " " + words[0]
}

// family is the line before each family's part of rules.WriteSave.
var family = regexp.MustCompile(`(?m)^# (ip6?)$`)

// flatRules prints one line for every user chain and every rule.
func flatRules(text string) (string, error) {
	marks := family.FindAllStringSubmatchIndex(text, -1)
	var lines []string
	for i, m := range marks {
		end := len(text)
		if i+1 < len(marks) {
			end = marks[i+1][0]
		}
		part, err := flatFamily(text[m[2]:m[3]], text[m[1]:end])
		if err != nil {
			return "", err
		}
		lines = append(lines, part...)
	}
	return joined(lines), nil
}

func flatFamily(name, text string) ([]string, error) {
	tables, err := rules.ParseSave(strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	f := rules.IPv4
	if name == rules.IPv6.Table() {
		f = rules.IPv6
	}
	var lines []string
	slices.SortFunc(tables, func(a, b rules.SaveTable) int { return cmp.Compare(a.Name, b.Name) })
	for _, t := range tables {
		slices.SortFunc(t.Chains, func(a, b rules.SaveChain) int { return cmp.Compare(a.Name, b.Name) })
		for _, c := range t.Chains {
			lines = append(lines, flatChain(f, t.Name, c)...)
		}
	}
	return lines, nil
}

func flatChain(f rules.Family, table string, c rules.SaveChain) []string {
	var lines []string
	if !c.Builtin() {
		lines = append(lines, fmt.Sprintf("%s %s -N %s", f.Table(), table, c.Name))
	}
	from := len(lines) // where the last run of entries begins
	for _, r := range c.Rules {
		saved := rules.Canonical(f, r)
		lines = append(lines, fmt.Sprintf("%s %s -A %s %s", f.Table(), table, c.Name, saved))
		if !iptables.Dispatches(table, c.Name) || !isEntry(netfilter.ReadLine(saved).Rule(f)) {
			slices.Sort(lines[from : len(lines)-1])
			from = len(lines)
		}
	}
	slices.Sort(lines[from:])
	return lines
}

// isEntry reports whether a rule of a chain that iptables mode keeps in any order is one for an
// address of a Service. Those of ipvs mode match sets, and one is behind them all.
func isEntry(r netfilter.Rule) bool {
	return r.Comment() != "" && len(r.Sets()) == 0 && r.JumpsTo() != "KUBE-NODEPORTS"
}

// matching keeps the lines that a regular expression matches.
func matching(text, expr string) (string, error) {
	if expr == "" {
		return text, nil
	}
	re, err := regexp.Compile(expr)
	if err != nil {
		return "", err
	}
	var lines []string
	for line := range strings.Lines(text) {
		if re.MatchString(strings.TrimSuffix(line, "\n")) {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	return joined(lines), nil
}

func joined(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return strings.Join(lines, "\n") + "\n"
}
