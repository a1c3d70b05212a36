// Package ipvs is the mode that carries Services with the kernel's IP Virtual
// Server. It renders frontends into rows of seven tables and decides nothing
// about Services or endpoints.
//
//	frontend ─┬─ virtual server ── destinations
//	          ├─ address on kube-ipvs0
//	          └─ set entries: KUBE-CLUSTER-IP   what to masquerade, what to accept
//	                          KUBE-IPVS-IPS     every address that is ours
//	                          KUBE-LOOP-BACK    endpoints here that may reach themselves
//
// The rules in iptables refer to the sets and are the same for one Service and
// for ten thousand.
//
// Owners, so that a new process with no memory knows its own (names are
// kube-proxy's, so that one can take over from the other):
//
//	table         key                        ours                            drift found by
//	sets          name                       one of our names                audit: headers
//	members       set, entry                 in one of our sets              audit: one set at a time
//	chains        family, table, name        one of our names                audit: iptables-save
//	jumps         family, table, hook, chain to one of our chains            audit: iptables-save
//	servers       address, port, protocol    address on kube-ipvs0 or in     audit: rotating reads,
//	                                         KUBE-IPVS-IPS, or in            a dump where it is cheap
//	                                         KUBE-CLUSTER-IP; not excluded
//	destinations  server, address, port      of one of our servers           audit: rotating reads
//	addresses     address                    on kube-ipvs0                   events, audit: one dump
//
// An entry of KUBE-IPVS-IPS outlives its virtual servers and addresses, so a
// process that dies half-way through a deletion leaves no server without a mark.
package ipvs
