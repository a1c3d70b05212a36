package cli

import (
	"cmp"
	"context"
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
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/announce"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/iptables"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/describe"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/nftrules"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/wiring"
)

const planHelp = `Print the rows that the kernel of a node would have for the given manifests, in the format
of ipvsadm, ipset, iptables and ip. The command needs neither root nor IPVS.

  servers    as ipvsadm -Sn          (ipvsadm -R reads it)
  sets       as ipset save           (ipset restore reads it)
  rules      as iptables-save        (after "# ip" for iptables-restore --noflush, after "# ip6"
                                      for ip6tables-restore --noflush; the sets come first)
  addresses  as ip addr add commands, and ip route add for ranges that are local as a whole
             and for addresses that are announced
  relays     node ports on loopback and their targets, where --nodeport-addresses asks for them:
             the agent serves them, and the kernel has no rows of them

With --rules=nftables the rules are as nft list table prints them, with the sets.

Manifests are a directory or a file (--source-dir), or standard input ("-", alone or as
--source-dir). The output of kubectl get -o yaml is accepted; objects of other kinds in it
are ignored. --kubeconfig or --master lists a cluster once, with the permissions of that
user. Services without a cluster IP, as kubectl create service --dry-run prints them, get
one from --assign-cluster-ips.

The addresses that serve NodePorts are those of the Node object of this node, filtered by
--nodeport-addresses; --node-address gives others instead. Without both, no NodePort is
served, and a note says so. An address of a Node in the manifests is not bound.

Services that are not served, and the reasons, are printed to standard error. The last line
counts the Services that are not served as they ask; with --strict they cause exit status 1.
Services without endpoints, headless Services and addresses with ipMode Proxy do not count.`

// planFlags are the flags of the verb.
type planFlags struct {
	show    []string
	against string
	strict  bool
	ranges  []string
}

func newPlan() *cobra.Command {
	var f planFlags
	cmd := &cobra.Command{
		Use:   "plan [-]",
		Short: "print the rows that the kernel would have",
		Long:  planHelp,
		Example: `  kube-ipvs plan --source-dir . --hostname-override worker-1
  kube-ipvs plan --source-dir . --hostname-override worker-1 --show servers

  # a whole cluster, as a file, by a pipe or from its API server
  kubectl get services,endpointslices,nodes -A -o yaml | kube-ipvs plan - --hostname-override worker-1
  kube-ipvs plan --kubeconfig ~/.kube/config --hostname-override worker-1

  # a Service that no API server has seen
  kubectl create service clusterip web --tcp=80 --dry-run=client -o yaml | kube-ipvs plan - --assign-cluster-ips 10.96.0.0/16

  # on the node itself: does the kernel have the same servers? (kube-ipvs diff compares all rows)
  ` + planAgainstKernel + `

  # the rules of a node without IPVS
  kube-ipvs plan --source-dir . --hostname-override worker-1 --proxy-mode=iptables

  # the tables of a node without iptables and ipset
  kube-ipvs plan --source-dir . --hostname-override worker-1 --rules=nftables --show sets,rules

  # which rows would change if these manifests were applied instead?
  kube-ipvs plan --source-dir now --diff-against next --hostname-override worker-1

  # NodePorts on two addresses, without a Node object
  kube-ipvs plan --source-dir . --hostname-override worker-1 --node-address 192.0.2.10,2001:db8::10`,
		Args: planArguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := check(cmd)
			if err != nil {
				return err
			}
			if c.Mode == config.ModeIPTables && !cmd.Flags().Changed("show") {
				f.show = []string{"rules", relays}
				if c.AnnounceTable != 0 {
					f.show = append(f.show, "addresses")
				}
			}
			in, err := f.input(cmd, c, args)
			if err != nil {
				return err
			}
			p := planner{c: c, show: f.show, strict: f.strict, out: cmd.OutOrStdout(), notes: cmd.ErrOrStderr()}
			if f.against != "" {
				return p.diff(cmd.Context(), in, f.against)
			}
			return p.print(cmd.Context(), in)
		},
	}
	cmd.Flags().StringSliceVar(&f.show, "show", planKinds(), "rows to print: "+strings.Join(planKinds(), ", "))
	cmd.Flags().StringVar(&f.against, "diff-against", "", "other manifests: print the rows that would change if these were applied")
	cmd.Flags().BoolVar(&f.strict, "strict", false, "exit with status 1 when a Service is not served as it asks")
	cmd.Flags().StringSliceVar(&f.ranges, "assign-cluster-ips", nil, "ranges, one for each IP family, from which Services without a cluster IP get one")
	choose(cmd, "show", planKinds()...)
	config.BindPlan(cmd.Flags(), new(config.Settings))
	return cmd
}

// relays is the kind of what the agent itself serves.
const relays = "relays"

func planKinds() []string { return append(describe.Kinds(), relays) }

// planAgainstKernel compares sorted lines, for the kernel lists servers by their hash. NodePorts
// answer on the addresses that hostname lists; it leaves out those of kube-ipvs0, which is down.
const planAgainstKernel = `kube-ipvs plan --source-dir . --hostname-override worker-1 --show servers --node-address $(hostname -I | xargs | tr ' ' ,) |
    sort | diff - <(ipvsadm -Sn | sort)`

// planArguments accepts a single "-".
func planArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 1 && args[0] == standardInput {
		return nil
	}
	return noArguments(cmd, args)
}

// input returns the input that the flags name. A kubeconfig of a configuration file counts if they
// name nothing else.
func (f planFlags) input(cmd *cobra.Command, c config.Config, args []string) (input, error) {
	if err := checkKinds(f.show); err != nil {
		return input{}, err
	}
	ranges, err := parseRanges(f.ranges)
	if err != nil {
		return input{}, err
	}
	in := input{manifests: c.SourceDir, stdin: cmd.InOrStdin(), ranges: ranges}
	if len(args) > 0 {
		if in.manifests != "" && in.manifests != standardInput {
			return input{}, withUsage(cmd, errors.New("give either - or --source-dir"))
		}
		in.manifests = standardInput
	}
	in.cluster = in.manifests == "" || cmd.Flags().Changed("kubeconfig") || cmd.Flags().Changed("master")
	return in, nil
}

// A planner compiles manifests into a mode without a kernel.
type planner struct {
	c          config.Config
	show       []string
	strict     bool
	out, notes io.Writer
}

// print prints the rows that a node would have in its kernel.
func (p planner) print(ctx context.Context, in input) error {
	texts, outcome, err := p.compile(ctx, in, p.notes)
	if err != nil {
		return err
	}
	show := p.show
	if p.c.Mode != config.ModeIPTables && p.c.Rules == config.RulesNFTables {
		if show, err = inNFTables(show, texts); err != nil {
			return err
		}
	}
	for _, kind := range show {
		if kind == relays && texts[kind] == "" {
			continue // most nodes have none
		}
		if len(show) > 1 {
			fmt.Fprintf(p.out, "# %s\n", kind)
		}
		if _, err := io.WriteString(p.out, texts[kind]); err != nil {
			return err
		}
	}
	return p.judge(outcome)
}

// inNFTables turns sets and rules into the text of nftables. Where both are to be printed they are one
// text, as one table has both.
func inNFTables(show []string, texts map[string]string) (out []string, err error) {
	tables, err := nftrules.Translate(texts["sets"], texts["rules"])
	for _, kind := range show {
		switch {
		case kind == "sets" && slices.Contains(show, "rules"):
			continue // the tables have them
		case kind == "sets" || kind == "rules":
			texts[kind] = tables
		}
		out = append(out, kind)
	}
	return out, err
}

// compile returns the rows of an input by kind, and writes notes.
func (p planner) compile(ctx context.Context, in input, notes io.Writer) (map[string]string, planOutcome, error) {
	read, err := in.read(ctx, p.c)
	if err != nil {
		return nil, planOutcome{}, err
	}
	p.c.ServiceCIDRs = read.serviceCIDRs
	for _, problem := range read.problems {
		fmt.Fprintln(notes, problem)
	}
	for _, text := range read.assigned {
		fmt.Fprintln(notes, text)
	}
	if text := read.unknownNode(p.c.NodeName); text != "" {
		fmt.Fprintln(notes, text)
	}
	families := model.Families()
	mode := modeWithoutKernel(p.c, families[:])
	outcome := compileInto(mode, p.c, families[:], read.batch, supposedHost(p.c, read.batch), notes)
	outcome.badFiles = read.badFiles()
	texts := map[string]string{relays: strings.Join(outcome.relays, "")}
	for _, kind := range p.show {
		if kind == relays {
			continue
		}
		var b strings.Builder
		if err := mode.WriteRows(&b, kind); err != nil {
			return nil, outcome, err
		}
		texts[kind] = b.String()
	}
	return texts, outcome, nil
}

// planOutcome counts the Services of a plan and those with problems.
type planOutcome struct {
	services, lacking, unreadable, badFiles int
	// relays has a line for each target of a node port on loopback.
	relays []string
}

// judge prints how many Services are not served as they ask. It fails with --strict, and always if
// an input cannot be read, because the plan lacks its rows.
func (p planner) judge(o planOutcome) error {
	if o.lacking > 0 {
		fmt.Fprintf(p.notes, "%d of %d Services are not served as they ask\n", o.lacking, o.services)
	}
	switch {
	case o.badFiles > 0:
		return asAnswer(fmt.Errorf("the plan is not complete: files that cannot be read: %d", o.badFiles))
	case o.unreadable > 0:
		return asAnswer(fmt.Errorf("the plan is not complete: Services that cannot be read: %d", o.unreadable))
	case p.strict && o.lacking > 0:
		return asAnswer(errors.New("--strict: some Services are not served as they ask"))
	}
	return nil
}

func checkKinds(show []string) error {
	for _, kind := range show {
		if !slices.Contains(planKinds(), kind) {
			return fmt.Errorf("--show: %q is not one of %s", kind, strings.Join(planKinds(), ", "))
		}
	}
	return nil
}

// compileInto sets all Services of a batch in a mode, and writes a note for each that is not served.
func compileInto(mode dataplane.Inspectable, c config.Config, families []model.Family, batch catalog.Batch, host model.Host, notes io.Writer) planOutcome {
	mode.SetHost(host)
	compiler := wiring.CompilerFor(wiring.Static(c), families)(host)
	out, lacking := planOutcome{services: len(batch.Services)}, map[model.ServiceID]bool{}
	for _, in := range batch.Services {
		p := compiler.Compile(in.ID, in.Service, in.Slices)
		mode.Set(p) // conflicts are final only after all Services, see below
		out.relays = append(out.relays, relayLines(p.Relays)...)
		switch {
		case p.Skipped == "" || p.Intended:
		case len(in.Service.ClusterIPs) == 0 && !lacksClusterIP(in.Service):
			out.unreadable++
			fallthrough
		default:
			lacking[p.ID] = true
			fmt.Fprintf(notes, "%s: skipped: %s%s\n", p.ID, p.Skipped, hintOf(in.Service))
		}
		for _, n := range p.Notes {
			lacking[p.ID] = lacking[p.ID] || !n.Code.NoBackends()
			if n.Code != model.BadObject || in.ID.Origin != model.FromFile {
				fmt.Fprintf(notes, "%s: %s\n", p.ID, n)
			}
		}
	}
	conflicts := mode.Frontends().Conflicts()
	for _, conflict := range conflicts {
		lacking[conflict.Loser] = true
	}
	printConflicts(conflicts, notes)
	for _, lacks := range lacking {
		if lacks {
			out.lacking++
		}
	}
	return out
}

// relayLines returns a line for each target of node ports on loopback.
func relayLines(list []model.Relay) (out []string) {
	for _, r := range list {
		if len(r.Targets) == 0 {
			out = append(out, fmt.Sprintf("%s -> nothing: clients are refused\n", r.Key))
		}
		for _, to := range r.Targets {
			out = append(out, fmt.Sprintf("%s -> %s\n", r.Key, to))
		}
	}
	return out
}

// hintOf returns how a Service gets a cluster IP without an API server.
func hintOf(s *model.Service) string {
	if s.ID.Origin != model.FromFile || !lacksClusterIP(s) {
		return ""
	}
	return "; an API server assigns one: add spec.clusterIP, or try plan --assign-cluster-ips=10.96.0.0/16"
}

// modeWithoutKernel returns the configured mode; auto assumes a kernel with IPVS.
func modeWithoutKernel(c config.Config, families []model.Family) dataplane.Inspectable {
	if c.Mode == config.ModeIPTables {
		rc := wiring.IPTablesConfig(c, families, nil)
		rc.DropInvalid = true // connection tracking is not liberal by default
		return serving(iptables.New(zap.NewNop(), rc, iptables.Deps{}))
	}
	return serving(ipvs.New(zap.NewNop(), wiring.IPVSConfig(c, families, nil), ipvs.Deps{}))
}

// serving returns a mode as that of a node that load balancers may use.
func serving[M interface {
	dataplane.Inspectable
	Announced() *announce.Manager
}](mode M) dataplane.Inspectable {
	mode.Announced().SetNode(announce.Node{Serves: true})
	return mode
}

// supposedHost returns the machine as the manifests describe it: its addresses are those of its
// Node, or those of --node-address.
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
	h.NodePorts = wiring.NodePortsFor(wiring.Static(c))(h)
	return h
}

// printConflicts prints the frontends that two Services want.
func printConflicts(conflicts []dataplane.Conflict, w io.Writer) {
	slices.SortFunc(conflicts, func(a, b dataplane.Conflict) int {
		return cmp.Or(a.Loser.Compare(b.Loser), a.Key.Compare(b.Key))
	})
	for _, c := range conflicts {
		fmt.Fprintf(w, "%s: %s\n", c.Loser, c)
	}
}
