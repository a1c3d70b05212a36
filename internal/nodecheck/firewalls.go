package nodecheck

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/diagnosis"
	"github.com/kube-ipvs/kube-ipvs/internal/firewall"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// FirewallFacts returns what the settings and the Node say for firewall.Judge.
func FirewallFacts(c config.Config, ipvs bool, node model.Node) firewall.Facts {
	f := firewall.Facts{
		IPVS: ipvs, NoSets: ipvs && c.Rules == config.RulesNFTables, NodePorts: [2]uint16{c.NodePortRange.First, c.NodePortRange.Last}, ServiceCIDRs: c.ServiceCIDRs, PodCIDRs: c.DetectLocal.ClusterCIDRs,
	}
	for _, p := range node.PodCIDRs {
		f.Pods = append(f.Pods, p.Addr().Next().Next()) // the first is often that of the bridge
	}
	return f
}

// firewallCheck returns the check of filters of other programs that drop packets of Services.
func firewallCheck(c config.Config, read func(context.Context) ([]firewall.Table, error), frontends func(context.Context) ([]firewall.Frontend, error)) diagnosis.Check {
	const unread = "run as root, in the network namespace of the host"
	return diagnosis.Check{Name: "firewalls of others", Fix: unread, Run: func(ctx context.Context) error {
		tables, err := read(ctx)
		if err != nil {
			return diagnosis.Warning(err)
		}
		list, err := frontends(ctx)
		if err != nil {
			return diagnosis.Warning(err)
		}
		r := firewall.Judge(tables, list, FirewallFacts(c, c.Mode != config.ModeIPTables, model.Node{}))
		var found, fixes []string
		for _, b := range r.Blocks {
			found = append(found, b.String())
			fixes = append(fixes, b.Fix...)
		}
		switch {
		case len(found) > 0:
			return diagnosis.Remedied(diagnosis.Warning(errors.New(strings.Join(found, "; "))), strings.Join(fixes, " && "))
		case len(r.Unread) > 0:
			return diagnosis.Remedied(diagnosis.Warning(fmt.Errorf("not checked: %s", strings.Join(r.Unread, "; "))), "check by hand that they do not drop packets to Services")
		case len(r.Unclear) > 0:
			return diagnosis.Note("%d addresses and ports checked; unknown for %s", len(list), strings.Join(r.Unclear, ", "))
		}
		return diagnosis.Note("none drops packets to the %d addresses and ports of Services", len(list))
	}}
}

// agentFrontends returns a reader of the frontends of the running agent.
func agentFrontends(c config.Config) func(context.Context) ([]inspect.FrontendRow, error) {
	client := inspect.NewClient(c.Socket())
	return func(ctx context.Context) ([]inspect.FrontendRow, error) {
		list, err := client.Frontends(ctx, inspect.Filter{})
		return list.Items, err
	}
}

// frontendsOf returns a reader of all frontends. It asks the running agent, or the kernel without one.
func frontendsOf(c config.Config, read func(context.Context) (ipvsOwners, error)) func(context.Context) ([]firewall.Frontend, error) {
	ask := agentFrontends(c)
	return func(ctx context.Context) ([]firewall.Frontend, error) {
		var out []firewall.Frontend
		list, err := ask(ctx)
		if err == nil {
			for _, f := range list {
				p, err := model.ParseProtocol(strings.ToUpper(f.Protocol))
				if kind, dialled := firewall.KindOf(f.Kind); err == nil && dialled && f.Winner == "" && f.Backends > 0 {
					out = append(out, firewall.Frontend{Service: f.Namespace + "/" + f.Name, Kind: kind, Addr: f.Address, Port: f.Port, Protocol: uint8(p)})
				}
			}
			return out, nil
		}
		p, err := read(ctx)
		for _, k := range p.servers {
			f := firewall.Frontend{Service: k.String(), Kind: firewall.External, Addr: k.Addr, Port: k.Port, Protocol: uint8(k.Protocol)}
			if _, here := p.marks.Links[k.Addr]; here {
				f.Kind = firewall.NodePort
			}
			out = append(out, f)
		}
		return out, err
	}
}
