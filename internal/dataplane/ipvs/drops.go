package ipvs

import (
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
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

// DropOf says why a rule in a chain drops packets; false: it does not, or is not ours.
func DropOf(k rules.ChainKey, rule string) (dataplane.Drop, bool) {
	if !strings.Contains(rule, "-j DROP") && !strings.Contains(rule, "-j REJECT") {
		return dataplane.Drop{}, false
	}
	matches := func(set string) bool {
		return strings.Contains(rule, "--match-set "+setName(model.Family(k.Family), set)+" ")
	}
	var why dataplane.DropReason
	switch k.Name {
	case chainSourceRanges:
		why = dataplane.DropSourceRanges
	case chainCapture:
		why = dataplane.DropNoEndpoints
	case chainFilter, chainOutFilter:
		switch {
		case matches(setNoLocal):
			why = dataplane.DropNoLocal
		case matches(setHold):
			why = dataplane.DropScheduler
		case matches(setDetourEnd):
			why = dataplane.DropDetour
		case matches(setSourceIP) || matches(setSourceCIDR):
			why = dataplane.DropSourceRanges
		case matches(setIPVSIPs):
			why = dataplane.DropNoService
		}
	}
	return dataplane.Drop{Reason: why}, why != ""
}
