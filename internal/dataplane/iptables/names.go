package iptables

import (
	"crypto/sha256"
	"encoding/base32"
	"net/netip"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// The chains that all Services share.
const (
	chainServices    = netfilter.ChainServices
	chainExternal    = netfilter.ChainExternal
	chainNodePorts   = netfilter.ChainNodePorts
	chainFirewall    = netfilter.ChainFirewall
	chainForward     = netfilter.ChainForward
	chainPostrouting = netfilter.ChainPostrouting
	chainMarkMasq    = netfilter.ChainMarkMasq
)

// Prefixes of the chains of one Service.
const (
	prefixCluster  = netfilter.PrefixCluster
	prefixLocal    = netfilter.PrefixLocal
	prefixFirewall = netfilter.PrefixFirewall
	prefixExternal = netfilter.PrefixExternal
	prefixEndpoint = netfilter.PrefixEndpoint
)

// dispatchChains hold a rule for each frontend.
var dispatchChains = map[string][]string{
	"nat":    {chainServices, chainNodePorts},
	"filter": {chainServices, chainExternal, chainNodePorts, chainFirewall},
}

// isDispatch reports whether a chain holds a rule for each frontend.
func isDispatch(k netfilter.ChainKey) bool { return slices.Contains(dispatchChains[k.Table], k.Name) }

// hashed returns the part of a chain name that identifies the Service port. As in
// kube-proxy, it is the first 16 characters of base32 of SHA-256.
func hashed(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "")))
	return base32.StdEncoding.EncodeToString(sum[:])[:16]
}

// endpointChain names the chain of one endpoint of a Service port.
func endpointChain(name string, p model.Protocol, to netip.AddrPort) string {
	return prefixEndpoint + hashed(name, p.String(), to.String())
}
