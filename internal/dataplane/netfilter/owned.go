package netfilter

import (
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// This file decides whose a chain is. Names are all that tells it, so that a process without
// memory knows: most are kube-proxy's, of its ipvs mode (pkg/proxy/ipvs/proxier.go, v1.37) or
// of its iptables mode (pkg/proxy/iptables/proxier.go).

// The chains that both modes have.
const (
	ChainServices    = "KUBE-SERVICES" // iptables mode has one in nat and one in filter
	ChainPostrouting = "KUBE-POSTROUTING"
	ChainMarkMasq    = "KUBE-MARK-MASQ"
	ChainForward     = "KUBE-FORWARD"
	ChainFirewall    = "KUBE-PROXY-FIREWALL"
)

// The chains of ipvs mode.
const (
	ChainNodePort     = "KUBE-NODE-PORT" // one in nat, one in filter
	ChainLoadBalancer = "KUBE-LOAD-BALANCER"
	ChainSourceRanges = "KUBE-SOURCE-RANGES-FIREWALL"
	ChainFilter       = "KUBE-IPVS-FILTER"
	ChainOutFilter    = "KUBE-IPVS-OUT-FILTER" // one in filter, one of our own in mangle
	// ChainDetour decides who takes a detour, the other two know where to.
	ChainDetour     = "KUBE-DETOUR"
	ChainDetourTo   = "KUBE-DETOUR-TO"
	ChainDetourSCTP = "KUBE-DETOUR-SCTP"
	// ChainAccept is behind the rules of INPUT that packets to Services may meet.
	ChainAccept = "KUBE-IPVS-ACCEPT"
	// ChainDirect is for what comes to addresses from which backends answer themselves, and
	// ChainDirectMSS makes room for a tunnel. They exist while there are such addresses.
	ChainDirect    = "KUBE-DIRECT"
	ChainDirectMSS = "KUBE-DIRECT-MSS"
	// ChainCapture, one in mangle and one in filter, exists while an address has captured ports.
	ChainCapture = "KUBE-CAPTURE"
)

// The chains of iptables mode that all Services share.
const (
	ChainExternal  = "KUBE-EXTERNAL-SERVICES"
	ChainNodePorts = "KUBE-NODEPORTS" // one in nat, one in filter
	ChainCanary    = "KUBE-PROXY-CANARY"
)

// Prefixes of the chains of one Service in iptables mode, all in nat.
const (
	PrefixCluster  = "KUBE-SVC-"
	PrefixLocal    = "KUBE-SVL-"
	PrefixFirewall = "KUBE-FW-"
	PrefixExternal = "KUBE-EXT-"
	PrefixEndpoint = "KUBE-SEP-"
	prefixOld      = "KUBE-XLB-" // of kube-proxy until 1.23: not used, and in the way
)

// servicePrefixes are those of the chains of one Service.
var servicePrefixes = []string{PrefixCluster, PrefixLocal, PrefixFirewall, PrefixExternal, PrefixEndpoint, prefixOld}

// inMode is the set of modes that have a chain.
type inMode uint8

const (
	inIPVS     inMode = 1 << iota // of this agent
	inIPTables                    // of this agent and of kube-proxy
	inProxy                       // ipvs mode of kube-proxy
)

// places has the chains of both modes by table. KUBE-FIREWALL and the canary of the kubelet are
// not among them: the kubelet owns those.
var places = map[string]map[string]inMode{
	"nat": {
		ChainServices: inIPVS | inProxy | inIPTables, ChainPostrouting: inIPVS | inProxy | inIPTables, ChainMarkMasq: inIPVS | inProxy | inIPTables,
		ChainNodePort: inIPVS | inProxy, ChainLoadBalancer: inIPVS | inProxy,
		ChainDetour: inIPVS, ChainDetourTo: inIPVS, ChainDetourSCTP: inIPVS,
		ChainNodePorts: inIPTables, ChainCanary: inIPTables,
	},
	"filter": {
		ChainForward: inIPVS | inProxy | inIPTables, ChainFirewall: inIPVS | inProxy | inIPTables,
		ChainNodePort: inIPVS | inProxy, ChainSourceRanges: inIPVS | inProxy, ChainFilter: inIPVS | inProxy, ChainOutFilter: inIPVS | inProxy,
		ChainAccept: inIPVS, ChainCapture: inIPVS,
		ChainServices: inIPTables, ChainExternal: inIPTables, ChainNodePorts: inIPTables, ChainCanary: inIPTables,
	},
	"mangle": {
		ChainOutFilter: inIPVS, ChainDirect: inIPVS, ChainDirectMSS: inIPVS, ChainCapture: inIPVS,
		ChainCanary: inIPTables,
	},
}

func (m inMode) has(all inMode) bool { return m&all == all }

// Owned reports whether a chain is one of ours, of either mode. That it is one of ours does not
// mean that it is wanted.
func Owned(k ChainKey) bool { return places[k.Table][k.Name] != 0 || OfService(k) }

// OfIPTables reports whether iptables mode has a chain of this name.
func OfIPTables(k ChainKey) bool { return places[k.Table][k.Name].has(inIPTables) || OfService(k) }

// OfService reports whether a chain belongs to one Service, in iptables mode.
func OfService(k ChainKey) bool {
	return k.Table == "nat" && slices.ContainsFunc(servicePrefixes, func(p string) bool { return strings.HasPrefix(k.Name, p) })
}

// OnlyIPTables reports whether a chain is one of iptables mode alone. ipvs mode deletes those,
// like kube-proxy --cleanup: their stale rules would refuse Services that it serves.
func OnlyIPTables(k ChainKey) bool { return OfIPTables(k) && !places[k.Table][k.Name].has(inIPVS) }

// OfBothModes reports whether both modes have a chain of this name.
func OfBothModes(k ChainKey) bool { return places[k.Table][k.Name].has(inIPVS | inIPTables) }

// UnknownToProxy reports whether kube-proxy's ipvs mode has no chain of this name: it would keep
// the chain for ever, as it was at the last moment.
func UnknownToProxy(k ChainKey) bool { return places[k.Table][k.Name] == inIPVS }

// SharedChains lists the chains of a family that iptables mode has for all Services.
func SharedChains(f model.Family) []ChainKey {
	var out []ChainKey
	for table, chains := range places {
		for name, m := range chains {
			if m.has(inIPTables) {
				out = append(out, Key(f, table, name))
			}
		}
	}
	slices.SortFunc(out, rules.ChainKey.Compare)
	return out
}
