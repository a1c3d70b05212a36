package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/kube-ipvs/kube-ipvs/internal/cluster"
	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
	"github.com/kube-ipvs/kube-ipvs/internal/podexec"
	"github.com/kube-ipvs/kube-ipvs/internal/version"
)

const clusterHelp = `Ask the agents of all nodes, and say once what they agree on and by node what differs.

The pods of agents are found by their label, and a verb of kube-ipvs runs in each of them by
exec, as kubectl exec does; nothing listens for it. The rights that this takes are to list pods
and to create pods/exec in the namespace of the agents (manifests/components/operator).

The first line is the verdict. Then come the nodes that have not answered, and what is wrong with
others, the worst first, so that a fault of one node is on the first screen. The program is the
same as the agent: under the name kubectl-ipvs it is a plugin of kubectl.`

// kubectlName is the name under which the program is a plugin of kubectl.
const kubectlName = "kubectl-ipvs"

// NewKubectl returns the command of the plugin: the verbs of the cluster, without those of a node.
func NewKubectl() *cobra.Command {
	root := clusterCommand()
	root.Use = kubectlName
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl ipvs"}
	root.Version = version.String()
	root.SilenceUsage, root.SilenceErrors = true, true
	root.SetGlobalNormalizationFunc(config.Dashes)
	root.SetUsageFunc(usage)
	root.SetFlagErrorFunc(flagError)
	root.CompletionOptions.DisableDefaultCmd = true
	return root
}

// completionName is the name under which kubectl asks what completes a command line of the plugin.
const completionName = "kubectl_complete-ipvs"

// calledAs returns the command for the name by which the program was started, with its arguments.
func calledAs(words []string) *cobra.Command {
	root, args := NewRoot(), words[1:]
	switch strings.TrimSuffix(filepath.Base(words[0]), ".exe") {
	case kubectlName:
		root = NewKubectl()
	case completionName:
		root, args = NewKubectl(), append([]string{cobra.ShellCompRequestCmd}, args...)
	}
	root.SetArgs(args)
	return root
}

// newCluster returns the verb cluster with the verbs below it.
func newCluster() *cobra.Command { return clusterCommand() }

func clusterCommand() *cobra.Command {
	var f clusterFlags
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "ask all nodes of a cluster, and join their answers",
		Long:  clusterHelp,
		Example: `  kubectl ipvs status
  kubectl ipvs explain shop/cart
  kube-ipvs cluster status                 # the same program without kubectl`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	f.bind(cmd)
	for _, v := range clusterVerbs(&f) {
		cmd.AddCommand(v.command(&f))
	}
	cmd.AddCommand(newClusterUI(&f))
	return cmd
}

// clusterFlags are those of all verbs of a cluster.
type clusterFlags struct {
	podexec.Flags
	agents   podexec.Options
	parallel int
	timeout  time.Duration
	viewOptions
}

const (
	// mostParallel bounds --parallel: each node that is asked may have an answer of some MiB in memory.
	mostParallel = 256
	// clusterInterval is the time between two rounds of --watch: each of them starts processes on all nodes.
	clusterInterval = 10 * time.Second
)

func (f *clusterFlags) bind(cmd *cobra.Command) {
	fs := cmd.PersistentFlags()
	fs.SortFlags = false
	fs.StringVarP(&f.agents.Selector, "selector", "l", "k8s-app=kube-ipvs", "label of the pods of agents")
	fs.StringVar(&f.agents.Namespace, "agent-namespace", "kube-system", "namespace of the pods of agents")
	fs.StringVar(&f.agents.Container, "container", "kube-ipvs", "container of the agent in its pod")
	fs.StringVar(&f.agents.Node, "node", "", "ask this node only")
	fs.IntVar(&f.parallel, "parallel", 32, "nodes that are asked at a time")
	fs.DurationVar(&f.timeout, "timeout", 20*time.Second, "time that one node has to answer")
	fs.StringVarP(&f.output, "output", "o", clusterOutputs[0], "table, wide, json or yaml")
	fs.BoolVar(&f.noHeaders, "no-headers", false, "leave out the headings of tables")
	fs.BoolVarP(&f.watch, "watch", "w", false, "ask again and again: in place on a terminal, below each other elsewhere")
	fs.DurationVar(&f.interval, "interval", clusterInterval, "time between two rounds with --watch")
	choose(cmd, "output", clusterOutputs...)
	f.Bind(fs)
}

// clusterOutputs are the formats of verbs of a cluster.
var clusterOutputs = []string{"table", "wide", "json", "yaml"}

func (f *clusterFlags) check() error {
	err := f.valid(clusterOutputs...)
	if f.parallel < 1 || f.parallel > mostParallel {
		err = errors.Join(err, fmt.Errorf("--parallel: %d is not from 1 to %d", f.parallel, mostParallel))
	}
	if f.timeout < time.Second {
		err = errors.Join(err, fmt.Errorf("--timeout: %s is less than 1s", f.timeout))
	}
	return err
}

// open returns a client of the cluster.
func (f *clusterFlags) open() (*podexec.Client, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	config, err := f.Config()
	if err != nil {
		return nil, err
	}
	return podexec.New(config, f.agents)
}

// A clusterVerb is one verb of a cluster.
type clusterVerb struct {
	use, short, long, example string
	args                      cobra.PositionalArgs
	bind                      func(cmd *cobra.Command)
	// question returns what nodes are asked.
	question func(ctx context.Context, c *podexec.Client, args []string) (cluster.Question, error)
}

func (v clusterVerb) command(f *clusterFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use: v.use, Short: v.short, Long: v.long, Example: v.example, Args: v.args,
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := f.open()
			if err != nil {
				return err
			}
			return f.show(cmd, func(ctx context.Context, p page) error {
				q, err := v.question(ctx, client, args)
				if err != nil {
					return err
				}
				return f.ask(ctx, client, q, p)
			})
		},
	}
	cmd.Flags().SortFlags = false
	if v.bind != nil {
		v.bind(cmd)
	}
	return cmd
}

// ask asks all nodes and prints the report.
func (f *clusterFlags) ask(ctx context.Context, client *podexec.Client, q cluster.Question, p page) error {
	nodes, err := client.Nodes(ctx)
	if err != nil {
		return err
	}
	progress, end := progressTo(os.Stderr)
	r := cluster.Run(ctx, nodes, client.Ask, q, cluster.Options{Parallel: f.parallel, Deadline: f.timeout, Progress: progress})
	end()
	if f.output == "json" || f.output == "yaml" {
		err = p.encode(f.output, r)
	} else {
		err = r.Write(p.out, inspect.TableOptions{Wide: f.output == "wide", NoHeaders: f.noHeaders, Colour: p.colour})
	}
	switch {
	case err != nil || f.watch:
		return err
	case r.Answered == 0:
		return exitError{code: exitFailed}
	case !r.OK:
		return exitError{code: exitFound}
	}
	return nil
}

// manyNodes is from how many nodes on progress is shown.
const manyNodes = 20

// progressTo returns a function that shows progress on a terminal, and one that erases it.
func progressTo(f *os.File) (show func(done, of int), end func()) {
	if !term.IsTerminal(int(f.Fd())) {
		return nil, func() {}
	}
	return progressOn(f)
}

// progressOn writes progress in place, at most once for each hundredth.
func progressOn(w io.Writer) (show func(done, of int), end func()) {
	shown := false
	show = func(done, of int) {
		if of >= manyNodes && (done == of || done%max(of/100, 1) == 0) {
			shown = true
			fmt.Fprintf(w, "\r%d of %d nodes", done, of)
		}
	}
	return show, func() {
		if shown {
			fmt.Fprint(w, "\r\x1b[K") // ECMA-48, EL
		}
	}
}
