package chains

import (
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// DropTables are the tables that have rules which drop packets.
func DropTables() []string { return []string{"filter", "mangle"} }

// DropReasons are those that rules of this mode have.
func DropReasons() []dataplane.DropReason {
	return []dataplane.DropReason{
		dataplane.DropNoEndpoints, dataplane.DropNoLocal, dataplane.DropSourceRanges, dataplane.DropScheduler, dataplane.DropNoService, dataplane.DropDetour,
	}
}

// DropOf reports why a rule in a chain drops packets; false: it does not, or is not ours.
func DropOf(k netfilter.ChainKey, l netfilter.Line) (dataplane.Drop, bool) {
	r, refuses := l.Refusal(k.Family)
	if !refuses {
		return dataplane.Drop{}, false
	}
	var why dataplane.DropReason
	switch k.Name {
	case chainSourceRanges:
		why = dataplane.DropSourceRanges
	case chainCapture:
		why = dataplane.DropNoEndpoints
	case chainFilter, chainOutFilter:
		why = dropBySet(k.Family, r)
	}
	return dataplane.Drop{Reason: why}, why != ""
}

// dropReasons are those of rules that match a set, the first that applies.
var dropReasons = []struct {
	set string
	why dataplane.DropReason
}{
	{sets.NoLocal, dataplane.DropNoLocal},
	{sets.Hold, dataplane.DropScheduler},
	{sets.DetourEnd, dataplane.DropDetour},
	{sets.SourceIP, dataplane.DropSourceRanges},
	{sets.SourceCIDR, dataplane.DropSourceRanges},
	{sets.IPVSIPs, dataplane.DropNoService},
}

func dropBySet(f model.Family, r netfilter.Rule) dataplane.DropReason {
	matched := r.Sets()
	for _, d := range dropReasons {
		if slices.Contains(matched, sets.Name(f, d.set)) {
			return d.why
		}
	}
	return ""
}
