package main

// Mutants of the loop.
var agentMutants = []mutant{
	{
		Name: "agent/retry-pushed-back", File: "internal/agent/apply.go",
		Breaks: "Each pass pushes the retry of a refused row back and doubles its backoff, so the row is hardly ever tried again.",
		Old:    "if retry || !a.retry.set {",
		New:    "if retry || a.opts.RetryMin > 0 {",
	},
	{
		Name: "agent/unreadable-kernel-read-at-each-change", File: "internal/agent/apply.go",
		Breaks: "A kernel that cannot be read is read again at each change instead of after the backoff.",
		Old:    "if !a.synced || ctx.Err() != nil || !a.loaded && a.retry.set {",
		New:    "if !a.synced || ctx.Err() != nil {",
	},
	{
		Name: "agent/orphans-deleted-with-partial-input", File: "internal/agent/apply.go",
		Breaks: "Rows of an input that cannot be read are deleted as orphans.",
		Old:    "dataplane.ApplyOptions{KeepOrphans: !a.complete, Retry: retry}",
		New:    "dataplane.ApplyOptions{KeepOrphans: !a.complete && !a.synced, Retry: retry}",
	},
	{
		Name: "agent/in-sync-with-refused-rows", File: "internal/agent/audit.go",
		Breaks: "The agent reports that it is in sync after an audit although the kernel refuses rows.",
		Old:    "case audited.Done && err == nil && a.stats.auditError == nil && !a.retry.set:",
		New:    "case audited.Done && err == nil && a.stats.auditError == nil:",
	},
	{
		Name: "agent/moved-host-not-applied", File: "internal/agent/audit.go",
		Breaks: "What an audit reads of the host's new addresses is not written until something else changes.",
		Old:    "case a.noteDrift(audited.Drift) || moved:",
		New:    "case a.noteDrift(audited.Drift) || moved && err != nil:",
	},
	{
		Name: "agent/one-refused-row-is-unhealthy", File: "internal/agent/health.go",
		Breaks: "Load balancers send no traffic to a node of which the kernel refuses one row.",
		Old:    "if 2*missing <= wanted {",
		New:    "if missing == 0 && wanted >= 0 {",
	},
	{
		Name: "agent/carried-kernel-written-early", File: "internal/agent/prepare.go",
		Breaks: "A kernel that carries Services is written to before the sources are in sync.",
		Old:    "if a.mode.CarriesServices() {",
		New:    "if a.mode.CarriesServices() && a.synced {",
	},
	{
		Name: "agent/old-reading-believed", File: "internal/agent/prepare.go",
		Breaks: "What was read of the kernel long before the sources were in sync is believed without a second look.",
		Old:    "if !a.synced && a.loaded && time.Since(a.prepared) > preparedFor {",
		New:    "if !a.synced && a.loaded && time.Since(a.prepared) < 0 {",
	},
	{
		Name: "agent/carried-kernel-filled-in-parts", File: "internal/agent/first.go",
		Breaks: "A kernel that carries Services gets a plan that lacks most of them.",
		Old:    "err != nil || a.mode.CarriesServices() && !a.founding {",
		New:    "err != nil {",
	},
	{
		Name: "agent/silent-kernel-asked-for-each-scheduler", File: "internal/agent/schedulers.go",
		Breaks: "A kernel that does not answer blocks the loop for one deadline a scheduler.",
		Old:    "if errors.Is(err, context.DeadlineExceeded) {",
		New:    "if errors.Is(err, context.DeadlineExceeded) && q == nil {",
	},
	{
		Name: "agent/events-repeated", File: "internal/agent/herald.go",
		Breaks: "The owner of a Service gets the same Event again with each change of the Service.",
		Old:    "_, is := known[one]; return !is",
		New:    "_, is := known[one]; return !is || len(before) > 0",
	},
	{
		Name: "agent/gateway-not-followed", File: "internal/agent/host.go",
		Breaks: "A new next hop of the machine is not noticed, and a Service may take its address.",
		Old:    "!maps.Equal(links, a.known.Links) || !slices.Equal(gateways, a.known.Gateways)",
		New:    "!maps.Equal(links, a.known.Links) || len(gateways) != len(a.known.Gateways)",
	},
}
