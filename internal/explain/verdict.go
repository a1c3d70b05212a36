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

// verdict gathers what is wrong, the first cause first.
type verdict struct {
	report *Report
	wrong  []string
	// minor are facts worth knowing that prevent nothing from working.
	minor []string
	// unclear are filters of which nothing can be said.
	unclear []string
	words   *Words
}

func (v *verdict) wrongf(format string, args ...any) { add(&v.wrong, fmt.Sprintf(format, args...)) }
func (v *verdict) minorf(format string, args ...any) { add(&v.minor, fmt.Sprintf(format, args...)) }

// add keeps each sentence once.
func add(list *[]string, text string) {
	if !slices.Contains(*list, text) {
		*list = append(*list, text)
	}
}

// reach goes from what keeps everything from working to what keeps a part of it.
func (v *verdict) reach() (lines []string, ok bool) {
	if v.report.Story == nil {
		v.alone()
		return append(v.wrong, v.minor...), false
	}
	for _, look := range []func(){v.noService, v.skipped, v.lost, v.relayed, v.unread, v.kernel, v.walls, v.asked, v.dark, v.late, v.drained, v.notes} {
		look()
	}
	if len(v.wrong) == 0 {
		return append([]string{v.well()}, v.minor...), true
	}
	return append(v.wrong, v.minor...), false
}

// alone judges the Service without an agent, by the kernel alone.
func (v *verdict) alone() {
	k := v.report.Kernel
	v.wrongf("no agent reports what is desired: %s", v.report.NoAgent)
	servers, destinations := k.count()
	v.unread()
	switch {
	case !addressOf(v.report.Asked).IsValid():
		v.wrongf("only a running agent knows the virtual servers of %s; ask for one of its addresses", v.report.Asked)
	case servers > 0:
		v.wrongf("the kernel has %s for %s, with %s", count(servers, "virtual server"), v.report.Asked, count(destinations, "destination"))
	case len(k.Unread) == 0:
		v.wrongf("the kernel has no virtual server for %s", v.report.Asked)
	}
}

// noService reports that a Service does not exist, or why no Service has an address.
func (v *verdict) noService() {
	s := v.report.Story
	if !s.Synced {
		v.wrongf("the agent still waits for its sources: it does not know all Services yet")
	}
	switch {
	case len(s.Services) > 0:
	case !strings.ContainsAny(s.Asked, ".:"): // names have neither
		v.wrongf("no Service %s is known to this node", s.Asked)
	case s.Holder != "":
		v.wrongf("no Service is served at %s: it is %s", s.Asked, s.Holder)
	case len(s.Leaving) > 0:
		v.wrongf("%s is no endpoint any more: it drains, and keeps the connections that it has, at %s", s.Asked, few(s.Leaving))
	default:
		v.wrongf("no Service is served at %s, and none has it as an endpoint", s.Asked)
	}
}

// skipped names Services that are not served at all, or not at what is asked for.
func (v *verdict) skipped() {
	for i := range v.report.Story.Services {
		s := &v.report.Story.Services[i]
		switch {
		case s.Intended:
			v.minorf("%s: no part of it is to be served: %s", s.Name, s.Skipped)
		case s.Skipped != "":
			v.wrongf("%s is not served: %s", s.Name, s.Skipped)
		case slices.ContainsFunc(s.Frontends, func(f agent.FrontendReport) bool { return f.Asked }):
		case slices.ContainsFunc(s.Relays, func(r agent.RelayReport) bool { return r.Asked }):
		case slices.ContainsFunc(s.Frontends, func(f agent.FrontendReport) bool { return f.Kind != model.KindDetour.String() }):
			v.elsewhere(s)
		}
	}
}

// elsewhere reports a Service that is related to an address and does not answer there.
func (v *verdict) elsewhere(s *agent.ServiceReport) {
	address := addressOf(v.report.Story.Asked)
	for _, p := range s.Ports {
		for _, e := range p.Endpoints {
			for _, w := range []*model.Verdict{e.Cluster, e.Local} {
				if w != nil && !w.Use.Backend() && e.Address.Addr() == address {
					v.wrongf("%s is an endpoint of %s that takes no new connections: %s", e.Address, s.Name, w.Why)
				}
			}
		}
	}
	var at []string
	for _, f := range s.Frontends {
		if f.Kind != model.KindDetour.String() {
			at = append(at, f.Key)
		}
	}
	for _, n := range s.Reasons {
		if !n.Code.NoBackends() {
			v.wrongf("%s: %s", s.Name, n)
		}
	}
	if len(v.wrong) == 0 {
		v.wrongf("%s does not answer at %s, but at %s", s.Name, v.report.Story.Asked, few(at))
	}
}

// addressOf is the address in ip[:port[/protocol]]; the zero Addr in anything else.
func addressOf(asked string) netip.Addr {
	text, _, _ := strings.Cut(asked, "/")
	if ap, err := netip.ParseAddrPort(text); err == nil {
		return ap.Addr()
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}
	}
	return a
}

// lost names the winners of conflicts.
func (v *verdict) lost() {
	v.eachAsked(func(s *agent.ServiceReport, f *agent.FrontendReport) {
		switch {
		case f.HeldBy == "":
		case f.HeldAs != "":
			v.wrongf("%s belongs to %s, whose %s it is; %s does not get it", f.Key, f.HeldBy, f.HeldAs, s.Name)
		case f.Kind == model.KindNodePort.String():
			v.wrongf("node port %s collides: %s has it, which comes first by age, then by name; %s does not get it", f.Key, f.HeldBy, s.Name)
		default:
			v.wrongf("%s belongs to %s, which comes first by age, then by name; %s does not get it", f.Key, f.HeldBy, s.Name)
		}
	})
}

// relayed names NodePorts on loopback that cannot be opened.
func (v *verdict) relayed() {
	for _, s := range v.report.Story.Services {
		for _, r := range s.Relays {
			if r.Asked && r.Failure != "" {
				v.wrongf("node port %s of %s is not served: %s", r.Key, s.Name, r.Failure)
			}
		}
	}
}

func (v *verdict) eachAsked(visit func(*agent.ServiceReport, *agent.FrontendReport)) {
	for i := range v.report.Story.Services {
		s := &v.report.Story.Services[i]
		for j := range s.Frontends {
			if s.Frontends[j].Asked {
				visit(s, &s.Frontends[j])
			}
		}
	}
}

// unread lists the kinds that could not be read: often the kernel lacks a module.
func (v *verdict) unread() {
	for _, u := range v.report.Kernel.Unread {
		noun := nounOf[u.Kind]
		if u.Kind == "rules" && v.words != nil {
			noun = "rules of nftables"
		}
		v.wrongf("%s cannot be read of the kernel: %s", noun, u.Why)
	}
}

var nounOf = map[string]string{"servers": "virtual servers", "addresses": "addresses", "rules": "rules of iptables", "sets": "sets"}

// kernel compares it with what is wanted.
func (v *verdict) kernel() {
	k := v.report.Kernel
	for _, m := range k.Missing {
		v.missing(m)
	}
	for _, o := range k.Orphaned {
		v.orphaned(o)
	}
	for _, f := range k.Foreign {
		v.wrongf("foreign virtual server %s in the kernel: no Service has it, and kube-ipvs does not touch it (%s)", f.Group, f.Rows[0])
	}
}

func (v *verdict) missing(m Rows) {
	who := "another program removed it, or the agent could not write it"
	switch {
	case m.Kind == "servers":
		v.missingServer(m)
	case m.Kind == "rules" && len(m.Rows) == m.Of && strings.Contains(m.Rows[0], " -N "):
		v.wrongf("chain %s is missing in the kernel: %s", v.words.group(m.Group), who)
	case m.Kind == "rules":
		v.wrongf("%s lacks %d of %d rules in the kernel (%s): %s", v.chainOrHook(m.Group), len(m.Rows), wantedRules(m), v.words.row(m.Kind, m.Rows[0]), "another program flushed or changed the chain, or the agent could not write them")
	case m.Kind == "sets":
		v.wrongf("set %s lacks %s in the kernel (%s): %s", m.Group, entries(len(m.Rows)), v.words.row(m.Kind, m.Rows[0]), who)
	default:
		for _, row := range m.Rows {
			v.wrongf("address is missing in the kernel (%s): %s", row, who)
		}
	}
}

// wantedRules counts without the row that declares the chain.
func wantedRules(m Rows) int {
	if strings.Contains(m.Group, " KUBE-") {
		return m.Of - 1
	}
	return m.Of
}

func (v *verdict) chainOrHook(group string) string {
	if strings.Contains(group, " KUBE-") {
		return "chain " + v.words.group(group)
	}
	return "hook " + v.words.group(group)
}

func entries(n int) string {
	if n == 1 {
		return "an entry"
	}
	return fmt.Sprintf("%d entries", n)
}

// missingServer distinguishes a missing server from a different one, for which it shows the actual
// row.
func (v *verdict) missingServer(m Rows) {
	if !slices.ContainsFunc(v.report.Kernel.Servers, func(l string) bool { return strings.HasPrefix(l, "-A "+m.Group+" ") }) {
		v.wrongf("virtual server %s is missing in the kernel: another program removed it, or the agent could not write it", m.Group)
		return
	}
	for _, row := range m.Rows {
		if have := v.instead(row); have != "" {
			v.wrongf("it differs in the kernel: %q instead of %q", have, row)
		} else {
			v.wrongf("destination is missing in the kernel: %s", row)
		}
	}
}

// instead finds what the kernel has in place of a server or destination.
func (v *verdict) instead(row string) string {
	i := slices.IndexFunc(v.report.Kernel.Servers, func(l string) bool { return rowKey(l) == rowKey(row) })
	if i < 0 {
		return ""
	}
	return v.report.Kernel.Servers[i]
}

// rowKey is the part of a line that identifies a server (-A -t addr) or a destination (-a -t addr
// -r addr).
func rowKey(line string) string {
	words := strings.Fields(line)
	n := 3
	if len(words) > 0 && words[0] == "-a" {
		n = 5
	}
	return strings.Join(words[:min(n, len(words))], " ")
}

func (v *verdict) orphaned(f Rows) {
	for _, row := range f.Rows {
		wanted := slices.ContainsFunc(v.report.Kernel.Missing, func(m Rows) bool {
			return slices.ContainsFunc(m.Rows, func(l string) bool { return rowKey(l) == rowKey(row) })
		})
		switch {
		case wanted: // told already: it is different
		case f.Of == 0 && strings.HasPrefix(row, "-A "):
			v.wrongf("orphaned virtual server %s in the kernel: no Service has it, so the agent deletes it (%s)", f.Group, row)
		case f.Of > 0:
			v.wrongf("orphaned destination in the kernel: no Service has it, so the agent deletes it: %s", row)
		}
	}
}

// asked is the way from one source, if there is one.
func (v *verdict) asked() {
	v.eachAsked(func(_ *agent.ServiceReport, f *agent.FrontendReport) {
		for _, w := range f.Paths {
			if w.Source != "" && w.End != dataplane.EndForwarded {
				v.wrongf("a packet from %s to %s is %s: %s", w.Source, f.Key, w.End, w.Why)
			}
		}
	})
}

// dark names frontends without backends.
func (v *verdict) dark() {
	for i := range v.report.Story.Services {
		s := &v.report.Story.Services[i]
		for _, n := range s.Reasons {
			if n.Code.NoBackends() {
				v.wrongf("%s: %s", s.Name, strings.TrimSuffix(n.Text, ": no backends")+outcome(n.Code))
			}
		}
	}
	v.eachAsked(func(s *agent.ServiceReport, f *agent.FrontendReport) {
		switch {
		case f.HeldBy != "" || f.Taking > 0:
		case f.Backends > 0:
			v.wrongf("%s: %s: all of its backends (%d) have weight 0 and are drained: clients are refused%s", s.Name, f.Key, f.Backends, v.drainers(s))
		case !f.NoLocal && !slices.ContainsFunc(s.Reasons, func(n model.Note) bool { return n.Code.NoBackends() }):
			v.wrongf("%s: %s has no backends: clients are refused", s.Name, f.Key)
		}
	})
}

// outcome is the effect on clients.
func outcome(code model.NoteCode) string {
	if code == model.NoLocalEndpoints {
		return ": clients get no answer"
	}
	return ": clients are refused"
}

// drainers say who drains.
func (v *verdict) drainers(s *agent.ServiceReport) string {
	for _, p := range s.Ports {
		for _, e := range p.Endpoints {
			for _, w := range []*model.Verdict{e.Cluster, e.Local} {
				if w != nil && w.Use == model.UseDrained {
					return " (" + w.Why + ")"
				}
			}
		}
	}
	return ""
}

// late names what is still to be written.
func (v *verdict) late() {
	s := v.report.Story
	if n := len(s.Rows.Pending); n > 0 {
		v.wrongf("%s not in the kernel yet (%s)%s", are(n, "row"), s.Rows.Pending[0], because(s.LastError))
	} else if s.LastError != "" {
		v.minorf("the agent could not write rows of another Service: %s", oneLine(s.LastError))
	}
	for _, one := range s.Services {
		if one.Waiting {
			v.wrongf("%s has just changed: the agent has not compiled it yet", one.Name)
		}
	}
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + oneLine(why)
}

// drained names endpoints that are taken out of service by their weight, and those that a policy
// excludes, grouped by reason.
func (v *verdict) drained() {
	for i := range v.report.Story.Services {
		s := &v.report.Story.Services[i]
		var whys []string
		who := map[string][]string{}
		for _, p := range s.Ports {
			for _, e := range p.Endpoints {
				for _, w := range []*model.Verdict{e.Cluster, e.Local} {
					if w == nil || w.Use == model.UseBackend {
						continue
					}
					why := "not used: " + w.Why
					if w.Use == model.UseDrained {
						why = "drained: " + w.Why
					}
					add(&whys, why)
					list := who[why]
					add(&list, e.Address.String())
					who[why] = list
				}
			}
		}
		for _, why := range whys {
			v.minorf("%s: %s %s", s.Name, endpointsAre(who[why]), why)
		}
	}
	if d := v.report.Story.Rows.Draining; len(d) > 0 {
		v.minorf("draining, for the connections they have: %s", few(d))
	}
}

func endpointsAre(all []string) string {
	if len(all) == 1 {
		return "endpoint " + all[0] + " is"
	}
	return fmt.Sprintf("%d endpoints (%s) are", len(all), few(all))
}

// notes adds the notes of plans.
func (v *verdict) notes() {
	for i := range v.report.Story.Services {
		s := &v.report.Story.Services[i]
		if s.Skipped != "" {
			continue
		}
		for _, n := range s.BadAnnotations {
			v.wrongf("%s: the annotation has no effect: %s", s.Name, n)
		}
		for _, n := range s.Reasons {
			if !n.Code.NoBackends() && n.Code != model.BadAnnotation {
				v.wrongf("%s: %s", s.Name, n)
			}
		}
		for _, r := range s.Remarks {
			v.minorf("%s: %s", s.Name, r)
		}
		if len(s.SourceRanges) > 0 {
			v.minorf("%s: only clients in %s may use its load-balancer addresses", s.Name, few(s.SourceRanges))
		}
	}
}

// well returns the sentence that nothing is wrong.
func (v *verdict) well() string {
	frontends := 0
	v.eachAsked(func(*agent.ServiceReport, *agent.FrontendReport) { frontends++ })
	taking, all := map[string]struct{}{}, map[string]struct{}{}
	names := []string{}
	for _, s := range v.report.Story.Services {
		names = append(names, s.Name)
		for _, r := range s.Relays {
			if r.Asked {
				frontends++
			}
		}
		for _, p := range s.Ports {
			for _, e := range p.Endpoints {
				all[e.Address.String()] = struct{}{}
				for _, w := range []*model.Verdict{e.Cluster, e.Local} {
					if w != nil && w.Use == model.UseBackend {
						taking[e.Address.String()] = struct{}{}
					}
				}
			}
		}
	}
	if frontends == 0 {
		return "all is well: no part of " + few(names) + " is to be served"
	}
	kernel := "the kernel has all of it"
	if len(v.report.Kernel.Servers) == 0 && v.report.Story.Mode == "ipvs" {
		kernel = "the kernel was not read"
	}
	return fmt.Sprintf("all is well: %s is served at %s, %d of %s take new connections, and %s",
		few(names), count(frontends, "frontend"), len(taking), count(len(all), "endpoint"), kernel)
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func are(n int, noun string) string {
	if n == 1 {
		return "1 " + noun + " is"
	}
	return fmt.Sprintf("%d %ss are", n, noun)
}

// few lists the first of many.
func few(all []string) string {
	const most = 5
	if len(all) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
	}
	return strings.Join(all, ", ")
}
