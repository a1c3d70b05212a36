package main

// Mutants of the sources.
var sourceMutants = []mutant{
	{
		Name: "source/unset-condition-is-not-ready", File: "internal/source/slice.go",
		Breaks: "An endpoint without a ready condition, which the API means as ready, gets no traffic.",
		Old:    "or(in.Conditions.Ready, true)",
		New:    "or(in.Conditions.Ready, false)",
	},
	{
		Name: "source/spoilt-ranges-admit-all", File: "internal/source/sourceranges.go",
		Breaks: "A load balancer whose source ranges cannot be read admits every client.",
		Old:    "!list.spoilt || !list.empty() {",
		New:    "!list.spoilt || list.empty() {",
	},
	{
		Name: "source/leaving-node-eligible", File: "internal/source/node.go",
		Breaks: "Load balancers send traffic through a Node that is being deleted.",
		Old:    "in.DeletionTimestamp != nil || slices.ContainsFunc(in.Spec.Taints, leaves)",
		New:    "slices.ContainsFunc(in.Spec.Taints, leaves)",
	},
	{
		Name: "source/local-policy-of-external-ips", File: "internal/source/external.go",
		Breaks: "A ClusterIP Service with external IPs and the policy Local is served by the endpoints of other nodes.",
		Old:    "out.Type == string(corev1.ServiceTypeClusterIP) && len(out.ExternalIPs) > 0)",
		New:    "out.Type == string(corev1.ServiceTypeClusterIP) && len(out.ExternalIPs) > 1)",
	},
	{
		Name: "file/empty-directory-is-complete", File: "internal/source/file/store.go",
		Breaks: "A directory whose mount has not come yet counts as complete, and every Service is deleted.",
		Old:    "return s.everSeen\n",
		New:    "return s.everSeen || len(s.files) == 0\n",
	},
	{
		Name: "file/bad-file-deletes-its-services", File: "internal/source/file/store.go",
		Breaks: "A mistake in a file takes the Services away that the file defined before.",
		Old:    "if len(c.faults) > 0 {\n\t\ts.logBad",
		New:    "if len(c.faults) > 0 && !k.everGood {\n\t\ts.logBad",
	},
	{
		Name: "file/renamed-file-is-unusable", File: "internal/source/file/store.go",
		Breaks: "A file that is renamed while it is read counts as unusable, and the source as partial.",
		Old:    "if !moved || attempt == maxAttempts {",
		New:    "if !moved || attempt < maxAttempts {",
	},
	{
		Name: "file/second-write-overlooked", File: "internal/source/file/dirscanner.go",
		Breaks: "The second of two writes within one tick of the file system's clock is overlooked.",
		Old:    "case before.proof && before.same(info):",
		New:    "case before.same(info):",
	},
	{
		Name: "kube/deleted-while-away", File: "internal/source/kube/store.go",
		Breaks: "A Service that was deleted while the API server was away is served for ever.",
		Old:    "if _, still := names[name]; !still {",
		New:    "if _, still := names[name]; !still && len(names) == 0 {",
	},
	{
		Name: "kube/later-list-arrives-in-pieces", File: "internal/source/kube/store.go",
		Breaks: "Objects of a later list are delivered before the list is complete, and may be older than those in place.",
		Old:    "if !s.replaced {",
		New:    "if !s.replaced || len(s.names) > 0 {",
	},
	{
		Name: "kube/endless-answer", File: "internal/source/kube/readbudget.go",
		Breaks: "An answer without an end fills the memory of the agent.",
		Old:    "b.read.Add(int64(n)) > b.most {",
		New:    "b.read.Add(int64(n)) > b.most && n == 0 {",
	},
	{
		Name: "kube/all-nodes-followed", File: "internal/source/kube/nodelimit.go",
		Breaks: "An agent follows all Nodes of a cluster that has too many of them.",
		Old:    "if n > s.opts.ManyNodes {",
		New:    "if n > s.opts.ManyNodes && s.opts.ManyNodes == 0 {",
	},
	{
		Name: "kube/watches-begin-together", File: "internal/source/kube/listwatcher.go",
		Breaks: "All agents begin their watches in the same moment after an API server has ended them early.",
		Old:    "if c.short.Swap(false) && !listing {",
		New:    "if c.short.Swap(false) && listing {",
	},
	{
		Name: "kube/nameless-json-is-an-empty-list", File: "internal/source/kube/listwatcher.go",
		Breaks: "An answer that is not from an API server counts as an empty list, and every Service is deleted.",
		Old:    "err == nil && len(out.Items) == 0 && allowed.missingKind()",
		New:    "err == nil && len(out.Items) > 0 && allowed.missingKind()",
	},
}
