package main

// Mutants of the iptables mode.
var iptablesMutants = []mutant{
	{
		Name: "iptables/first-endpoints-leave-flows", File: "internal/dataplane/iptables/staleflows.go",
		Breaks: "A UDP flow that began before its Service had endpoints stays untranslated.",
		Old:    "len(endpoints(c.Old.Backends)) > 0 && holdsAll(takers(c.New), takers(c.Old)) {",
		New:    "holdsAll(takers(c.New), takers(c.Old)) {",
	},
	{
		Name: "iptables/flows-before-rules", File: "internal/dataplane/iptables/staleflows.go",
		Breaks: "Stale flows are deleted before the new rules are in place, and begin again by the old ones.",
		Old:    "slices.ContainsFunc(note.hashes, func(h string) bool { return has(unsettled, h) }) {",
		New:    "len(note.hashes) == 0 && len(unsettled) == 0 {",
	},
	{
		Name: "iptables/connections-cut", File: "internal/dataplane/iptables/staleflows.go",
		Breaks: "Connections are cut when an endpoint that finishes what it has leaves the backends.",
		Old:    "o := conntrack.Order{Key: k, Connections: k.Protocol != model.UDP}",
		New:    "o := conntrack.Order{Key: k, Connections: k.Protocol == model.TCP && k.Port == 0}",
	},
	{
		Name: "iptables/tables-dropped-early", File: "internal/dataplane/iptables/takeover.go",
		Breaks: "The tables of kube-proxy's nftables mode go before the rules that replace them are in place.",
		Old:    "t.holding = !done && t.retries < maxRetries",
		New:    "t.holding = !done && t.retries >= maxRetries",
	},
	{
		Name: "iptables/flush-leaves-connections", File: "internal/dataplane/iptables/mode.go",
		Breaks: "Connections that began while rules were flushed stay untranslated after the repair.",
		Old:    "if m.tables.lacking() > lacked {",
		New:    "if m.tables.lacking() > lacked && m.takeover.cleared {",
	},
	{
		Name: "iptables/pod-range-not-followed", File: "internal/dataplane/iptables/mode.go",
		Breaks: "The rules of Services go on telling local traffic by the range of pods that the node had before.",
		Old:    "return m.config.Local.Match(f, before) != m.config.Local.Match(f, now)",
		New:    "return (m.config.Local.Match(f, before) == nil) != (m.config.Local.Match(f, now) == nil)",
	},
	{
		Name: "iptables/unchanged-rules-are-read", File: "internal/dataplane/iptables/audit.go",
		Breaks: "All rules are listed in each audit though none was written, which takes seconds with many Services.",
		Old:    "if g := a.deps.Rules.Generation(ctx); g != 0 && g == a.read {",
		New:    "if g := a.deps.Rules.Generation(ctx); g == 0 && g != a.read {",
	},
	{
		Name: "iptables/one-bad-rule-refuses-all", File: "internal/dataplane/iptables/write.go",
		Breaks: "One Service whose chain is refused keeps the whole dispatch chain from being written.",
		Old:    "if c.Op != delta.Add || !netfilter.OfService(to) || w.tables.hasChain(to) || b.omits(c.Key.chain) {",
		New:    "if c.Op != delta.Add || !netfilter.OfService(to) || !w.tables.hasChain(to) || b.omits(c.Key.chain) {",
	},
}
