package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/iptables"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source/file"
)

const planHelp = `Print what would be in the kernel of a node for the given manifests: without a
kernel, without root, in the text of the operator's own tools.

  servers    as ipvsadm -Sn          (ipvsadm -R reads it)
  sets       as ipset save           (ipset restore reads it)
  rules      as iptables-save        (after "# ip" for iptables-restore --noflush, after "# ip6"
                                      for ip6tables-restore --noflush; the sets come first)
  addresses  as ip addr add commands, and ip route add for ranges that are local as a whole

The addresses on which NodePorts answer are chosen, as --nodeport-addresses says,
from those of the Node object of this name; --node-address names others instead.
Without either no NodePort is served, and a note says so. An address that a Node
of the manifests has is not bound.

What is not served, and why, goes to standard error. The exit status is 1 when
a manifest could not be read, for then the plan lacks what it says.`

func newPlan() *cobra.Command {
	var show []string
	var against string
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "print what would be in the kernel",
		Long:  planHelp,
		Example: `  kube-ipvs plan --source-dir . --hostname-override worker-1
  kube-ipvs plan --source-dir . --hostname-override worker-1 --show servers
  kube-ipvs plan --source-dir . --hostname-override worker-1 --show servers | diff - <(ipvsadm -Sn)

  # the rules of a node without IPVS
  kube-ipvs plan --source-dir . --hostname-override worker-1 --proxy-mode=iptables

  # what would change if these manifests were applied instead?
  kube-ipvs plan --source-dir now --diff-against next --hostname-override worker-1

  # NodePorts on two addresses, without a Node object
  kube-ipvs plan --source-dir . --hostname-override worker-1 --node-address 192.0.2.10,2001:db8::10`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := check(cmd)
			if err != nil {
				return err
			}
			if c.Mode == config.ModeIPTables && !cmd.Flags().Changed("show") {
				show = iptables.Kinds()
			}
			if against != "" {
				return diffPlans(c, against, show, cmd.OutOrStdout(), cmd.ErrOrStderr())
			}
			return printPlan(c, show, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringSliceVar(&show, "show", ipvs.Kinds(), "what to print: "+strings.Join(ipvs.Kinds(), ", "))
	cmd.Flags().StringVar(&against, "diff-against", "", "manifests that would be applied: print the rows that they would change")
	config.BindPlan(cmd.Flags(), new(config.Settings))
	return cmd
}

// printPlan compiles the manifests into a mode that has no kernel, and prints what
// it would want there.
func printPlan(c config.Config, show []string, out, problems io.Writer) error {
	if err := checkKinds(show); err != nil {
		return err
	}
	if c.SourceDir == "" {
		return errNoSource
	}
	objects, bad, err := file.Load(c.SourceDir)
	if err != nil {
		return err
	}
	mode := planned(c, objects, problems)
	for _, kind := range show {
		if len(show) > 1 {
			fmt.Fprintf(out, "# %s\n", kind)
		}
		if err := mode.WriteRows(out, kind); err != nil {
			return err
		}
	}
	return reportProblems(bad, problems)
}

func checkKinds(show []string) error {
	for _, kind := range show {
		if !slices.Contains(ipvs.Kinds(), kind) {
			return fmt.Errorf("--show: %q is not one of %s", kind, strings.Join(ipvs.Kinds(), ", "))
		}
	}
	return nil
}

// planned hands the objects to a mode by the way the agent takes.
func planned(c config.Config, objects file.Objects, notes io.Writer) dataplane.Dataplane {
	batch := delivered(c, objects)
	families := model.Families()
	mode := modeWithoutKernel(c, families[:])
	compileInto(mode, c, families[:], batch, supposedHost(c, batch), notes)
	return mode
}

// compileInto has a mode want all that a batch says, and tells what is not served.
func compileInto(mode dataplane.Dataplane, c config.Config, families []model.Family, batch catalog.Batch, host model.Host, notes io.Writer) {
	mode.SetHost(host)
	compiler := compilerFor(fixed(c), families)(host)
	for _, in := range batch.Services {
		p := compiler.Compile(in.ID, in.Service, in.Slices)
		mode.Set(p) // what it says of conflicts is of the moment, see below
		if p.Skipped != "" {
			fmt.Fprintf(notes, "%s: skipped: %s\n", p.ID, p.Skipped)
		}
		for _, n := range p.Notes {
			fmt.Fprintf(notes, "%s: %s\n", p.ID, n)
		}
	}
	printConflicts(mode.Frontends().Conflicts(), notes)
}

// modeWithoutKernel makes the mode that is asked for; auto supposes a kernel with IPVS.
func modeWithoutKernel(c config.Config, families []model.Family) dataplane.Dataplane {
	if c.Mode == config.ModeIPTables {
		rc := rulesConfig(c, families, nil)
		rc.DropInvalid = true // connection tracking is not liberal unless somebody makes it
		return iptables.New(zap.NewNop(), rc, iptables.Deps{})
	}
	return ipvs.New(zap.NewNop(), modeConfig(c, families, nil), ipvs.Deps{})
}

// supposedHost is the machine as far as the manifests tell: its addresses are
// those of its Node, or those that are given instead.
func supposedHost(c config.Config, batch catalog.Batch) model.Host {
	h := batch.Host()
	h.Links, h.PodRanges = map[netip.Addr]string{}, c.DetectLocal.ClusterCIDRs
	addrs := c.NodeAddresses
	if len(addrs) == 0 {
		addrs = batch.Node.Addresses
	}
	for _, a := range addrs {
		h.Links[a] = "node"
	}
	h.NodePorts = nodePortsFor(fixed(c))(h)
	return h
}

// delivered is everything that the objects say, in one batch.
func delivered(c config.Config, objects file.Objects) catalog.Batch {
	known := catalog.New(zap.NewNop(), c.NodeName, model.FromFile)
	known.Remember(newNodeClaims(zap.NewNop(), c.RunDir).load())
	objects.Deliver(known)
	return known.Take()
}

// printConflicts prints what two Services want, as it stands when all are known.
func printConflicts(conflicts []dataplane.Conflict, w io.Writer) {
	slices.SortFunc(conflicts, func(a, b dataplane.Conflict) int {
		return cmp.Or(a.Loser.Compare(b.Loser), a.Key.Compare(b.Key))
	})
	for _, c := range conflicts {
		fmt.Fprintf(w, "%s: %s\n", c.Loser, c)
	}
}

// reportProblems prints what is wrong with the manifests and fails when some
// could not be read at all.
func reportProblems(list []file.Problem, w io.Writer) error {
	files := map[string]bool{}
	for _, p := range list {
		fmt.Fprintln(w, p)
		if p.BadFile {
			files[p.File] = true
		}
	}
	if len(files) > 0 {
		return errors.New("the plan is not complete: files that cannot be read: " + fmt.Sprint(len(files)))
	}
	return nil
}
