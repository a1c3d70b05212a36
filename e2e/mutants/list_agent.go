package main

// Mutants of the loop.
var agentMutants = []mutant{
	{
		Name: "agent/retry-pushed-back", File: "internal/agent/apply.go",
		Breaks: "Each pass pushes the retry of a refused row back and doubles its backoff, so the row is hardly ever tried again.",
		Old:    "if retry || !w.schedule.isSet(retryFailed) {",
		New:    "if retry || w.opts.RetryMin > 0 {",
	},
	{
		Name: "agent/unreadable-kernel-read-at-each-change", File: "internal/agent/apply.go",
		Breaks: "A kernel that cannot be read is read again at each change instead of after the backoff.",
		Old:    "if !w.progress.synced || ctx.Err() != nil || !w.progress.loaded && w.schedule.isSet(retryFailed) {",
		New:    "if !w.progress.synced || ctx.Err() != nil {",
	},
	{
		Name: "agent/orphans-deleted-with-partial-input", File: "internal/agent/apply.go",
		Breaks: "Rows of an input that cannot be read are deleted as orphans.",
		Old:    "dataplane.ApplyOptions{KeepOrphans: !w.progress.complete, Retry: retry}",
		New:    "dataplane.ApplyOptions{KeepOrphans: !w.progress.complete && !w.progress.synced, Retry: retry}",
	},
	{
		Name: "agent/in-sync-with-refused-rows", File: "internal/agent/audit.go",
		Breaks: "The agent reports that it is in sync after an audit although the kernel refuses rows.",
		Old:    "case audited.Done && err == nil && a.audit.lastError == nil && !a.schedule.isSet(retryFailed):",
		New:    "case audited.Done && err == nil && a.audit.lastError == nil:",
	},
	{
		Name: "agent/moved-host-not-applied", File: "internal/agent/audit.go",
		Breaks: "New addresses of the host that an audit reads are not applied until something else changes.",
		Old:    "case a.recordDrift(audited.Drift) || hostChanged:",
		New:    "case a.recordDrift(audited.Drift) || hostChanged && err != nil:",
	},
	{
		Name: "agent/one-refused-row-is-unhealthy", File: "internal/agent/watchdog.go",
		Breaks: "Load balancers send no traffic to a node of which the kernel refuses one row.",
		Old:    "if 2*missing > desired {",
		New:    "if missing > 0 || desired < 0 {",
	},
	{
		Name: "agent/carried-kernel-written-early", File: "internal/agent/bootstrap.go",
		Breaks: "A kernel that carries Services is written to before the sources are in sync.",
		Old:    "if a.mode.CarriesServices() {",
		New:    "if a.mode.CarriesServices() && a.progress.synced {",
	},
	{
		Name: "agent/old-reading-believed", File: "internal/agent/startup.go",
		Breaks: "A reading of the kernel from long before the sources were in sync is believed without a second one.",
		Old:    "if !p.synced && p.loaded && p.stale(now) {",
		New:    "if !p.synced && p.loaded && p.stale(now) && now.IsZero() {",
	},
	{
		Name: "agent/carried-kernel-filled-in-parts", File: "internal/agent/bootstrap.go",
		Breaks: "A kernel that carries Services gets a plan that lacks most of them.",
		Old:    "err != nil || a.mode.CarriesServices() && !a.progress.bootstrapping {",
		New:    "err != nil {",
	},
	{
		Name: "agent/silent-kernel-asked-for-each-scheduler", File: "internal/agent/kernelfeatures.go",
		Breaks: "A kernel that does not answer blocks the loop for one deadline a scheduler.",
		Old:    "if errors.Is(err, context.DeadlineExceeded) {",
		New:    "if errors.Is(err, context.DeadlineExceeded) && r == nil {",
	},
	{
		Name: "agent/events-repeated", File: "internal/agent/reporter.go",
		Breaks: "The owner of a Service gets the same Event again with each change of the Service.",
		Old:    "_, is := known[one]; return !is",
		New:    "_, is := known[one]; return !is || len(before) > 0",
	},
	{
		Name: "agent/gateway-not-followed", File: "internal/agent/hoststate.go",
		Breaks: "A new next hop of the machine is not noticed, and a Service may take its address.",
		Old:    "!maps.Equal(m.links, k.Links) || !slices.Equal(m.gateways, k.Gateways)",
		New:    "!maps.Equal(m.links, k.Links) || len(m.gateways) != len(k.Gateways)",
	},
}
