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

// The chains that all Services share, with kube-proxy's names.
const (
	chainServices    = "KUBE-SERVICES" // one in nat, one in filter
	chainExternal    = "KUBE-EXTERNAL-SERVICES"
	chainNodePorts   = "KUBE-NODEPORTS" // one in nat, one in filter
	chainFirewall    = "KUBE-PROXY-FIREWALL"
	chainForward     = "KUBE-FORWARD"
	chainPostrouting = "KUBE-POSTROUTING"
	chainMarkMasq    = "KUBE-MARK-MASQ"
	chainCanary      = "KUBE-PROXY-CANARY"
)

// Prefixes of the chains of one Service, as in kube-proxy, all in nat.
const (
	prefixCluster  = "KUBE-SVC-"
	prefixLocal    = "KUBE-SVL-"
	prefixFirewall = "KUBE-FW-"
	prefixExternal = "KUBE-EXT-"
	prefixEndpoint = "KUBE-SEP-"
	prefixOld      = "KUBE-XLB-" // of kube-proxy until 1.23: not used, and in the way
)

var (
	fixedChains = map[string][]string{
		"nat":    {chainServices, chainNodePorts, chainPostrouting, chainMarkMasq, chainCanary},
		"filter": {chainServices, chainExternal, chainNodePorts, chainFirewall, chainForward, chainCanary},
		"mangle": {chainCanary},
	}
	// dispatchChains hold a rule for each frontend.
	dispatchChains = map[string][]string{
		"nat":    {chainServices, chainNodePorts},
		"filter": {chainServices, chainExternal, chainNodePorts, chainFirewall},
	}
	prefixes = []string{prefixCluster, prefixLocal, prefixFirewall, prefixExternal, prefixEndpoint, prefixOld}
)

// OwnedChain tells whether a chain is one of this mode's, by name.
func OwnedChain(k netfilter.ChainKey) bool {
	return slices.Contains(fixedChains[k.Table], k.Name) || ofService(k)
}

// ServiceChain tells whether a chain belongs to one Service, for those who read the kernel without a mode.
func ServiceChain(k netfilter.ChainKey) bool { return ofService(k) }

// ofService tells whether a chain belongs to one Service.
func ofService(k netfilter.ChainKey) bool {
	return k.Table == "nat" && slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(k.Name, p) })
}

// isDispatch tells whether a chain holds a rule for each frontend.
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
