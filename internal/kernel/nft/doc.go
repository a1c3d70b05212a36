// Package nft reads and writes the nf_tables tables `ip kube-ipvs` and `ip6 kube-ipvs` over
// netlink. Their rules and sets replace iptables and ipset where the kernel lacks those. The
// package starts no process and needs no tool.
//
//	Pass ──► Apply ──► one transaction ──► kernel
//	           ▲  └──── a row is refused: again, without it
//	Ruleset, Elements ◄── dumps of one generation ◄── kernel
//
// The values are those of this package: a Set is a header, an Element one of its members, a Chain a
// hook and Rules, a Rule a list of statements. Their text is what `nft list table` prints. Set,
// Element, Base and each Statement can be compared with ==. The package knows nothing of Services.
//
// # Where packets meet the base chains
//
// The functions of a hook run in the order of their priorities, the lowest first. Names in capitals
// are functions of the kernel, each with the priority that its file gives it.
//
//	prerouting                output                     input                 forward              postrouting
//	-200 CONNTRACK            -200 CONNTRACK             -10 FilterInput       -150 MangleForward   95 NATPostrouting
//	-150 ManglePrerouting     -150 MangleOutput            0 others' filters   -10 FilterForward   100 NAT, others
//	-105 NATPrerouting        -105 NATOutput              98 IPVS replies        0 others' filters
//	-100 NAT, others          -100 NAT, others            99 IPVS requests      99 IPVS errors
//	                           -99 IPVS replies                                100 IPVS replies
//	                           -98 IPVS requests
//	                           -10 FilterOutput
//	                             0 others' filters
//
// CONNTRACK and NAT are those of include/uapi/linux/netfilter_ipv4.h (enum nf_ip_hook_priorities; the
// numbers of IPv6 are the same), IPVS is ip_vs_ops4 and ip_vs_ops6 in
// net/netfilter/ipvs/ip_vs_core.c.
//
//   - ManglePrerouting, -150: marks that make an address local must be set before the routing decision
//     behind prerouting, and may depend on connection tracking. It is the place of mangle PREROUTING.
//   - NATPrerouting and NATOutput, -105: chains of type nat all run from the one function of
//     nf_nat_inet_fn (net/netfilter/nf_nat_core.c), at -100, in the order of their own priorities, until
//     one of them translates. So -105 is the head of nat PREROUTING and OUTPUT, before host ports of
//     others. The kernel refuses chains of type nat at or below CONNTRACK (nft_chain_nat.c, nf_tables_api.c).
//   - MangleOutput, -150: packets of this machine must be refused before IPVS takes it, at -98.
//   - FilterInput, -10: before IPVS takes a packet, at 99, while it still has the address of the Service,
//     and before the filters of others, as the head of filter INPUT.
//   - FilterForward, -10: the head of filter FORWARD. MangleForward, -150: the place of mangle FORWARD.
//     FilterOutput, -10: the head of filter OUTPUT, which IPVS leaves few packets.
//   - NATPostrouting, 95: the first of the chains that may translate a source, as the head of nat
//     POSTROUTING.
//
// A verdict ends the own base chain only. So a packet that one of our chains accepts still meets the
// filters of others, which may drop it. In a chain of type nat, accept does not keep others from
// translating; the statement KeepDestination does.
//
// # Laws
//
// Ownership: a table is ours by its name, and nothing in this package can name another one. Read
// returns the Version of each table. A table that another program made, or that is dormant, has
// version 0. A table of any other version is replaced as a whole by one transaction (TableChange,
// Update). Each rule has a tag; a rule in one of our chains that another program added or replaced is
// Foreign. A set that this package would not write has a header with Other; an element of that kind
// makes the reading fail with ErrForeign.
//
// Writing: a pass is one transaction, and packets meet all of it or nothing. Only a pass of more than
// 32,768 elements is several, of which the last deletes chains. A pass that replaces a table is one of
// any size that the kernel takes (32 MiB), and writes nothing to a table that cannot be replaced. Each
// row has its own error: the kernel reports all messages that it refuses, and a message of many elements
// is divided until the one to blame is alone. An addition of what exists and a deletion of what does
// not are successes.
//
// Reading: a dump is complete or an error. A dump that met a change, or during which the generation
// changed, is discarded and read again. A read error is never "absent".
//
// Each call has a deadline, also one that is stuck inside the kernel. Its socket is closed, and the
// next call opens another one in the same network namespace (package nfnetlink).
//
// The kernel must keep userdata of tables and match ranges within keys: Linux 5.10.
//
// Package nfttest has a stateful fake with the same methods.
package nft
