// Package scenario runs behaviours written down as txtar files: inputs, steps,
// and the kernel text that is expected after them. One file is one behaviour.
//
//	# a Service with one endpoint becomes a virtual server with one destination
//	start
//	expect servers servers.txt
//	put web-2.yaml manifests/web.yaml
//	expect servers servers-2.txt
//	-- manifests/web.yaml --
//	...
//	-- servers.txt --
//	-A -t 10.96.0.10:80 -s rr
//	-a -t 10.96.0.10:80 -r 10.244.1.5:8080 -m -w 1
//
// The steps are testscript's own (cp, mv, rm, mkdir, symlink, exec, ...) and:
//
//	start [FLAG...]               run the agent on manifests/, wait for its first sync;
//	                              -audit: have it look for drift, often; -async: do not
//	                              wait; all other flags are the agent's, the mode's
//	                              too (--proxy-mode=iptables)
//	terminate [-9]                end it as SIGTERM does (-9: as SIGKILL does)
//	restart [-9] [-async]         end it (-9: as SIGKILL does), start it with the same flags
//	put FILE TARGET               replace a file in one step, as cp does not
//	expect KIND FILE [REGEXP]     wait until the lines of the kernel that match are FILE's
//	expect-log REGEXP             wait until the agent has logged it; with ! it has not
//	settle                        wait until all that is on disk is in the kernel
//	mark                          settle, and begin to count written rows from 0
//	written TABLE N               settle; N rows were written since; TABLE may be total
//	plan                          wait until the kernel holds what `kube-ipvs plan` prints
//	foreign                       treat all rows of the kernel as foreign
//	agree                         wait until the result of a fresh compile, what the agent wants
//	                              and what the kernel holds besides foreign rows are the
//	                              same, and those are as they were
//	look                          ask the agent for its status: the loop comes round
//	host [ADDRESS...]             give the machine these addresses of its own, on the
//	                              link host0, and take from it all others; it has none
//	                              until then, whatever its Node has
//	gateway [ADDRESS...]          make these the next hops of its default routes, which
//	                              an agent sees when it starts and when it audits; for
//	                              fakes only
//	failing [ENDPOINT...]         let these endpoints of default/kubernetes fail their probes,
//	                              and no others; for fakes only
//	kernel TOOL ARGUMENT...       change the kernel behind the agent's back: ipvsadm,
//	                              ipset, iptables, ip6tables, ip or sysctl with its own
//	                              arguments
//	damage TOOL ARGUMENT...       the same, whether or not the kernel lets it be done
//	fault PACKAGE next [KIND]        let calls of servers, sets, rules or links fail,
//	fault PACKAGE nth|for N [KIND]   from now on, all is any kernel package: the next, the Nth, so
//	fault PACKAGE always [KIND]      many, or every one; or those rows of writes that have
//	fault PACKAGE row TEXT [KIND]    the text in them
//	fault PACKAGE crash N            let the agent die in the Nth, and another take its place
//	heal                          end all faults
//	cleanup                       remove everything of ours, as `kube-ipvs cleanup` does
//
// The KIND of what is expected is servers, sets, rules, addresses or link; Normal has the
// form. The KIND of a fault is how calls fail, as in FaultKind: fail, hang, late, lost (carried
// out, but not answered) or interrupted (lists). ENOBUFS, EBUSY, ENOMEM, EEXIST, ENOENT and EPERM
// are those errors of the package. A call that cannot fail so by what its package promises passes, and
// the fault waits for the next. A condition before a step keeps it to one driver, [fakes] or
// [kernel], or to runs in which calls fail or agents die unasked, [rough] and [crash]. Faults are
// for fakes only. The output of plan is for the addresses of the step host; without any address a
// NodePort is not served. (testscript has a step "stop" of its own, which ends the script.)
//
// Fakes is the driver without a kernel: the packages of the agent are connected in this process as
// in internal/daemon, on fakes of the kernel packages, which outlive the agent. A driver for the
// real kernel is in e2e/scenarios, as only e2e may start processes. Both run the same files.
package scenario
