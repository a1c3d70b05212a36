package ipvs

import (
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
)

// What kube-proxy's iptables mode leaves on a node, beyond the chains that both modes have:
// names of chains by table, and prefixes of the chains of a Service and an endpoint.
// They are those that kube-proxy --cleanup deletes. The agent removes these chains, because
// their stale rules would refuse Services that are served now. KUBE-FIREWALL and the canary
// of the kubelet stay.
var (
	iptablesChains = map[string][]string{
		"nat":    {"KUBE-NODEPORTS", "KUBE-PROXY-CANARY"},
		"filter": {"KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-NODEPORTS", "KUBE-PROXY-CANARY"},
		"mangle": {"KUBE-PROXY-CANARY"},
	}
	iptablesPrefixes = []string{"KUBE-SVC-", "KUBE-SVL-", "KUBE-SEP-", "KUBE-FW-", "KUBE-EXT-", "KUBE-XLB-"} // all in nat; the last until 1.23
)

// leftByIPTables tells whether a chain is one of iptables mode alone.
func leftByIPTables(k netfilter.ChainKey) bool {
	return slices.Contains(iptablesChains[k.Table], k.Name) ||
		k.Table == "nat" && slices.ContainsFunc(iptablesPrefixes, func(p string) bool { return strings.HasPrefix(k.Name, p) })
}
