package iptables

import (
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
)

// DropTables are the tables that have rules which drop packets.
func DropTables() []string { return []string{"filter"} }

// DropReasons are those that rules of this mode have.
func DropReasons() []dataplane.DropReason {
	return []dataplane.DropReason{
		dataplane.DropNoEndpoints, dataplane.DropNoLocal, dataplane.DropSourceRanges, dataplane.DropInvalid, dataplane.DropLoopback,
	}
}

// DropOf reports why a rule in a chain drops packets; false: it does not, or is not ours.
func DropOf(k netfilter.ChainKey, l netfilter.Line) (dataplane.Drop, bool) {
	r, refuses := l.Refusal(k.Family)
	if !netfilter.OfIPTables(k) || !refuses {
		return dataplane.Drop{}, false
	}
	why := r.Comment()
	for _, one := range []struct {
		says   string
		reason dataplane.DropReason
	}{
		{noEndpoints, dataplane.DropNoEndpoints},
		{noLocalEndpoints, dataplane.DropNoLocal},
		{notAccepted, dataplane.DropSourceRanges},
	} {
		if port, _, ok := strings.Cut(why, " "+one.says); ok {
			return dataplane.Drop{Reason: one.reason, Port: port}, true
		}
	}
	switch {
	case why == string(localnetComment):
		return dataplane.Drop{Reason: dataplane.DropLoopback}, true
	case r.Has(netfilter.Invalid):
		return dataplane.Drop{Reason: dataplane.DropInvalid}, true
	}
	return dataplane.Drop{}, false
}
