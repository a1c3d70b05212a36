package iptables

import (
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// DropTables are the tables that have rules which drop packets.
func DropTables() []string { return []string{"filter"} }

// DropReasons are those that rules of this mode have.
func DropReasons() []dataplane.DropReason {
	return []dataplane.DropReason{
		dataplane.DropNoEndpoints, dataplane.DropNoLocal, dataplane.DropSourceRanges, dataplane.DropInvalid, dataplane.DropLoopback,
	}
}

// DropOf says why a rule in a chain drops packets; false: it does not, or is not ours.
func DropOf(k rules.ChainKey, rule string) (dataplane.Drop, bool) {
	if !OwnedChain(k) || !strings.Contains(rule, "-j DROP") && !strings.Contains(rule, "-j REJECT") {
		return dataplane.Drop{}, false
	}
	_, text, _ := strings.Cut(rule, `--comment "`)
	text, _, _ = strings.Cut(text, `"`)
	for _, one := range []struct {
		suffix string
		why    dataplane.DropReason
	}{
		{" has no endpoints", dataplane.DropNoEndpoints},
		{" has no local endpoints", dataplane.DropNoLocal},
		{" traffic not accepted by ", dataplane.DropSourceRanges},
	} {
		if port, _, ok := strings.Cut(text, one.suffix); ok {
			return dataplane.Drop{Reason: one.why, Port: port}, true
		}
	}
	switch {
	case text == "block incoming localnet connections":
		return dataplane.Drop{Reason: dataplane.DropLoopback}, true
	case strings.Contains(rule, "--ctstate INVALID"):
		return dataplane.Drop{Reason: dataplane.DropInvalid}, true
	}
	return dataplane.Drop{}, false
}
