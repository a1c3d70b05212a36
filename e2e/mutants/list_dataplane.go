package main

// Mutants of the tables and of what all modes share: delta and dataplane.
var (
	deltaMutants = []mutant{
		{
			Name: "delta/changed-row-rests", File: "internal/delta/tracker.go",
			Breaks: "A row that failed before waits for the backoff even when something else is wanted of it.",
			Old:    "u.resting = u.resting && t.equal(u.want, v)",
			New:    "u.resting = u.resting || t.equal(u.want, v) && false",
		},
		{
			Name: "delta/refused-update-never-rests", File: "internal/delta/tracker.go",
			Breaks:   "A row that the kernel refuses is written again by every pass, whatever the backoff says.",
			Old:      "if u.resting && !p.Retry {",
			New:      "if u.resting && !p.Retry && !p.Orphans {",
			Packages: []string{"internal/dataplane/ipvs", "internal/agent"},
		},
		{
			Name: "delta/refused-delete-never-rests", File: "internal/delta/tracker.go",
			Breaks: "A deletion that the kernel refuses is tried again by every pass, whatever the backoff says.",
			Old:    "l.unsure, l.resting = true, true",
			New:    "l.unsure, l.resting = true, false",
		},
		{
			Name: "delta/lost-reply-leaks-row", File: "internal/delta/tracker.go",
			Breaks: "A row whose write was carried out but not acknowledged stays in the kernel when it is not wanted any more.",
			Old:    "\tcase unknown:\n\t\tt.deletes.set(k, leftover[V]{have: u.want, unsure: true})",
			New:    "\tcase unknown + 1:\n\t\tt.deletes.set(k, leftover[V]{have: u.want, unsure: true})",
		},
		{
			Name: "delta/orphans-always-deleted", File: "internal/delta/tracker.go",
			Breaks:   "Rows of an input that cannot be read are deleted as orphans.",
			Old:      "if p.Orphans {",
			New:      "if p.Orphans || p.Retry {",
			Packages: []string{"internal/dataplane/ipvs"},
		},
		{
			Name: "delta/silent-kernel-asked-for-each-batch", File: "internal/delta/table.go",
			Breaks: "A kernel that does not answer blocks the loop for one deadline a batch instead of one a table.",
			Old:    "if changes = changes[n:]; silent(errs) {",
			New:    "if changes = changes[n:]; silent(errs) && len(changes) == 0 {",
		},
		{
			Name: "delta/unmarked-leftover-hidden", File: "internal/delta/table.go",
			Breaks: "A row that is given up stays in the kernel when its mark of ownership is gone first.",
			Old:    "return desired || t.PendingDelete(k)",
			New:    "return desired",
		},
		{
			Name: "delta/released-key-stays-claimed", File: "internal/delta/claims.go",
			Breaks: "A shared row goes away with the first of the two owners that want it.",
			Old:    "if len(list) == 1 {",
			New:    "if len(list) <= 2 {",
		},
	}

	dataplaneMutants = []mutant{
		{
			Name: "dataplane/old-plan-kept", File: "internal/dataplane/frontends.go",
			Breaks:   "The list of an old plan stays in memory as long as one of its frontends does not change.",
			Old:      "\tf.inForce[k] = now // an equal one, too, lest it keep alive the list that it is in\n\tif old != nil && old.Equal(*now) {\n\t\treturn Change{}, false\n\t}",
			New:      "\tif old != nil && old.Equal(*now) {\n\t\treturn Change{}, false\n\t}\n\tf.inForce[k] = now",
			Packages: []string{"internal/dataplane/ipvs"},
		},
		{
			Name: "dataplane/undated-service-wins", File: "internal/dataplane/conflicts.go",
			Breaks: "A Service without a date of creation takes the address of an older one.",
			Old:    "return math.MaxInt64",
			New:    "return math.MinInt64",
		},
		{
			Name: "dataplane/old-winner-untold", File: "internal/dataplane/conflicts.go",
			Breaks: "The owner of a Service is not told that an older Service took its address.",
			Old:    "if wants.id != first.id && wanted.id != first.id {",
			New:    "if false && wants.id != first.id && wanted.id != first.id {",
		},
		{
			Name: "dataplane/kept-orphans-pending", File: "internal/dataplane/pipeline.go",
			Breaks:   "A pass that keeps orphans never counts as done, so the agent retries for ever and is never in sync.",
			Old:      "if opts.KeepOrphans {",
			New:      "if opts.KeepOrphans && c.Updates > 0 {",
			Packages: []string{"internal/dataplane/ipvs"},
		},
		{
			Name: "dataplane/cleanup-hides-leftovers", File: "internal/dataplane/sweep.go",
			Breaks:   "A cleanup that leaves rows in the kernel reports success.",
			Old:      "if t.Deletes > 0 {",
			New:      "if t.Deletes > 0 && t.Desired > 0 {",
			Packages: []string{"internal/dataplane/ipvs"},
		},
		{
			Name: "dataplane/pods-of-any-source", File: "internal/dataplane/netfilter/localpods.go",
			Breaks:   "A range of all addresses counts as one of pods, so external traffic is taken for local traffic.",
			Old:      "if model.FamilyOf(p.Addr()) == f && p.Bits() > 0 {",
			New:      "if model.FamilyOf(p.Addr()) == f {",
			Packages: []string{"internal/dataplane/ipvs", "internal/dataplane/iptables"},
		},
	}
)
