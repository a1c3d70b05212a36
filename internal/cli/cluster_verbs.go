package cli

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/cluster"
	"github.com/kube-ipvs/kube-ipvs/internal/podexec"
)

// clusterVerbs returns the verbs of a cluster.
func clusterVerbs(f *clusterFlags) []clusterVerb {
	return []clusterVerb{
		clusterStatus(), clusterServices(f), clusterExplain(f), clusterDiff(), clusterTop(f), clusterDrains(f),
		{
			use: "check", short: "say what nodes lack, and the remedy", args: noArguments,
			long: `Run kube-ipvs check on each node, with the settings of its agent. Answers that are the same on many nodes
are one line; -o wide has the remedies.`,
			example:  "  kubectl ipvs check\n  kubectl ipvs check --node worker-7 -o wide",
			question: always(func() cluster.Question { return &cluster.Check{} }),
		},
		{
			use: "versions", short: "list the releases that nodes run", args: noArguments,
			long:     `List each release of the agent with the nodes that run it. It is a finding if nodes run different ones.`,
			example:  "  kubectl ipvs versions\n  kubectl ipvs versions -o json | jq '.items[] | {version, nodes}'",
			question: always(func() cluster.Question { return &cluster.Versions{} }),
		},
		{
			use: "audit", short: "have all agents look for drift now, and repair it", args: noArguments,
			long: `Have each agent compare all of its kernel with what it should hold, now, and repair what it finds, as
kube-ipvs audit does on one node.`,
			example:  "  kubectl ipvs audit\n  kubectl ipvs audit --node worker-7",
			question: always(func() cluster.Question { return &cluster.Audit{} }),
		},
	}
}

// always returns a question that depends on no argument.
func always(of func() cluster.Question) func(context.Context, *podexec.Client, []string) (cluster.Question, error) {
	return func(context.Context, *podexec.Client, []string) (cluster.Question, error) { return of(), nil }
}

func clusterStatus() clusterVerb {
	var quick bool
	return clusterVerb{
		use: "status", short: "the state of each node, and what is wrong with it", args: noArguments,
		long: `Print a line for each node: the state of its agent, rows that are not written yet (PENDING), rows that only
the kernel has or that it lacks now (ODD), rows that audits found so far (DRIFTED) and the age of the
latest audit. Mode, version, scheduler and kernel are columns where nodes differ in them.

A row that an agent writes at the moment counts as odd; it is gone when the verb is run again.`,
		example: "  kubectl ipvs status\n  kubectl ipvs status --quick --watch\n  kubectl ipvs status -o json | jq -r '.silent[].node'",
		bind: func(cmd *cobra.Command) {
			cmd.Flags().BoolVar(&quick, "quick", false, "do not compare kernels with what agents want")
		},
		question: always(func() cluster.Question { return &cluster.Status{Quick: quick} }),
	}
}

func clusterServices(f *clusterFlags) clusterVerb {
	return clusterVerb{
		use: "services [[NAMESPACE/]NAME]", short: "how Services fare on all nodes", args: arguments(cobra.MaximumNArgs(1)),
		long: `List Services with their state on all nodes. A Service that is different on some nodes, or that a node does
not know, is named with them; with a traffic policy Local a node may be without backends.`,
		example: "  kubectl ipvs services\n  kubectl ipvs services -n shop -o wide\n  kubectl ipvs services shop/cart",
		question: func(_ context.Context, _ *podexec.Client, args []string) (cluster.Question, error) {
			target, namespace, err := f.service(args)
			return &cluster.Services{Target: target, Namespace: namespace}, err
		},
	}
}

func clusterExplain(f *clusterFlags) clusterVerb {
	var from string
	return clusterVerb{
		use: "explain [NAMESPACE/]NAME | IP[:PORT[/PROTOCOL]]", short: "say why a Service or an address works on each node, or does not", args: oneArgument,
		long: `Ask each node to explain a Service or an address, and join the verdicts: sentences that nodes have in common are
one line. A node that lacks something, that runs another release or mode than most, or that does not
answer is named first. kube-ipvs explain on that node, or --node here, has the whole story.`,
		example: `  kubectl ipvs explain shop/cart
  kubectl ipvs explain 10.96.0.10:53/udp
  kubectl ipvs explain shop/cart --from shop/front-6d4b75cb6d-x2x9k
  kubectl ipvs explain 203.0.113.10:443 --from 192.0.2.7 --node worker-7`,
		bind: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&from, "from", "", "address of a client, or [namespace/]name of its pod, which takes the right to get pods")
		},
		question: func(ctx context.Context, c *podexec.Client, args []string) (cluster.Question, error) {
			target, address := args[0], from
			if parsed, err := agent.ParseQuery(target, ""); err == nil && !parsed.Address.IsValid() {
				target = f.qualified(target)
			}
			if _, err := netip.ParseAddr(from); from != "" && err != nil {
				namespace, name, _ := strings.Cut(f.qualified(from), "/")
				pod, err := c.PodAddress(ctx, namespace, name)
				if err != nil {
					return nil, fmt.Errorf("--from: %w", err)
				}
				address = pod.String()
			}
			if err := plain(target); err != nil {
				return nil, err
			}
			_, err := agent.ParseQuery(target, address)
			return &cluster.Explain{Target: target, From: address}, err
		},
	}
}

func clusterDiff() clusterVerb {
	var against string
	return clusterVerb{
		use: "diff", short: "compare the kernels of all nodes with what is wanted", args: noArguments,
		long: `Compare the kernel of each node with what its agent wants, row by row. Rows that many nodes have in common are
one line: with "-" the kernel has a row that is not wanted, with "+" it lacks one.

With --against=api each node compiles what is wanted from the API server instead, which shows an agent
that has missed a change. It makes each node list all Services and EndpointSlices once.`,
		example: "  kubectl ipvs diff\n  kubectl ipvs diff --against api --node worker-7\n  kubectl ipvs diff -o json | jq -r '.items[] | select(.side == \"desired\") | .row'",
		bind: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&against, "against", "agent", "what kernels are compared with: agent or api")
			choose(cmd, "against", "agent", "api")
		},
		question: func(context.Context, *podexec.Client, []string) (cluster.Question, error) {
			if against != "agent" && against != "api" {
				return nil, fmt.Errorf("--against: %q is neither agent nor api", against)
			}
			return &cluster.Diff{API: against == "api"}, nil
		},
	}
}

func clusterTop(f *clusterFlags) clusterVerb {
	var limit int
	var sample time.Duration
	return clusterVerb{
		use: "top [[NAMESPACE/]NAME]", short: "sum up what Services and backends carry on all nodes", args: arguments(cobra.MaximumNArgs(1)),
		long: `Add up the counters of IPVS of all nodes, between two samples of each: by Service, or by backend of the Service
that is named. BUSIEST is the node that carries most, and NODE SKEW how many times its even share it
has; SKEW is the largest skew between backends that a node sees. A node in iptables mode has no counters.`,
		example: "  kubectl ipvs top --limit 10\n  kubectl ipvs top shop/cart\n  kubectl ipvs top --watch",
		bind: func(cmd *cobra.Command) {
			cmd.Flags().IntVar(&limit, "limit", 0, "lines that are printed, 0 for all")
			cmd.Flags().DurationVar(&sample, "sample", 2*time.Second, "time between the two samples of a node; the kernel adds up its counters once in 2s")
		},
		question: func(_ context.Context, _ *podexec.Client, args []string) (cluster.Question, error) {
			service, namespace, err := f.service(args)
			switch {
			case err != nil:
				return nil, err
			case limit < 0:
				return nil, fmt.Errorf("--limit: %d is less than 0", limit)
			case sample < time.Second || sample > f.timeout/2:
				return nil, fmt.Errorf("--sample: %s is not from 1s to half of --timeout", sample)
			}
			return &cluster.Top{Service: service, Namespace: namespace, Interval: sample, Limit: limit}, nil
		},
	}
}

func clusterDrains(f *clusterFlags) clusterVerb {
	return clusterVerb{
		use: "drain-status [[NAMESPACE/]NAME]", short: "backends that drain on all nodes, with their connections", args: arguments(cobra.MaximumNArgs(1)),
		long: `List backends that drain, or climb to their weight, with the connections that all nodes have of them together, and
the time after which the last node ends them.`,
		example: "  kubectl ipvs drain-status\n  kubectl ipvs drain-status shop/cart --watch",
		question: func(_ context.Context, _ *podexec.Client, args []string) (cluster.Question, error) {
			target, namespace, err := f.service(args)
			return &cluster.Drains{Target: target, Namespace: namespace}, err
		},
	}
}

// service returns the Service of the argument with its namespace, or the namespace of a list.
func (f *clusterFlags) service(args []string) (target, namespace string, err error) {
	if len(args) == 0 {
		return "", f.Namespace(), plain(f.Namespace())
	}
	target = f.qualified(args[0])
	if namespace, name, _ := strings.Cut(target, "/"); namespace == "" || name == "" || strings.Contains(name, "/") {
		return "", "", fmt.Errorf("%q is not [namespace/]name", args[0])
	}
	return target, "", plain(target)
}

// qualified returns a name with a namespace: its own, or that of the flags or the context.
func (f *clusterFlags) qualified(name string) string {
	if strings.Contains(name, "/") {
		return name
	}
	return f.ContextNamespace() + "/" + name
}

// plain refuses a text that a node would take for a flag.
func plain(text string) error {
	if strings.HasPrefix(text, "-") {
		return fmt.Errorf("%q is no name", text)
	}
	return nil
}
