package main

// Mutants of the packages that turn inputs into frontends: plan and catalog.
var (
	planMutants = []mutant{
		{
			Name: "plan/dead-endpoint-serves", File: "internal/plan/topology.go",
			Breaks: "An endpoint that terminates and does not serve any more becomes a backend when no endpoint is ready.",
			Old:    "return e.Serving && e.Terminating && c.reaches(e)",
			New:    "return e.Terminating && c.reaches(e)",
		},
		{
			Name: "plan/incomplete-hints-followed", File: "internal/plan/topology.go",
			Breaks: "Traffic stays within the zone although an endpoint has no hint, so some endpoints get no traffic from any node.",
			Old:    `return t.want != "" && t.named && !t.missing`,
			New:    `return t.want != "" && t.named`,
		},
		{
			Name: "plan/node-weight-zero-ignored", File: "internal/plan/recompile.go",
			Breaks: "The weight 0 that a Node begins to ask for is not applied to the endpoints on it.",
			Old:    "return says != said || w != before // weight 0 is not nothing",
			New:    "return w != before || says != said && w.Weight > 0",
		},
		{
			Name: "plan/node-ports-stay", File: "internal/plan/recompile.go",
			Breaks: "NodePorts go on answering on the addresses that the machine had before.",
			Old:    "hasNodePorts(svc.Ports) && !slices.Equal(o.Host.NodePorts, old.Host.NodePorts)",
			New:    "hasNodePorts(svc.Ports) && len(o.Host.NodePorts) != len(old.Host.NodePorts)",
		},
		{
			Name: "plan/terminating-pod-hides-new-one", File: "internal/plan/endpoints.go",
			Breaks: "A new pod that takes over the address of a terminating one gets no traffic.",
			Old:    "trueFirst(!a.Terminating, !b.Terminating)",
			New:    "trueFirst(a.Terminating, b.Terminating)",
		},
		{
			Name: "plan/bad-node-weight-is-zero", File: "internal/plan/policy.go",
			Breaks: "A weight annotation of a Node that cannot be read takes all traffic away from the endpoints on it.",
			Old:    `said && w.Bad == ""`,
			New:    `said`,
		},
		{
			Name: "plan/proxied-address-bound", File: "internal/plan/addresses.go",
			Breaks: "A load-balancer address with ipMode Proxy is served on the node, and the load balancer is bypassed.",
			Old:    "if in.Proxy {",
			New:    "if in.Proxy && !in.Addr.IsValid() {",
		},
	}

	catalogMutants = []mutant{
		{
			Name: "catalog/first-services-wait", File: "internal/catalog/endpointgrace.go",
			Breaks: "Services of the first list wait for their slices one by one, so the first sync is late.",
			Old:    "dirty || c.endpointGrace == 0 || !c.taken || len(c.slices[id]) > 0",
			New:    "dirty || c.endpointGrace == 0 || len(c.slices[id]) > 0",
		},
		{
			Name: "catalog/moved-slice-stays", File: "internal/catalog/catalog.go",
			Breaks: "The endpoints of a slice that moves to another Service go on serving the first one, too.",
			Old:    "if old != nil && old.Service != s.Service {",
			New:    "if old != nil && old.Family != s.Family {",
		},
		{
			Name: "catalog/empty-service-served-early", File: "internal/catalog/partial.go",
			Breaks: "A starting node refuses the clients of a Service whose endpoints are still being listed.",
			Old:    "case s == nil || !c.hasEndpoint(id) || len(s.ExternalIPs)+len(s.Ingress) > 0:",
			New:    "case s == nil || len(s.ExternalIPs)+len(s.Ingress) > 0:",
		},
		{
			Name: "catalog/own-node-forgotten", File: "internal/catalog/node.go",
			Breaks: "The addresses of this machine become free for Services while its Node object is missing.",
			Old:    "if name != c.self || origin != model.FromKube {",
			New:    "if name != c.self || origin != model.FromFile {",
		},
		{
			Name: "catalog/deleted-node-eligible", File: "internal/catalog/node.go",
			Breaks: "Load balancers send traffic through a node whose Node object was deleted.",
			Old:    "awaited && (!have || c.own.gone[model.FromKube])",
			New:    "awaited && !have",
		},
		{
			Name: "catalog/partial-is-complete", File: "internal/catalog/batch.go",
			Breaks:   "Rows of an input that cannot be read are deleted as orphans.",
			Old:      "complete = complete && s == source.Complete",
			New:      "complete = complete && s >= source.Partial",
			Packages: []string{"internal/agent"},
		},
	}
)
