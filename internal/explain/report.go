package explain

import (
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/linediff"
)

// Report is the whole story. Field names in JSON never change; their schema is
// manifests/schemas/explain.schema.json.
type Report struct {
	Asked string `json:"asked"`
	// OK means that nothing is wrong. Verdict has that sentence, or one for each problem.
	OK      bool     `json:"ok"`
	Verdict []string `json:"verdict"`
	// UsedBy lists the Services that have the address that was asked for, with their use of it.
	UsedBy []string `json:"usedBy,omitempty"`
	// Story is the report of the agent; nil without an agent, and NoAgent has the reason.
	Story   *agent.Report `json:"story,omitempty"`
	NoAgent string        `json:"noAgent,omitempty"`
	Kernel  Kernel        `json:"kernel"`
	// Firewalls are filters of other programs that drop packets to what was asked for.
	Firewalls []Firewall `json:"firewalls"`
}

// Firewall is one filter that drops packets.
type Firewall struct {
	// Description of the dropped packets, and of the table, chain and rule that drop them.
	What string `json:"what"`
	// Fix are commands that let them pass.
	Fix []string `json:"fix"`
}

// Wall is the effect of a filter on packets to a frontend.
type Wall struct {
	// Where is the place, as a step of a packet.
	Where string
	// From are the origins whose packets are dropped; all of them if the answers are (Reply).
	From  []dataplane.Origin
	Reply bool
}

// Kernel has the rows in the kernel, compared with the desired ones.
type Kernel struct {
	// Servers are the virtual servers and destinations, as ipvsadm -Sn prints them.
	Servers []string `json:"servers"`
	// Connections are those that it keeps, by destination.
	Connections []Connections `json:"connections"`
	// Missing rows are wanted and not there. Orphaned servers and destinations are ours and of
	// no Service: the agent deletes them. Foreign servers are of others, and are never touched.
	// All are by kind, the last two at the addresses that were asked for.
	Missing  []Rows `json:"missing"`
	Orphaned []Rows `json:"orphaned"`
	Foreign  []Rows `json:"foreign"`
	// Drops are rules that dropped packets which may have been for what was asked for.
	Drops []Drop `json:"drops"`
	// Unread lists the kinds that could not be read, with the reasons.
	Unread []Unread `json:"unread"`
}

// Rows are some of one kind and group (linediff.Row).
type Rows struct {
	Kind  string   `json:"kind"`
	Group string   `json:"group"`
	Rows  []string `json:"rows"`
	// Of is how many the group is wanted to have in all.
	Of int `json:"of"`
}

// Connections are how many the kernel keeps of one destination.
type Connections struct {
	Server      string `json:"server"`
	Destination string `json:"destination"`
	Active      uint32 `json:"active"`
	Inactive    uint32 `json:"inactive"`
}

// Unread is a kind of rows that could not be read.
type Unread struct {
	Kind string `json:"kind"`
	Why  string `json:"why"`
}

// Found are the rows that were read from the kernel.
type Found struct {
	// Text has the rows, by kind, and Failed the reason why a kind could not be read. One that is
	// in neither was not looked at.
	Text   map[string]string
	Failed map[string]error
	// Connections of the destinations.
	Connections []Connections
	// Drops are rules of ours that dropped packets.
	Drops []Drop
	// Others reports whether another Service, which is not part of the report, has a frontend of
	// the group of a server.
	Others func(group string) bool
	// Ours reports whether the group of a server belongs to kube-ipvs (package ownership); nil
	// means that none does.
	Ours func(group string) bool
	// Firewalls are the filters that drop packets to what was asked for, and Walls what they
	// do, by the key of the frontend. Of those in Unclear it cannot be said.
	Firewalls []Firewall
	Walls     map[string][]Wall
	Unclear   []string
	// Words translate rules and sets that are not in iptables and ipset; nil prints them as they are.
	Words *Words
}

// Words say what rules and sets are called where they are in nftables.
type Words struct {
	// Row returns a row of a kind, and Group a group of rows.
	Row   func(kind, row string) string
	Group func(group string) string
	// Step returns a step of a packet.
	Step func(step string) string
}

// row returns a row as it is printed.
func (w *Words) row(kind, row string) string {
	if w == nil {
		return row
	}
	return w.Row(kind, row)
}

// group returns a group as it is printed.
func (w *Words) group(group string) string {
	if w == nil {
		return group
	}
	return w.Group(group)
}

// translate has a report print the words of nftables.
func (w *Words) translate(r *Report) {
	if w == nil {
		return
	}
	for _, groups := range [][]Rows{r.Kernel.Missing, r.Kernel.Orphaned, r.Kernel.Foreign} {
		for i, g := range groups {
			groups[i].Group = w.Group(g.Group)
			for j, row := range g.Rows {
				g.Rows[j] = w.Row(g.Kind, row)
			}
		}
	}
	if r.Story == nil {
		return
	}
	for i := range r.Story.Services {
		for _, f := range r.Story.Services[i].Frontends {
			for _, path := range f.Paths {
				for j, step := range path.Steps {
					path.Steps[j] = w.Step(step)
				}
			}
		}
	}
}

// kinds are in the order of the report: rows that attract traffic come first.
var kinds = []string{"servers", "addresses", "rules", "sets"}

// New makes a report; story is nil where the agent did not answer, for the reason noAgent.
func New(asked string, story *agent.Report, noAgent error, found Found) Report {
	r := Report{Asked: asked, Story: story, Kernel: compare(story, found), Firewalls: []Firewall{}}
	if story != nil {
		r.stop(found)
	}
	if noAgent != nil {
		r.NoAgent = noAgent.Error()
	}
	if story != nil {
		r.UsedBy = usedBy(story)
	}
	v := verdict{report: &r, unclear: found.Unclear, words: found.Words}
	r.Verdict, r.OK = v.reach()
	found.Words.translate(&r)
	return r
}

// compare holds what is wanted against what is there.
func compare(story *agent.Report, found Found) Kernel {
	k := Kernel{Servers: []string{}, Connections: found.Connections, Missing: []Rows{}, Orphaned: []Rows{}, Foreign: []Rows{}, Unread: []Unread{}, Drops: concerning(story, found.Drops)}
	k.Drops, k.Connections = list(k.Drops), list(k.Connections)
	for line := range strings.Lines(found.Text["servers"]) {
		k.Servers = append(k.Servers, strings.TrimSpace(line))
	}
	if err := found.Failed["drops"]; err != nil {
		k.Unread = append(k.Unread, Unread{"drops", oneLine(err.Error())})
	}
	for _, kind := range kinds {
		if err := found.Failed[kind]; err != nil {
			k.Unread = append(k.Unread, Unread{kind, oneLine(err.Error())})
			continue
		}
		text, read := found.Text[kind]
		if !read {
			continue
		}
		var want []linediff.Row
		if story != nil {
			want = linediff.Parse(kind, story.Rows.Desired[kind])
		}
		missing, foreign := sides(kind, linediff.Parse(kind, text), want)
		if story != nil {
			k.Missing = append(k.Missing, missing...)
		}
		if kind == "servers" && story != nil {
			k.unwanted(foreign, found)
		}
	}
	return k
}

// list is one that JSON prints as [], never as null.
func list[E any](of []E) []E { return append([]E{}, of...) }

// unwanted sorts servers that no Service asked for wants, by whose they are.
func (k *Kernel) unwanted(groups []Rows, found Found) {
	for _, rows := range groups {
		switch {
		case rows.Of == 0 && found.Others != nil && found.Others(rows.Group):
		case rows.Of > 0 || found.Ours != nil && found.Ours(rows.Group):
			k.Orphaned = append(k.Orphaned, rows)
		default:
			k.Foreign = append(k.Foreign, rows)
		}
	}
}

// sides are the rows that only one side has, by group.
func sides(kind string, have, want []linediff.Row) (missing, foreign []Rows) {
	wanted := map[string]int{}
	for _, r := range want {
		wanted[r.Group]++
	}
	one := func(group string, rows []linediff.Row, others []linediff.Row) Rows {
		out := Rows{Kind: kind, Group: group, Of: wanted[group], Rows: []string{}}
		for _, r := range rows {
			if r.Group == group && !slices.Contains(others, r) {
				out.Rows = append(out.Rows, r.Text)
			}
		}
		return out
	}
	var seen []string
	for _, r := range slices.Concat(want, have) {
		if slices.Contains(seen, r.Group) || kind != "servers" && wanted[r.Group] == 0 {
			continue
		}
		seen = append(seen, r.Group)
		if m := one(r.Group, want, have); len(m.Rows) > 0 {
			missing = append(missing, m)
		}
		if f := one(r.Group, have, want); len(f.Rows) > 0 {
			foreign = append(foreign, f)
		}
	}
	return missing, foreign
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
