package chains

import "github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"

// The chains of this mode.
const (
	chainServices     = netfilter.ChainServices
	chainPostrouting  = netfilter.ChainPostrouting
	chainNodePort     = netfilter.ChainNodePort
	chainLoadBalancer = netfilter.ChainLoadBalancer
	chainMarkMasq     = netfilter.ChainMarkMasq
	chainForward      = netfilter.ChainForward
	chainFirewall     = netfilter.ChainFirewall
	chainSourceRanges = netfilter.ChainSourceRanges
	chainFilter       = netfilter.ChainFilter
	chainOutFilter    = netfilter.ChainOutFilter
	chainDetour       = netfilter.ChainDetour
	chainDetourTo     = netfilter.ChainDetourTo
	chainDetourSCTP   = netfilter.ChainDetourSCTP
	chainAccept       = netfilter.ChainAccept
	chainDirect       = netfilter.ChainDirect
	chainDirectMSS    = netfilter.ChainDirectMSS
	chainCapture      = netfilter.ChainCapture
)

// Jumps are the jumps to chains of this mode: those of kube-proxy in its order, and our own.
var Jumps = netfilter.Jumps{
	{Table: "nat", Hook: "OUTPUT", Target: chainServices, Comment: "kubernetes service portals"},
	{Table: "nat", Hook: "PREROUTING", Target: chainServices, Comment: "kubernetes service portals"},
	{Table: "nat", Hook: "POSTROUTING", Target: chainPostrouting, Comment: "kubernetes postrouting rules"},
	{Table: "filter", Hook: "FORWARD", Target: chainForward, Comment: "kubernetes forwarding rules"},
	{Table: "filter", Hook: "FORWARD", Target: chainCapture, Comment: "kubernetes captured ports"},
	{Table: "filter", Hook: "INPUT", Target: chainNodePort, Comment: "kubernetes health check rules"},
	{Table: "filter", Hook: "INPUT", Target: chainFirewall, Comment: "kube-proxy firewall rules"},
	{Table: "filter", Hook: "FORWARD", Target: chainFirewall, Comment: "kube-proxy firewall rules"},
	{Table: "filter", Hook: "INPUT", Target: chainFilter, Comment: "kubernetes ipvs access filter"},
	{Table: "filter", Hook: "OUTPUT", Target: chainOutFilter, Comment: "kubernetes ipvs access filter"},
	{Table: "mangle", Hook: "OUTPUT", Target: chainOutFilter, Comment: "kubernetes ipvs access filter"},
	{Table: "mangle", Hook: "PREROUTING", Target: chainDirect, Comment: "kubernetes direct server return"},
	{Table: "mangle", Hook: "FORWARD", Target: chainDirectMSS, Comment: "kubernetes direct server return"},
	{Table: "mangle", Hook: "PREROUTING", Target: chainCapture, Comment: "kubernetes captured ports"},
	{Table: "filter", Hook: "INPUT", Target: chainAccept, Comment: "kubernetes service traffic", Last: true},
}

// Extras are the chains of a family that are there only while some address needs them.
type Extras struct {
	Direct  bool // backends answer from an address themselves
	Capture bool // ports of an address are captured
}

// Has reports whether a chain is wanted. Chains that are no extras always are.
func (e Extras) Has(k netfilter.ChainKey) bool {
	switch {
	case isDirectChain(k):
		return e.Direct
	case isCaptureChain(k):
		return e.Capture
	}
	return true
}

// Optional reports whether a chain has a match that a kernel may lack: nothing waits for it.
func Optional(k netfilter.ChainKey) bool { return isDetourChain(k) || k.Name == chainDirectMSS }
