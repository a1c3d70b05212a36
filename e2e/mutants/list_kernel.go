package main

// Mutants of the packages that speak to the kernel: vserver, ipset and conntrack.
var kernelMutants = []mutant{
	{
		Name: "vserver/existing-server-refused", File: "internal/kernel/vserver/converge.go",
		Breaks: "A virtual server that another program made first is not given the wanted scheduler.",
		Old:    "case op == Add && a.errno == syscall.EEXIST:\n\t\treturn Update, true, nil\n\tcase op == Update && a.errno == syscall.ESRCH:",
		New:    "case op == Add && a.errno == syscall.EBUSY:\n\t\treturn Update, true, nil\n\tcase op == Update && a.errno == syscall.ESRCH:",
	},
	{
		Name: "vserver/lost-destination-stays-lost", File: "internal/kernel/vserver/converge.go",
		Breaks: "A destination that another program deleted is not made again when its weight changes.",
		Old:    "case op == Update && a.errno == syscall.ENOENT:",
		New:    "case op == Update && a.errno == syscall.EEXIST:",
	},
	{
		Name: "vserver/reloaded-module-unnoticed", File: "internal/kernel/vserver/exchange.go",
		Breaks: "The agent goes on with the number of a netlink family that is gone after the module was loaded again.",
		Old:    "if errno == syscall.ENOENT {",
		New:    "if errno == syscall.ENOENT && h.family == 0 {",
	},
	{
		Name: "vserver/gue-tunnel-truncated", File: "internal/kernel/vserver/encode.go",
		Breaks: "A destination behind a GUE tunnel loses its tunnel: the kernel wraps its packets in IP alone.",
		Old:    "if d.Tunnel == TunnelIPIP {",
		New:    "if d.Tunnel <= TunnelGUE {",
	},
	{
		Name: "vserver/mapped-address-written", File: "internal/kernel/vserver/key.go",
		Breaks: "An IPv4 address in IPv6 form is written under a key that no later reading gives back.",
		Old:    `if !a.IsValid() || a.Is4In6() || a.Zone() != "" {`,
		New:    `if !a.IsValid() || a.Zone() != "" {`,
	},
	{
		Name: "ipset/replace-in-pieces", File: "ipset/replace.go",
		Breaks: "A set is replaced although an entry of it was refused, so the name holds a part of the entries.",
		Old:    "if err := firstError(r.Write(ctx, temp, changes)); err != nil {",
		New:    "if err := firstError(r.Write(ctx, temp, changes)); err != nil && len(entries) == 0 {",
	},
	{
		Name: "ipset/set-of-other-type-written", File: "ipset/change.go",
		Breaks: "Entries are written to a set that another program made with another family.",
		Old:    "if s.Type == found.Type && s.Family == found.Family {",
		New:    "if s.Type == found.Type {",
	},
	{
		Name: "ipset/found-entry-cannot-go", File: "ipset/change.go",
		Breaks: "An entry that another program put into a set, and that the set should not have, cannot be deleted.",
		Old:    "case op != OpDelete:",
		New:    "case op != OpDelete || e.Addr.IsValid():",
	},
	{
		Name: "ipset/neighbours-of-refused-row-lost", File: "ipset/write_linux.go",
		Breaks: "The rows behind a refused one in a message carry its error and are not written.",
		Old:    "case w.line == 0 || int(w.line) > len(w.sent):",
		New:    "case w.line == 0 || int(w.line) >= 1:",
	},
	{
		Name: "conntrack/interrupted-dump-believed", File: "internal/kernel/conntrack/sweep.go",
		Breaks: "Stale flows stay when the table changes while it is read.",
		Old:    "d.errno == syscall.EINTR || d.errno == 0 && d.interrupted",
		New:    "d.errno == syscall.EINTR",
	},
	{
		Name: "conntrack/answered-flow-deleted", File: "internal/kernel/conntrack/sweep.go",
		Breaks: "A flow that a pod began itself, and that is answered, is deleted when the pod becomes a backend.",
		Old:    "return unanswered && reply == f.back(), err",
		New:    "return (unanswered || err == nil) && reply == f.back(), err",
	},
	{
		Name: "conntrack/connections-cut", File: "internal/kernel/conntrack/sweep.go",
		Breaks: "Connections that are answered are cut together with those that are not.",
		Old:    "return f.idle()",
		New:    "return true, nil",
	},
	{
		Name: "conntrack/flow-without-tuple", File: "internal/kernel/conntrack/flow.go",
		Breaks: "A flow without a tuple leads to a deletion without one, which empties the whole table.",
		Old:    "len(id) == 0 || len(f.original) == 0",
		New:    "len(id) == 0",
	},
	{
		Name: "conntrack/outdated-order-carried-out", File: "internal/kernel/conntrack/staleness.go",
		Breaks: "A sweep deletes flows to an endpoint that came back while the sweep was reading.",
		Old:    "if o.outdated != nil && o.outdated.Load() {",
		New:    "if o.outdated != nil && o.outdated.Load() && o.Unserved {",
	},
	{
		Name: "conntrack/two-long-sweeps", File: "internal/kernel/conntrack/sweeper.go",
		Breaks: "Two sweeps read the whole table at a time, and both processors of a small node handle no packets.",
		Old:    "(!t.all || !s.reading)",
		New:    "(!t.all || !s.reading || l.family == 6)",
	},
}
