// Package firewall judges how filters of other programs treat a packet to a Service: in base chains
// of nftables, and in INPUT, FORWARD and OUTPUT of iptables. In ipvs mode the addresses of Services
// are local, so a firewall for daemons of the host drops their packets. A drop in any base chain of
// a hook is final, and an accept ends only its own chain.
//
//	nftables.Filter, iptables-save ──► Table ─┐
//	frontends, what is known of the node ─────┴──► Judge ──► Report: which program drops which packets, and the remedy
//
// Judge is pure, and a Reader reads the kernel for it. A rule that Judge does not understand may
// match or not. Judge returns "dropped" only where every way through a chain ends so; it reports
// what depends on something unknown as Unclear, and makes no claim of it.
package firewall
