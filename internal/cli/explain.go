package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/describe"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/ownership"
	"github.com/kube-ipvs/kube-ipvs/internal/explain"
	"github.com/kube-ipvs/kube-ipvs/internal/firewall"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/linediff"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/nodecheck"
	"github.com/kube-ipvs/kube-ipvs/internal/printable"
)

const explainHelp = `Explain the state of one Service or one address: what the running agent knows about it,
and what the kernel has. The first lines are the verdict: the problems with their causes,
most important first, or that all is well. These sections follow:

  Services    type and policies
  Frontends   the addresses and ports of the Service, what happens to packets from pods, from
              this host and from outside, and which Service has an address that this one lost
  Endpoints   how many are used, and how many are not
  Pending     rows that are not in the kernel yet, draining destinations
  Kernel      virtual servers and connections; rows that are missing, orphaned (written by
              kube-ipvs, of no Service: the agent deletes them) or foreign (never touched)
  Dropped     packets dropped by rules, by reason, that may have been for the Service
  To let pass commands that add the missing permissions to the firewall of another program

The report fits on a screen; --all prints each endpoint, each row and each step of the packet
path. An address may be one that clients connect to, NodePorts included, or that of an
endpoint: the first line names the Services that use it. --from shows the path of packets
from one source address. Nothing is written, and no kernel module is loaded.
Without a running agent the report shows what the kernel has for an address.`

// explainWithin bounds all calls of explain.
const explainWithin = 30 * time.Second

func newExplain() *cobra.Command {
	var from, output string
	var all bool
	cmd := &cobra.Command{
		Use:   "explain <namespace/name | ip[:port[/protocol]]>",
		Short: "explain why a Service or an address works or does not",
		Long:  explainHelp,
		Example: `  kube-ipvs explain default/web
  kube-ipvs explain 10.96.0.10:53/udp
  kube-ipvs explain 10.244.1.7                        # an endpoint: which Services use it?
  kube-ipvs explain 203.0.113.10:443 --from 192.0.2.7
  kube-ipvs explain default/web --all
  kube-ipvs explain default/web -o json`,
		Args: oneArgument,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := check(cmd)
			if err != nil {
				return err
			}
			q, err := agent.ParseQuery(args[0], from)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), explainWithin)
			defer cancel()
			k, err := openReaders(ctx, zap.NewNop(), c)
			if err != nil {
				return fmt.Errorf("read the kernel: %w", err)
			}
			defer k.close()
			r := explained(ctx, inspect.NewClient(c.Socket()), k, c.ExcludeCIDRs, q, firewallsOf(k.settings(c), k.filters))
			if err := printReport(cmd.OutOrStdout(), output, all, r); err != nil {
				return err
			}
			return reportAnswer(r)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "print each endpoint, each row of the kernel and each step of packets")
	cmd.Flags().StringVar(&from, "from", "", "address that packets come from")
	bindOutput(cmd, &output, "text", "json", "yaml")
	return cmd
}

// reportAnswer returns the exit status of a report.
func reportAnswer(r explain.Report) error {
	if !r.OK {
		return exitError{code: exitFound}
	}
	return nil
}

func oneArgument(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return withUsage(cmd, errors.New("give one Service or address"))
	}
	return nil
}

func printReport(w io.Writer, output string, all bool, r explain.Report) error {
	switch output {
	case "text":
		return r.Write(printable.NewWriter(w), all)
	case "json", "yaml":
		return page{out: w}.encode(output, r)
	}
	return fmt.Errorf("--output: %q is not one of text, json, yaml", output)
}

// An explainClient returns reports; *inspect.Client is one, and *agent.Agent.
type explainClient interface {
	Explain(ctx context.Context, q agent.Query) (agent.Report, error)
}

// explained returns the report of the agent with the rows of the kernel.
func explained(ctx context.Context, client explainClient, k readOnlyKernel, excluded []netip.Prefix, q agent.Query, judge judgeFirewalls) explain.Report {
	deps := k.deps
	var told *agent.Report
	s, noAgent := client.Explain(ctx, q)
	if noAgent == nil {
		told = &s
	}
	found := explain.Found{Text: map[string]string{}, Failed: map[string]error{}, Words: k.words()}
	at := scopeOf(told, q)
	text, failed := describe.Read(ctx, describe.Kernel{Servers: deps.Servers, Sets: deps.Sets, Rules: deps.Rules, Links: deps.Links, Announced: deps.Announced}, at)
	for kind := range kindsOf(told) {
		if t, ok := text[kind]; ok {
			found.Text[kind] = t
		}
		if err := failed[kind]; err != nil {
			found.Failed[kind] = err
		}
	}
	if _, ok := found.Text["servers"]; ok {
		found.Connections = connections(ctx, deps.Servers, at)
	}
	if counters := k.counters(); told != nil && counters != nil {
		var names []string
		for _, one := range told.Services {
			names = append(names, one.Name)
		}
		var err error
		if found.Drops, err = explainedDrops(ctx, counters, told.Mode, names); err != nil {
			found.Failed["drops"] = err
		}
	}
	found.Ours = k.owns(ctx, excluded)
	if told != nil && judge != nil {
		judge(ctx, told, &found)
	}
	found.Others = func(group string) bool { return othersHave(ctx, client, group) }
	return explain.New(q.String(), told, noAgent, found)
}

// owns returns a function that reports whether the server of a group is ours. The first call reads
// the marks. If they cannot be read no server is foreign.
func (k readOnlyKernel) owns(ctx context.Context, excluded []netip.Prefix) func(group string) bool {
	marks := sync.OnceValue(func() *ownership.Snapshot {
		links := struct {
			ipvs.Links
			agent.HostReader
		}{k.deps.Links, k.host}
		m, err := ownership.Read(ctx, links, k.deps.Sets, excluded)
		if err != nil {
			return nil
		}
		return m
	})
	return func(group string) bool {
		key, ok := serverOf(group)
		return !ok || marks() == nil || marks().Owns(key)
	}
}

// kindsOf returns the kinds of rows of a report: those of its mode, or servers without a report.
func kindsOf(s *agent.Report) map[string]struct{} {
	out := map[string]struct{}{}
	if s == nil {
		out["servers"] = struct{}{}
		return out
	}
	for kind := range s.Rows.Desired {
		out[kind] = struct{}{}
	}
	return out
}

// scopeOf returns the part of the kernel to read: the objects that the query names, and the addresses that its
// frontends have bound, which only they may use.
func scopeOf(s *agent.Report, q agent.Query) describe.ReadScope {
	var at describe.ReadScope
	switch {
	case q.Port != 0:
		for _, p := range protocolsOf(q.Protocol) {
			at.Servers = append(at.Servers, vserver.ServerKey{Addr: q.Address, Port: q.Port, Protocol: p})
		}
	case q.Address.IsValid() && (s == nil || s.Holder == ""):
		at.Addrs = append(at.Addrs, q.Address)
	}
	if s == nil {
		return at
	}
	for _, one := range s.Services {
		for _, f := range one.Frontends {
			if key, err := model.ParseFrontendKey(f.Key); err == nil && f.Asked && f.HeldBy == "" {
				at.Servers = append(at.Servers, key)
				if f.Bind && !slices.Contains(at.Addrs, key.Addr) {
					at.Addrs = append(at.Addrs, key.Addr)
				}
			}
		}
	}
	for _, r := range linediff.Parse("sets", s.Rows.Desired["sets"]) {
		if !slices.Contains(at.Sets, r.Group) {
			at.Sets = append(at.Sets, r.Group)
		}
	}
	return at
}

func protocolsOf(p model.Protocol) []model.Protocol {
	if p != 0 {
		return []model.Protocol{p}
	}
	return []model.Protocol{model.TCP, model.UDP, model.SCTP}
}

// connections returns those of the destinations in a scope; none if they cannot be counted.
func connections(ctx context.Context, servers ipvs.Servers, at describe.ReadScope) []explain.Connections {
	wanted, err := destinationsOf(ctx, servers, at.Servers, at.Addrs)
	if err != nil {
		return nil
	}
	found, err := countConnections(ctx, servers, wanted)
	if err != nil {
		return nil
	}
	var out []explain.Connections
	for _, k := range slices.SortedFunc(maps.Keys(found), vserver.DestinationKey.Compare) {
		out = append(out, explain.Connections{
			Server: k.Server.String(), Destination: netip.AddrPortFrom(k.Addr, k.Port).String(), Active: found[k].Active, Inactive: found[k].Inactive,
		})
	}
	return out
}

// othersHave reports whether a virtual server beside those of the query belongs to another frontend.
// If the agent does not answer the server is not foreign.
func othersHave(ctx context.Context, client explainClient, group string) bool {
	key, ok := serverOf(group)
	if !ok {
		return true
	}
	s, err := client.Explain(ctx, agent.Query{Address: key.Addr, Port: key.Port, Protocol: key.Protocol})
	if err != nil {
		return true
	}
	return slices.ContainsFunc(s.Services, func(one agent.ServiceReport) bool {
		return slices.ContainsFunc(one.Frontends, func(f agent.FrontendReport) bool { return f.Key == key.String() })
	})
}

// serverOf returns the server of an option of ipvsadm: "-t 10.96.0.10:80".
func serverOf(group string) (model.FrontendKey, bool) {
	flag, at, _ := strings.Cut(group, " ")
	p, known := map[string]model.Protocol{"-t": model.TCP, "-u": model.UDP, "--sctp-service": model.SCTP}[flag]
	ap, err := netip.ParseAddrPort(at)
	return model.FrontendKey{Addr: ap.Addr(), Port: ap.Port(), Protocol: p}, known && err == nil
}

// judgeFirewalls adds what the filters of other programs do with packets of a report.
type judgeFirewalls func(context.Context, *agent.Report, *explain.Found)

// firewallsOf returns the judge of the filters; nil without a reader.
func firewallsOf(c config.Config, filters *firewall.Reader) judgeFirewalls {
	if filters == nil {
		return nil
	}
	return func(ctx context.Context, s *agent.Report, found *explain.Found) {
		tables, err := filters.Read(ctx)
		if err != nil {
			found.Unclear = []string{"filters that cannot be read: " + printable.OneLine(err)}
			return
		}
		found.JudgeFirewalls(s, tables, nodecheck.FirewallFacts(c, s.Mode == "ipvs", model.Node{}))
	}
}
