// Package ipvs is the mode that carries Services with the kernel's IP Virtual
// Server. It renders frontends into rows of its tables and decides nothing
// about Services or endpoints.
//
//	frontend ─┬─ virtual server ── destinations
//	          ├─ address on kube-ipvs0, if it is to be ours and no route makes it local;
//	          │  detached, if backends answer from it themselves (addresses/dsr.go)
//	          ├─ a captured port, where another machine needs the address (addresses/capture.go)
//	          ├─ set entries  what to masquerade, accept, refuse (sets/entries.go)
//	          └─ a detour rule, if clients of this node go elsewhere (chains/detours.go)
//
// All other rules in iptables refer to the sets and are the same for one Service
// and for ten thousand. Where a packet meets them:
//
//	from a pod or outside         from this host
//	mangle PREROUTING             mangle OUTPUT      source ranges, Local policies
//	  KUBE-DIRECT  detached?        KUBE-IPVS-OUT-FILTER
//	  KUBE-CAPTURE captured?
//	nat PREROUTING                nat OUTPUT
//	  KUBE-SERVICES                 KUBE-SERVICES
//	    detour? masquerade?       IPVS takes it
//	filter INPUT
//	  KUBE-IPVS-FILTER
//	  KUBE-PROXY-FIREWALL
//	  ... other people's rules
//	  KUBE-IPVS-ACCEPT
//	IPVS takes it
//	                 nat POSTROUTING: KUBE-POSTROUTING
//
// Direct answers of a pod of this node pass mangle FORWARD: KUBE-DIRECT-MSS.
//
// Owners, so that a new process with no memory knows its own (names are
// kube-proxy's where it has one, so that one can take over from the other):
//
//	table         key                        ours                            drift found by
//	sets          name                       one of our names                audit: headers
//	members       set, entry                 in one of our sets              audit: one set at a time
//	chains        family, table, name        one of our names, or of what    audit: iptables-save
//	                                         iptables mode leaves
//	jumps         family, table, hook, chain to one of our chains            audit: iptables-save
//	servers       address, port, protocol    address on kube-ipvs0 or in     audit: a survey, then
//	                                         KUBE-IPVS-IPS, or named by an   reads of what is in
//	                                         entry; not excluded             doubt, rotating reads
//	destinations  server, address, port      of one of our servers           audit: with their server
//	routes        range                      local, to lo, of our protocol   events, audit: one dump,
//	                                         number (link.RouteProtocol)     seldom if none is wanted
//	addresses     address                    on kube-ipvs0                   events, audit: one dump
//	detached      address                    route of our protocol number    audit: two dumps,
//	                                         in link.DetachedTable, with     seldom if none is wanted
//	                                         the rule that leads there
//	announced     table, address             route of our protocol number    events, audit: two dumps,
//	                                         and type blackhole              seldom if none is wanted
//	nftables      family, name               kube-proxy, of ip and ip6:      audit: one list
//	                                         removed, never written
//
// An entry names a server by address, protocol and port in KUBE-CLUSTER-IP, the KUBE-EXTERNAL-IPs,
// KUBE-LOAD-BALANCER, KUBE-NODE-PORT-SCTP-HASH or KUBE-DETOUR-END. It may also name a server by its
// port in KUBE-NODE-PORT-TCP or -UDP. Then the address of the server is in KUBE-NODE-PORT-IPS or,
// if the kernel lacks that set, which kube-proxy does not write, on a link of this machine. Such
// entries outlive their servers, so a process that dies half-way through a deletion leaves no
// server without a mark.
//
// Managers in packages of their own own the rows: sets (with members), chains (with jumps), servers,
// destinations and addresses (with routes and detached addresses). managers.go joins them, and
// prerequisites.go defines what each row waits for in others. Other parts read several tables:
//
//	baserows.go    sets, chains and jumps that every Service needs
//	staleflows.go  which flows of UDP and SCTP are stale in connection tracking
//	lostrows.go    rows that another process deleted
//	audit/         which rows drifted
//	migrate/       rules of another proxy mode carry until everything of ours is in place, and what a
//	               kube-proxy that comes after us takes over
//	describe/      rows as text, the path of a packet
//
// A frontend is kept as its rows, in the tables, and as the frontend itself, in
// dataplane.Frontends: everything else that follows from it is rendered again. The keys of destinations
// and entries are packed; BenchmarkMemory shows what that saves.
package ipvs
