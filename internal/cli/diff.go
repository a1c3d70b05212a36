package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/iptables"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/describe"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/nftrules"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/linediff"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/wiring"
)

const diffHelp = `Compare the desired rows with the rows in the kernel. Rows are printed in the format of ipvsadm,
ipset, iptables and ip, and rules and sets in nftables as commands of nft. A line with "-" is only
in the kernel: kube-ipvs wrote it, and the agent will delete it. A line with "+" is only desired.
Rows of other programs are not compared. Nothing is written, and no kernel module is loaded.

The desired rows come from the running agent. With --source-dir, --kubeconfig or --master they are
compiled from these sources, as "plan" does, and no agent needs to run. Settings then come from the
flags, and draining destinations count as not desired.

The exit status is 0 if both are equal, 1 if they differ, and 2 if one side could not be read.`

// diffOutputs are the formats of diff.
var diffOutputs = []string{"text", "json", "yaml"}

// diffWithin bounds all calls of diff.
const diffWithin = 2 * time.Minute

func newDiff() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "diff",
		Short: "compare the desired rows with the kernel",
		Long:  diffHelp,
		Example: `  kube-ipvs diff
  kube-ipvs diff --source-dir /etc/kube-ipvs/manifests --hostname-override worker-1

  # against a cluster; the kubeconfig must allow listing Services, EndpointSlices and Nodes,
  # which the kubeconfig of a kubelet does not
  kube-ipvs diff --kubeconfig /etc/kubernetes/admin.conf --hostname-override worker-1

  # rows that are missing in the kernel
  kube-ipvs diff -o json | jq -r '.rows[] | select(.side == "desired") | .row'`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := check(cmd)
			if err == nil && !slices.Contains(diffOutputs, output) {
				err = fmt.Errorf("--output: %q is not one of %s", output, strings.Join(diffOutputs, ", "))
			}
			if err != nil {
				return exitError{exitFailed, err}
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), diffWithin)
			defer cancel()
			k, err := openReaders(ctx, zap.NewNop(), c)
			if err != nil {
				return exitError{exitFailed, fmt.Errorf("read the kernel: %w", err)}
			}
			defer k.close()
			var asked desiredSource = desiredFromAgent{inspect.NewClient(c.Socket())}
			if cmd.Flags().Changed("source-dir") || cmd.Flags().Changed("kubeconfig") || cmd.Flags().Changed("master") {
				asked = desiredFromManifests{c: c, k: k, stdin: cmd.InOrStdin(), notes: cmd.ErrOrStderr()}
			}
			return diff(ctx, c, asked, k, cmd.OutOrStdout(), output)
		},
	}
	bindOutput(cmd, &output, diffOutputs...)
	return cmd
}

// A desiredSource has the desired rows.
type desiredSource interface {
	// wanted returns the mode, and a function that prints the desired rows of one kind.
	wanted(ctx context.Context) (config.Mode, func(ctx context.Context, kind string) (string, error), error)
}

// desiredFromAgent gets desired rows from the running agent.
type desiredFromAgent struct{ client *inspect.Client }

func (a desiredFromAgent) wanted(ctx context.Context) (config.Mode, func(context.Context, string) (string, error), error) {
	s, err := a.client.Status(ctx)
	if err == nil && !s.Synced {
		err = errors.New("the agent still waits for its sources: it does not know all Services yet")
	}
	return config.Mode(s.Mode), a.client.Rows, err
}

// desiredFromManifests compiles desired rows from manifests or the objects of an API server.
type desiredFromManifests struct {
	c     config.Config
	k     readOnlyKernel
	stdin io.Reader
	notes io.Writer
}

func (s desiredFromManifests) wanted(ctx context.Context) (config.Mode, func(context.Context, string) (string, error), error) {
	c := s.c
	if c.Mode != config.ModeIPTables {
		c.Mode = config.ModeIPVS
	}
	read, err := s.read(ctx)
	if err != nil {
		return c.Mode, nil, err
	}
	c.ServiceCIDRs = read.serviceCIDRs
	batch, host := read.batch, read.batch.Host()
	host.PodRanges, host.APIServers = c.DetectLocal.ClusterCIDRs, read.servers
	if host.Links, err = s.k.host.Local(ctx); err != nil {
		return c.Mode, nil, fmt.Errorf("read the addresses of this machine: %w", err)
	}
	if host.Gateways, err = s.k.host.Gateways(ctx); err != nil {
		return c.Mode, nil, fmt.Errorf("read the gateways of this machine: %w", err)
	}
	host.NodePorts = wiring.NodePortsFor(wiring.Static(c))(host)
	mode := s.mode(ctx, c, batch)
	compileInto(mode, c, s.k.families, batch, host, s.notes)
	return c.Mode, func(_ context.Context, kind string) (string, error) {
		var b strings.Builder
		err := mode.WriteRows(&b, kind)
		return b.String(), err
	}, nil
}

// mode is the one that the settings ask for, as the agent would have it here.
func (s desiredFromManifests) mode(ctx context.Context, c config.Config, batch catalog.Batch) dataplane.Inspectable {
	if c.Mode != config.ModeIPTables {
		return serving(ipvs.New(zap.NewNop(), wiring.IPVSConfig(c, s.k.families, s.k.rules), ipvs.Deps{}))
	}
	rc := wiring.IPTablesConfig(c, s.k.families, s.k.rules)
	rc.DropInvalid = !s.k.liberal(ctx)
	rc.Both = slices.ContainsFunc(batch.Services, func(in catalog.Input) bool { return in.ID.Origin == model.FromKube }) && c.SourceDir != ""
	return serving(iptables.New(zap.NewNop(), rc, iptables.Deps{}))
}

// read reads the manifests and the API server.
func (s desiredFromManifests) read(ctx context.Context) (inputs, error) {
	in := input{manifests: s.c.SourceDir, stdin: s.stdin}
	in.cluster = in.manifests == "" || s.c.Client.Kubeconfig != "" || s.c.Client.Master != ""
	read, err := in.read(ctx, s.c)
	if err != nil {
		return read, fmt.Errorf("the desired rows are unknown: %w", err)
	}
	for _, p := range read.problems {
		fmt.Fprintln(s.notes, p)
	}
	if text := read.unknownNode(s.c.NodeName); text != "" {
		fmt.Fprintln(s.notes, text)
	}
	if n := read.badFiles(); n > 0 {
		return read, fmt.Errorf("the desired rows are unknown: files that cannot be read: %d", n)
	}
	return read, nil
}

// diff prints the differences in a format. It fails if anything cannot be read.
func diff(ctx context.Context, c config.Config, asked desiredSource, k readOnlyKernel, out io.Writer, output string) error {
	report, err := compared(ctx, c, asked, k)
	if err != nil {
		return exitError{exitFailed, err}
	}
	if err := printDiff(out, output, report); err != nil {
		return exitError{exitFailed, err}
	}
	if !report.Equal {
		return exitError{code: exitFound}
	}
	return nil
}

// compared returns the rows that only one side has.
func compared(ctx context.Context, c config.Config, asked desiredSource, k readOnlyKernel) (linediff.Report, error) {
	active, rows, err := asked.wanted(ctx)
	report := linediff.Report{Mode: string(active), Equal: true, Rows: []linediff.Odd{}}
	if err != nil {
		return report, err
	}
	kinds := describe.Kinds()
	if active == config.ModeIPTables {
		kinds = iptables.Kinds()
	}
	text := map[string]string{}
	for _, kind := range kinds {
		if text[kind], err = rows(ctx, kind); err != nil {
			return report, fmt.Errorf("ask the agent for the desired %s: %w", kind, err)
		}
	}
	there, err := foundRows(ctx, c, active, k.deps, text)
	if err != nil {
		return report, err
	}
	for _, kind := range kinds {
		report.Add(kind, oddLines(kind, active, there[kind], text[kind]))
	}
	if k.nft && active != config.ModeIPTables {
		for i, odd := range report.Rows {
			report.Rows[i].Row = nftrules.RowText(odd.Kind, odd.Row)
		}
	}
	return report, nil
}

// oddLines returns the rows of one kind that only one side has.
func oddLines(kind string, active config.Mode, kernel, desired string) []linediff.Line {
	return linediff.Compare(linediff.Parse(kind, kernel), linediff.Parse(kind, desired), func(group string) bool {
		return kind == "rules" && (active != config.ModeIPTables || !dispatches(group))
	})
}

// printDiff prints a report. In text each kind has a heading.
func printDiff(out io.Writer, output string, report linediff.Report) error {
	if output != "text" {
		return page{out: out}.encode(output, report)
	}
	if report.Equal {
		_, err := fmt.Fprintln(out, "equal: the kernel has all desired rows")
		return err
	}
	return report.WriteText(out)
}

// dispatches reports whether the order of a group of rules, such as "ip nat KUBE-SERVICES", is free.
func dispatches(group string) bool {
	words := strings.Fields(group)
	return len(words) == 3 && iptables.Dispatches(words[1], words[2])
}

// foundRows are the rows of ours in the kernel, by kind. A mode without desired rows reads them: it
// recognizes its own rows, and desired servers are included even if no other row marks them as
// ours.
func foundRows(ctx context.Context, c config.Config, active config.Mode, deps ipvs.Deps, wanted map[string]string) (map[string]string, error) {
	families := model.Families()
	var mode interface {
		WriteFound(ctx context.Context, w io.Writer, kind string) error
	}
	if active == config.ModeIPTables {
		rulesOnly, ok := deps.Rules.(iptables.Rules)
		if !ok {
			_, _, err := deps.Rules.List(ctx)
			return nil, fmt.Errorf("read rules: %w", err)
		}
		mode = iptables.New(zap.NewNop(), wiring.IPTablesConfig(c, families[:], nil), iptables.Deps{Rules: rulesOnly, Announced: deps.Announced})
	} else {
		m := ipvs.New(zap.NewNop(), wiring.IPVSConfig(c, families[:], nil), deps)
		m.Expect(serversIn(wanted["servers"]))
		if err := m.Load(ctx); err != nil {
			return nil, err
		}
		mode = m
	}
	out := map[string]string{}
	for kind := range wanted {
		var b strings.Builder
		if err := mode.WriteFound(ctx, &b, kind); err != nil {
			return nil, err
		}
		out[kind] = b.String()
	}
	return out, nil
}

// serversIn are the servers that a text has.
func serversIn(text string) []vserver.ServerKey {
	var out []vserver.ServerKey
	for _, r := range linediff.Parse("servers", text) {
		if k, ok := serverOf(r.Group); ok && strings.HasPrefix(r.Text, "-A ") {
			out = append(out, k)
		}
	}
	return out
}
