package explain

import (
	"fmt"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
)

// Drop is a rule of ours that dropped or refused packets.
type Drop struct {
	// Reason is the label that the metric kube_ipvs_dropped_packets_total has for it.
	Reason  string `json:"reason"`
	Family  string `json:"family"`
	Packets uint64 `json:"packets"`
	// Port is the Service port whose packets these were; without it they were for any Service.
	Port string `json:"port,omitempty"`
	// Rule is the chain and the rule that counted them.
	Rule string `json:"rule"`
}

// concerning picks the drops that packets to the Services of a story can meet.
func concerning(s *agent.Report, drops []Drop) []Drop {
	if s == nil {
		return nil
	}
	may := map[dataplane.DropReason]bool{dataplane.DropInvalid: true}
	for i := range s.Services {
		for _, f := range s.Services[i].Frontends {
			may[dataplane.DropNoLocal] = may[dataplane.DropNoLocal] || f.NoLocal
			may[dataplane.DropSourceRanges] = may[dataplane.DropSourceRanges] || len(f.SourceRanges) > 0
			may[dataplane.DropNoEndpoints] = may[dataplane.DropNoEndpoints] || f.Backends == 0
			may[dataplane.DropNoService] = may[dataplane.DropNoService] || f.Bind
			may[dataplane.DropScheduler] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(drops), func(d Drop) bool { return d.Port == "" && !may[dataplane.DropReason(d.Reason)] })
}

// drops prints them. A rule that serves all Services proves nothing about one of them.
func (p *page) drops(list []Drop) {
	if len(list) == 0 {
		return
	}
	p.section("Dropped packets", "PACKETS", "FAMILY", "REASON", "OF")
	for _, d := range list {
		of := "all Services together"
		if d.Port != "" {
			of = d.Port
		}
		p.line("  %s\t%s\t%s\t%s", fmt.Sprint(d.Packets), d.Family, d.Reason, of)
	}
}
