package explain

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Write prints the report for people: the verdict in the first lines, then what it follows from,
// on one screen. With all it leaves nothing out: each endpoint, each row of the kernel, and each
// step of packets.
func (r Report) Write(w io.Writer, all bool) error {
	p := &page{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	p.users(r.UsedBy, all)
	p.lines("", r.Verdict, some(all, mostVerdict))
	if !all {
		p.summary(r)
		return p.out.Flush()
	}
	if r.Story != nil {
		p.story(r.Story)
	}
	p.kernel(r)
	p.drops(r.Kernel.Drops)
	p.walls(r.Firewalls)
	if r.Story != nil {
		p.packets(r)
	}
	return p.out.Flush()
}

// users prints who has an address: without all in one line, so that the verdict is among the first
// three.
func (p *page) users(list []string, all bool) {
	switch {
	case all || len(list) < 2:
		p.lines("", list, len(list))
	default:
		p.line("%s; and %d more such uses", list[0], len(list)-1)
	}
}

func (p *page) story(s *agent.Report) {
	for i := range s.Services {
		one := &s.Services[i]
		p.section("Service " + one.Name)
		p.line("  type\t%s, from %s", one.Type, one.Source)
		p.line("  policies\tinternal %s, external %s", one.InternalPolicy, one.ExternalPolicy)
		if one.Affinity != "" {
			p.line("  affinity\tClientIP, %s", one.Affinity)
		}
		if len(one.SourceRanges) > 0 {
			p.line("  source ranges\t%s", strings.Join(one.SourceRanges, ", "))
		}
		for _, n := range slices.Concat(one.Notes, one.Remarks) {
			p.line("  note\t%s", n)
		}
		p.frontends(one, s.Mode)
		p.relays(s.Services[i:i+1], math.MaxInt)
		p.endpoints(one)
	}
	if len(s.Rows.Pending)+len(s.Rows.Draining)+len(s.Leaving) == 0 {
		return
	}
	p.section("Pending")
	for _, row := range s.Rows.Pending {
		p.line("  to write\t%s", row)
	}
	for _, row := range s.Rows.Draining {
		p.line("  draining\t%s", row)
	}
	for _, where := range s.Leaving {
		p.line("  draining\t%s", where)
	}
}

func (p *page) frontends(s *agent.ServiceReport, mode string) {
	if len(s.Frontends) == 0 {
		return
	}
	p.section("Frontends", "ADDRESS", "KIND", "SCHEDULER", "POLICY", "BACKENDS", "STATE")
	for _, f := range s.Frontends {
		p.line("  %s\t%s\t%s\t%s\t%d\t%s", f.Key, f.Kind, orDash(f.Scheduler), policyOf(f.Local), f.Backends, stateOf(f, mode))
	}
}

// relays print node ports on loopback, and where connections to them go.
func (p *page) relays(list []agent.ServiceReport, most int) {
	var lines []string
	for _, s := range list {
		for _, r := range s.Relays {
			lines = append(lines, r.Key+"\t"+relayState(r))
		}
	}
	if len(lines) > 0 {
		p.section("Node ports on loopback, relayed by the agent")
		p.lines("  ", lines, most)
	}
}

func relayState(r agent.RelayReport) string {
	switch n := len(r.Targets); {
	case r.Failure != "":
		return "not open: " + r.Failure
	case n == 0:
		return "refuses: no endpoint"
	case n == 1:
		return "to " + r.Targets[0].String()
	default:
		return fmt.Sprintf("to %s and %d more", r.Targets[0], n-1)
	}
}

func policyOf(local bool) string {
	if local {
		return "Local"
	}
	return "Cluster"
}

// stateOf returns the owner of a frontend and its particulars. In iptables mode nothing is
// bound.
func stateOf(f agent.FrontendReport, mode string) string {
	var words []string
	switch {
	case f.HeldBy != "":
		return "lost to " + f.HeldBy
	case f.NoLocal:
		words = append(words, "silent: no endpoint on this node")
	case f.Backends == 0:
		words = append(words, "refuses: no endpoint")
	case f.Taking == 0:
		words = append(words, "refuses: all are drained")
	default:
		words = append(words, "serves")
	}
	switch {
	case f.Capture:
		words = append(words, "captured by port")
	case mode == "ipvs" && !f.Bind && f.Kind != model.KindNodePort.String():
		words = append(words, "not bound")
	}
	if f.Announcement != nil {
		words = append(words, f.Announcement.String())
	}
	if f.Detour != "" {
		words = append(words, "clients of this node go to "+f.Detour)
	}
	if f.Forward != model.ForwardNAT.String() {
		words = append(words, "forwarded by "+f.Forward)
	}
	return strings.Join(words, "; ")
}

func (p *page) endpoints(s *agent.ServiceReport) {
	for _, port := range s.Ports {
		title := fmt.Sprintf("Endpoints of port %d/%s, %s", port.Port, port.Protocol, port.Family)
		if len(port.Endpoints) == 0 {
			p.section(title)
			p.line("  none")
			continue
		}
		p.section(title, "ADDRESS", "NODE", "POLICY", "USE", "WEIGHT", "WHY")
		for _, e := range port.Endpoints {
			p.verdict(e, "Cluster", e.Cluster)
			p.verdict(e, "Local", e.Local)
		}
	}
}

func (p *page) verdict(e model.EndpointStory, policy string, v *model.Verdict) {
	if v == nil {
		return
	}
	weight := "-"
	if v.Use.Backend() {
		weight = fmt.Sprint(v.Weight)
	}
	p.line("  %s\t%s\t%s\t%s\t%s\t%s", e.Address, orDash(e.Node), policy, v.Use, weight, orDash(v.Why))
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func (p *page) kernel(r Report) {
	k := r.Kernel
	p.section("Kernel")
	for _, line := range k.Servers {
		p.line("  %s%s", line, k.connections(line))
	}
	p.rows("missing", k.Missing, math.MaxInt)
	p.rows("orphaned", k.Orphaned, math.MaxInt)
	p.rows("foreign", k.Foreign, math.MaxInt)
	for _, u := range k.Unread {
		p.line("  %s: %s", u.Kind, u.Why)
	}
	if len(k.Servers)+len(k.Missing)+len(k.Orphaned)+len(k.Foreign)+len(k.Unread) == 0 {
		p.line("  %s", r.empty())
	}
}

// empty is said of a kernel in which nothing was found.
func (r Report) empty() string {
	switch {
	case r.Story == nil:
		return "no virtual server; without an agent it is unknown what is missing"
	case r.Story.Mode != "ipvs":
		return "nothing is missing"
	}
	return "nothing is missing, and there is no virtual server"
}

// connections of the destination that a line is.
func (k Kernel) connections(line string) string {
	words := strings.Fields(line)
	if len(words) < 5 || words[0] != "-a" {
		return ""
	}
	for _, c := range k.Connections {
		if strings.HasPrefix(c.Server, words[2]+"/") && c.Destination == words[4] && flagOf[c.Server[strings.LastIndexByte(c.Server, '/')+1:]] == words[1] {
			return fmt.Sprintf("   %d active, %d inactive connections", c.Active, c.Inactive)
		}
	}
	return ""
}

// flagOf are the options by which ipvsadm names a protocol.
var flagOf = map[string]string{"tcp": "-t", "udp": "-u", "sctp": "--sctp-service"}

// fromOf are the origins in words.
var fromOf = map[dataplane.Origin]string{
	dataplane.FromPod: "a pod of this node", dataplane.FromHost: "this host", dataplane.FromOutside: "outside",
}

// way prints the steps of a packet.
func (p *page) way(r Report, f agent.FrontendReport, w agent.PacketPath) {
	from := fromOf[w.Origin]
	if w.Source != "" {
		from = fmt.Sprintf("%s (%s)", w.Source, w.Origin)
	}
	p.section(fmt.Sprintf("Packets to %s from %s: %s", f.Key, from, r.end(w)))
	for n, step := range w.Steps {
		p.line("  %d. %s", n+1, step)
	}
}

// packets prints the steps of packets to all frontends.
func (p *page) packets(r Report) {
	for i := range r.Story.Services {
		for _, f := range r.Story.Services[i].Frontends {
			for _, w := range f.Paths {
				p.way(r, f, w)
			}
		}
	}
}

// end is where packets end. Their way is that of the rows that are wanted, so it is not certain
// where some are missing, or could not be read.
func (r Report) end(w agent.PacketPath) string {
	if n := len(r.Kernel.Missing) + len(r.Kernel.Unread); n > 0 {
		return "not certain, as the kernel lacks rows; with them " + string(w.End)
	}
	return string(w.End)
}
