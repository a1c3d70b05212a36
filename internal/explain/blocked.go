package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
)

// stop ends the ways of packets that a filter drops, where it drops them, and names the filters
// if there is such a way.
func (r *Report) stop(found Found) {
	stopped := false
	for i := range r.Story.Services {
		list := r.Story.Services[i].Frontends
		for j := range list {
			for _, w := range found.Walls[list[j].Key] {
				for n := range list[j].Paths {
					stopped = w.stop(&list[j].Paths[n]) || stopped
				}
			}
		}
	}
	if stopped {
		r.Firewalls = found.Firewalls
	}
}

// ofOthers begins the step at which a packet meets the rules of other programs.
const ofOthers = "filter INPUT: rules of others"

// stop ends one way, and reports whether it does. A packet that does not get so far is not
// concerned.
func (w Wall) stop(way *agent.PacketPath) bool {
	if way.End != dataplane.EndForwarded || !w.Reply && !slices.Contains(w.From, way.Origin) {
		return false
	}
	if at := slices.IndexFunc(way.Steps, func(s string) bool { return strings.HasPrefix(s, ofOthers) }); at >= 0 && !w.Reply {
		way.Steps = way.Steps[:at]
	}
	if w.Reply {
		way.Stop(dataplane.EndDropped, "the answer: %s", w.Where)
	} else {
		way.Stop(dataplane.EndDropped, "%s", w.Where)
	}
	return true
}

// walls names what drops packets, and what may.
func (v *verdict) walls() {
	for _, f := range v.report.Firewalls {
		v.wrongf("a firewall drops %s", f.What)
	}
	if len(v.unclear) > 0 {
		v.minorf("cannot judge whether other filters drop packets: %s", few(v.unclear))
	}
}

func (p *page) walls(list []Firewall) {
	for _, f := range list {
		p.section(fmt.Sprintf("To let pass %s", f.What))
		for _, line := range f.Fix {
			p.line("  %s", line)
		}
	}
}
