package main

// Mutants of the ipvs mode.
var ipvsMutants = []mutant{
	{
		Name: "ipvs/stale-flows-of-udp-only", File: "internal/dataplane/ipvs/staleflows.go",
		Breaks: "SCTP flows go on to a backend that is gone, for stale flows are ordered for UDP only.",
		Old:    "if _, noted := f.noted[k]; !noted && k.Protocol != vserver.ProtocolTCP {",
		New:    "if _, noted := f.noted[k]; !noted && k.Protocol == vserver.ProtocolUDP {",
	},
	{
		Name: "ipvs/drain-counted-before-weight-zero", File: "internal/dataplane/ipvs/destinations/drain.go",
		Breaks: "A drain is counted idle before its weight 0 is written, and ends under connections that come meanwhile.",
		Old:    "there && have.Weight == 0 {",
		New:    "there && have.Weight < maxWeight {",
	},
	{
		Name: "ipvs/hashing-scheduler-drains", File: "internal/dataplane/ipvs/destinations/drain.go",
		Breaks: "Clients whose hash leads to a draining destination are refused, for sh without fallback knows no other.",
		Old:    "return f.Scheduler.KernelFlags()&vserver.FlagSched1 != 0",
		New:    "return f.Scheduler.KernelFlags()&vserver.FlagSched1 == 0",
	},
	{
		Name: "ipvs/drain-survives-its-service", File: "internal/dataplane/ipvs/destinations/drain.go",
		Breaks: "The endpoints of a Service stay behind an address that another Service has taken over.",
		Old:    "case c.New == nil || c.Old != nil && c.Old.Service != c.New.Service:",
		New:    "case c.New == nil:",
	},
	{
		Name: "ipvs/address-before-server", File: "internal/dataplane/ipvs/managers.go",
		Breaks: "An address is bound before it has a virtual server, so the host itself answers its clients.",
		Old:    "return !m.order.baseInPlace(a) || !m.order.marks(a) || !m.order.served(a)",
		New:    "return !m.order.baseInPlace(a) || !m.order.marks(a)",
	},
	{
		Name: "ipvs/mark-goes-before-server", File: "internal/dataplane/ipvs/prerequisites.go",
		Breaks: "The mark of an address goes before its virtual server, which the next process does not know as its own.",
		Old:    "return o.addresses.Addresses.PendingDelete(k.Entry.Addr) || o.serverLeftAt(k.Entry.Addr)",
		New:    "return o.addresses.Addresses.PendingDelete(k.Entry.Addr)",
	},
	{
		Name: "ipvs/unguarded-server", File: "internal/dataplane/ipvs/managers.go",
		Breaks: "A virtual server is made before the entries that keep clients out of it.",
		Old:    "return !m.order.baseInPlace(k.Addr) || !m.order.guarded(k)",
		New:    "return !m.order.baseInPlace(k.Addr)",
	},
	{
		Name: "ipvs/takeover-with-partial-input", File: "internal/dataplane/ipvs/migrate/takeover.go",
		Breaks: "The rules of kube-proxy's other mode go although some input cannot be read, and its Services go with them.",
		Old:    "if !t.holding || opts.KeepOrphans {",
		New:    "if !t.holding {",
	},
	{
		Name: "ipvs/udp-held", File: "internal/dataplane/ipvs/servers/quiesce.go",
		Breaks: "UDP datagrams, which no client sends again, are dropped while a scheduler changes.",
		Old:    "if m.changesScheduler(c.Key, c.Value) && c.Key.Protocol != netkey.UDP {",
		New:    "if m.changesScheduler(c.Key, c.Value) {",
	},
	{
		Name: "ipvs/hold-outlives-its-process", File: "internal/dataplane/ipvs/sets/registry.go",
		Breaks: "Clients stay locked out of a server whose scheduler was being changed when the agent died or was stopped.",
		Old:    "if t.name == Hold {",
		New:    "if t.name == NodePortIPs {",
	},
	{
		Name: "ipvs/staging-refused-asked-again", File: "internal/dataplane/ipvs/servers/staging.go",
		Breaks: "A kernel that makes no server without a scheduler is asked to do so for each server.",
		Old:    "if !ok || m.staging.unsupported {",
		New:    "if !ok {",
	},
	{
		Name: "ipvs/first-fill-climbs", File: "internal/dataplane/ipvs/destinations/slowstart.go",
		Breaks: "Backends climb slowly on a node that is filled for the first time, though no other backend carries the load.",
		Old:    "if now.Before(m.slow.initialFillUntil) || !m.hasFullWeightPeer(server, f, news, alike, by) {",
		New:    "if !m.hasFullWeightPeer(server, f, news, alike, by) {",
	},
	{
		Name: "ipvs/drained-wait-for-room", File: "internal/dataplane/ipvs/destinations/trash.go",
		Breaks: "Drained destinations without a deadline wait for as long as the kernel's list of deleted ones is long.",
		Old:    "for room < len(idle) && now.Sub(since(idle[room])) >= trashWait {",
		New:    "for room < len(idle) && now.Sub(since(idle[room])) < 0 {",
	},
	{
		Name: "ipvs/lost-entries-overlooked", File: "internal/dataplane/ipvs/sets/audit.go",
		Breaks: "An audit overlooks that another program has deleted entries of a set.",
		Old:    "if drift == 0 && len(entries) == count {",
		New:    "if drift == 0 && len(entries) <= count {",
	},
	{
		Name: "ipvs/silent-kernel-audited-in-full", File: "internal/dataplane/ipvs/audit/audit.go",
		Breaks: "An audit of a kernel that does not answer blocks the loop for one deadline a piece.",
		Old:    "if errors.Is(err, context.DeadlineExceeded) { // each",
		New:    "if errors.Is(err, context.DeadlineExceeded) && next.table == \"\" { // each",
	},
	{
		Name: "ipvs/lost-server-stays-lost", File: "internal/dataplane/ipvs/destinations/manager.go",
		Breaks: "A virtual server that another program deleted is not made again when one of its destinations changes.",
		Old:    "if errors.Is(err, vserver.ErrNotExist) {",
		New:    "if errors.Is(err, vserver.ErrNotExist) && c.Op == delta.Delete {",
	},
	{
		Name: "ipvs/shared-entry-goes-with-one", File: "internal/dataplane/ipvs/sets/manager.go",
		Breaks: "An entry that two frontends need goes with the first of them.",
		Old:    "if _, wanted := m.Members.Desired(k); wanted {",
		New:    "if _, wanted := m.Members.Desired(k); wanted && m.shared[k] > 0 {",
	},
	{
		Name: "ipvs/unshown-server-trusted", File: "internal/dataplane/ipvs/audit/survey.go",
		Breaks: "An audit takes a virtual server for present that the kernel's list does not show.",
		Old:    "if _, seen := a.survey.seen[k]; !seen {",
		New:    "if _, seen := a.survey.seen[k]; !seen && a.rounds%seldom == 0 {",
	},
}
