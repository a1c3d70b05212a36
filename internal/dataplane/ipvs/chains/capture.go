package chains

import (
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
)

// captureRules mark packets to captured ports, and refuse those to ports without endpoints.
func (c Config) captureRules(w ruleWriter) {
	w.chain("mangle", chainCapture,
		netfilter.If(w.commented(sets.Capture, dstPort)).Then(c.setDetachMark()),
		netfilter.If(w.commented(sets.CaptureIPs, dst), netfilter.Related).Then(c.setDetachMark()),
	)
	list := []netfilter.Rule{
		netfilter.If(netfilter.Not{Match: netfilter.New}).Then(netfilter.Return),
		netfilter.If(w.notIn(sets.CaptureIPs, dst)).Then(netfilter.Return),
	}
	for _, name := range []string{sets.ExternalIP, sets.ExternalIPLocal, sets.LoadBalancer, sets.ClusterIP} {
		list = append(list, netfilter.If(netfilter.New, w.in(name, dstPort)).Then(netfilter.Reject{}))
	}
	w.chain("filter", chainCapture, list...)
}

// isCaptureChain reports whether a chain is there for captured addresses.
func isCaptureChain(k netfilter.ChainKey) bool { return k.Name == chainCapture }
