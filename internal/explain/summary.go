package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// summary prints what an operator needs first.
func (p *page) summary(r Report) {
	if r.Story != nil {
		p.services(r.Story)
		p.fronts(r)
		p.relays(r.Story.Services, mostPorts)
		p.ports(r.Story)
		p.pending(r.Story)
	}
	p.kernelSummary(r)
	p.drops(r.Kernel.Drops)
	p.walls(r.Firewalls)
	if r.Story == nil {
		return
	}
	if left := p.asked(r); left {
		p.line("\n--all has each endpoint, each row of the kernel, and the path of packets step by step")
	}
}

func (p *page) services(s *agent.Report) {
	if len(s.Services) == 0 {
		return
	}
	p.section("Services")
	var list []string
	for _, one := range s.Services {
		text := fmt.Sprintf("%s\t%s, from %s; policies: internal %s, external %s", one.Name, one.Type, one.Source, one.InternalPolicy, one.ExternalPolicy)
		if one.Affinity != "" {
			text += "; affinity ClientIP, " + one.Affinity
		}
		if len(one.SourceRanges) > 0 {
			text += "; source ranges " + named(one.SourceRanges)
		}
		list = append(list, text)
	}
	p.lines("  ", list, mostServices)
}

// fronts prints the frontends, the requested ones first, with the result for packets.
func (p *page) fronts(r Report) {
	var asked, others []string
	for _, one := range r.Story.Services {
		for _, f := range one.Frontends {
			text := fmt.Sprintf("%s\t%s\t%s\t%s\t%d\t%s\t%s", f.Key, f.Kind, orDash(f.Scheduler), policyOf(f.Local), f.Backends, r.packetsTo(f), stateOf(f, r.Story.Mode))
			if f.Asked {
				asked = append(asked, text)
			} else {
				others = append(others, text)
			}
		}
	}
	if len(asked)+len(others) == 0 {
		return
	}
	p.section("Frontends", "ADDRESS", "KIND", "SCHEDULER", "POLICY", "BACKENDS", "PACKETS", "STATE")
	p.lines("  ", slices.Concat(asked, others), mostFrontends)
}

// packetsTo returns one word for the fate of packets of all origins, or one for each origin.
func (r Report) packetsTo(f agent.FrontendReport) string {
	if len(f.Paths) == 0 {
		return "-"
	}
	if len(r.Kernel.Missing)+len(r.Kernel.Unread) > 0 {
		return "not certain"
	}
	ends := map[dataplane.End][]string{}
	var order []dataplane.End
	for _, w := range f.Paths {
		if ends[w.End] == nil {
			order = append(order, w.End)
		}
		ends[w.End] = append(ends[w.End], string(w.Origin))
	}
	if len(order) == 1 {
		return string(order[0])
	}
	var words []string
	for _, end := range order {
		words = append(words, fmt.Sprintf("%s (%s)", end, strings.Join(ends[end], ", ")))
	}
	return strings.Join(words, ", ")
}

// ports print how the endpoints of each port fare.
func (p *page) ports(s *agent.Report) {
	var list []string
	for _, one := range s.Services {
		for _, port := range one.Ports {
			list = append(list, fmt.Sprintf("%d/%s, %s\t%s", port.Port, port.Protocol, port.Family, endpointsOf(port, addressOf(s.Asked))))
		}
	}
	if len(list) == 0 {
		return
	}
	p.section("Endpoints")
	p.lines("  ", list, mostPorts)
}

// endpointsOf counts the endpoints of a port by how they are used, and names a few that are
// used; one that was asked for comes first.
func endpointsOf(port model.PortStory, asked netip.Addr) string {
	uses, used := map[model.Use]int{}, []string{}
	for _, e := range port.Endpoints {
		best := bestUse(e)
		uses[best]++
		switch {
		case best != model.UseBackend:
		case e.Address.Addr() == asked:
			used = slices.Insert(used, 0, e.Address.String())
		default:
			used = append(used, e.Address.String())
		}
	}
	if len(port.Endpoints) == 0 {
		return "none"
	}
	var words []string
	for _, use := range []model.Use{model.UseBackend, model.UseDrained, model.UseKept, model.UseNone} {
		if n := uses[use]; n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n, use))
		}
	}
	text := strings.Join(words, ", ")
	if len(used) > 0 {
		text += " (" + named(used) + ")"
	}
	return text
}

// bestUse is the use of the policy that uses an endpoint most.
func bestUse(e model.EndpointStory) model.Use {
	best := model.UseNone
	for _, v := range []*model.Verdict{e.Cluster, e.Local} {
		switch {
		case v == nil:
		case v.Use == model.UseBackend, best == model.UseNone, v.Use == model.UseDrained && best == model.UseKept:
			best = v.Use
		}
	}
	return best
}

// pending prints what is to be written, and what drains.
func (p *page) pending(s *agent.Report) {
	var list []string
	for _, row := range s.Rows.Pending {
		list = append(list, "to write\t"+row)
	}
	for _, row := range slices.Concat(s.Rows.Draining, s.Leaving) {
		list = append(list, "draining\t"+row)
	}
	if len(list) > 0 {
		p.section("Pending")
		p.lines("  ", list, mostRows)
	}
}

// kernelSummary counts what the kernel has, and prints what is wrong with it.
func (p *page) kernelSummary(r Report) {
	k := r.Kernel
	p.section("Kernel")
	servers, destinations := k.count()
	var active, inactive uint64
	for _, c := range k.Connections {
		active, inactive = active+uint64(c.Active), inactive+uint64(c.Inactive)
	}
	if servers > 0 {
		p.line("  %s, %s; %d active, %d inactive connections", count(servers, "virtual server"), count(destinations, "destination"), active, inactive)
	}
	p.rows("missing", k.Missing, mostRows)
	p.rows("orphaned", k.Orphaned, mostRows)
	p.rows("foreign", k.Foreign, mostRows)
	for _, u := range k.Unread {
		p.line("  %s: %s", u.Kind, u.Why)
	}
	if servers+len(k.Missing)+len(k.Orphaned)+len(k.Foreign)+len(k.Unread) == 0 {
		p.line("  %s", r.empty())
	}
}

// count counts the virtual servers and destinations that were found.
func (k Kernel) count() (servers, destinations int) {
	for _, line := range k.Servers {
		if strings.HasPrefix(line, "-A ") {
			servers++
		} else {
			destinations++
		}
	}
	return servers, destinations
}

// asked prints the way from the source that was asked for, to one frontend. It reports whether
// there is more than was printed.
func (p *page) asked(r Report) (left bool) {
	printed := false
	for i := range r.Story.Services {
		for _, f := range r.Story.Services[i].Frontends {
			for _, w := range f.Paths {
				if w.Source == "" || printed {
					left = true
					continue
				}
				printed = true
				p.way(r, f, w)
			}
		}
		left = left || len(r.Story.Services[i].Ports) > 0
	}
	return left
}
