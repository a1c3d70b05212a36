// Package iptables is the mode that carries Services with rules of iptables alone:
// the fallback where the kernel has no IPVS. It renders the same frontends as the
// ipvs mode and decides nothing about Services or endpoints.
//
//	a packet to a Service                     nat PREROUTING, OUTPUT
//	  KUBE-SERVICES ── cluster IP ──────────────► KUBE-SVC-… (KUBE-SVL-…)
//	      │   └────── external address ─► KUBE-EXT-… ─┘    │ one at random,
//	      │             (by KUBE-FW-… with source ranges)  │ or as before
//	      └ KUBE-NODEPORTS ─────────────► KUBE-EXT-…       ▼
//	                                              KUBE-SEP-…  DNAT
//	  packets that must be refused            filter INPUT, FORWARD, OUTPUT
//	      KUBE-SERVICES, KUBE-EXTERNAL-SERVICES, KUBE-PROXY-FIREWALL
//	  whose source is rewritten               nat POSTROUTING
//	      KUBE-POSTROUTING, by the mark of KUBE-MARK-MASQ
//
// Names, rules and their order are kube-proxy's (pkg/proxy/iptables, v1.37), so that one
// can take over from the other. It always writes the short form that kube-proxy has in
// large clusters: rules of endpoints carry no comments, for those are half of the bytes.
//
// A Service has chains of its own, which are written whole, and rules in chains that
// all Services share, the dispatch chains. Those hold one rule a frontend, in no order,
// and grow with the cluster: of them single rules are put in and taken out. One change
// is one iptables-restore of what it touches.
//
// Owners, so that a new process with no memory knows its own:
//
//	table    key                          ours                        drift found by
//	chains   family, table, name          one of our names            audit: iptables-save
//	entries  dispatch chain, rule         in a dispatch chain         audit: iptables-save
//	jumps    family, table, hook, chain   to one of our chains        audit: iptables-save
//	nftables family, name                 kube-proxy, of ip and ip6:  audit: one list
//	                                      removed, never written
//
// A mode cannot have what iptables has not: schedulers and weights. Endpoints are picked
// at random, each as likely as the other.
package iptables
