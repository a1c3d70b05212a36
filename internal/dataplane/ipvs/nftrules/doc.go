// Package nftrules carries the rules and sets of ipvs mode in nftables, where the kernel or the node
// lacks iptables or ipset. It has the two interfaces that the mode uses for kernel/rules and ipset,
// so the mode does not know which of them it writes to.
//
//	ipvs mode                  this package                                    kernel/nft
//	rules.ChainChange  ─────►  tonftables.go: netfilter.Rule ─► statements ──► chains and maps
//	rules.Chain        ◄─────  fromnftables.go: the same rules ◄─ statements ◄─ chains and maps
//	ipset.Set, Entry   ◄────►  sets.go, ranges.go ◄──────────────────────────► sets and elements
//
// # Names
//
// All chains of a table of nftables share one name space, and tables of iptables do not. So a chain
// has the name of its table of iptables before its own: nat-KUBE-SERVICES. The chains of the kernel
// are base chains: nat-PREROUTING. They have nothing but jumps. Sets keep their names.
//
// # What a rule becomes
//
// Each condition and each target is one statement. Exceptions:
//
//   - ACCEPT in the nat table keeps later rules of that table from rewriting a connection. A verdict
//     of nftables ends its own base chain only, so it becomes nft.KeepDestination.
//   - Rules that rewrite destinations (detours) become one rule and a map, which has the name of the
//     chain. A chain has either such rules or others.
//   - A match of a set of ports without a protocol names the protocol of that set, because nftables
//     looks at the same bytes of any packet.
//   - DROP and REJECT get a counter before them, which Counted reads.
//   - A comment goes to the end of the rule. In iptables it is before the first match of a set.
//
// A rule without a counterpart is an error. Reading returns the text that was written, so the mode
// finds its rules unchanged after a restart. A rule of another program in a chain of ours reads as
// text that no rule of ours has, and the mode writes the chain again.
//
// # Tables of another version
//
// A table of an older or newer layout stays in force until this agent knows all rows of its own. Those
// are collected in a draft (drafts.go), which the kernel checks. One transaction then deletes the old
// table and creates the new one, so packets always meet rules. An agent that ends before leaves the old
// table. Rules of the old table are not read. Its sets are, if they have the name and the form of ours:
// such a set means the same in every layout.
//
// # Accepting packets
//
// A verdict of accept does not overrule the filters of other tables. KUBE-IPVS-ACCEPT and
// KUBE-FORWARD, which overrule a policy of DROP in iptables, have no effect on other tables here.
//
// # Sets with ranges
//
// The kernel refuses a network that overlaps another one of the same address and port. ranges.go
// leaves out networks that others contain, and adds them when those go.
package nftrules
