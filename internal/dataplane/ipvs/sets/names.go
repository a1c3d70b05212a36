package sets

import (
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/ownership"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// The sets, by their IPv4 names: those of kube-proxy (pkg/proxy/ipvs/ipset.go, v1.37), and
// our own.
const (
	LoopBack          = "KUBE-LOOP-BACK"
	ClusterIP         = ownership.ClusterIP
	ExternalIP        = ownership.ExternalIP
	ExternalIPLocal   = ownership.ExternalIPLocal
	LoadBalancer      = ownership.LoadBalancer
	LoadBalancerLocal = "KUBE-LOAD-BALANCER-LOCAL"
	LoadBalancerFW    = "KUBE-LOAD-BALANCER-FW"
	SourceIP          = "KUBE-LOAD-BALANCER-SOURCE-IP"
	SourceCIDR        = "KUBE-LOAD-BALANCER-SOURCE-CIDR"
	NodePortTCP       = ownership.NodePortTCP
	NodePortUDP       = ownership.NodePortUDP
	NodePortSCTP      = ownership.NodePortSCTP
	NodePortLocalTCP  = "KUBE-NODE-PORT-LOCAL-TCP"
	NodePortLocalUDP  = "KUBE-NODE-PORT-LOCAL-UDP"
	NodePortLocalSCTP = "KUBE-NODE-PORT-LOCAL-SCTP-HASH"
	HealthCheck       = "KUBE-HEALTH-CHECK-NODE-PORT"
	IPVSIPs           = ownership.Addresses
	// NodePortIPs are the addresses of the node on which NodePorts answer, so
	// that a NodePort rule never matches a service address.
	NodePortIPs = ownership.NodePortIPs
	// Detour are the frontends that clients of this node leave for another.
	Detour = "KUBE-DETOUR"
	// DetourEnd are the frontends that exist for detours alone.
	DetourEnd = ownership.DetourEnd
	// NoLocal are the frontends that a Local policy leaves without an endpoint
	// here while there are some elsewhere.
	NoLocal = "KUBE-NO-LOCAL"
	// Hold are the servers whose scheduler changes at the moment. The kernel
	// deletes its entries by itself.
	Hold = "KUBE-HOLD"
	// DirectIPs are the addresses from which backends answer themselves. It is there
	// while there are any.
	DirectIPs = "KUBE-DIRECT-IPS"
	// Capture are the addresses and ports whose packets become local although the address is not bound, CaptureIPs the
	// addresses of those. They are there while there are any.
	Capture    = "KUBE-CAPTURE"
	CaptureIPs = "KUBE-CAPTURE-IPS"
)

// setTypes lists the sets in the order in which entries are added. Entries are deleted in the
// reverse order. Entries that keep clients out come first, then those that let them in. Those that
// make an address ours, and so refuse the rest, come last.
var setTypes = []struct {
	name    string
	kind    ipset.Type
	comment string // comment of the rules that match it
}{
	{LoopBack, ipset.HashIPPortIP, "Kubernetes endpoints dst ip:port, source ip for solving hairpin purpose"},
	{NoLocal, ipset.HashIPPort, "Kubernetes service without an endpoint on this node under a Local policy"},
	{Hold, ipset.HashIPPort, "Kubernetes service whose scheduler changes"},
	{SourceCIDR, ipset.HashIPPortNet, "Kubernetes service load balancer ip + port + source cidr for packet filter purpose"},
	{SourceIP, ipset.HashIPPortIP, "Kubernetes service load balancer ip + port + source IP for packet filter purpose"},
	{LoadBalancerFW, ipset.HashIPPort, "Kubernetes service load balancer ip + port for load balancer with sourceRange"},
	{NodePortLocalTCP, ipset.BitmapPort, "Kubernetes nodeport TCP port with externalTrafficPolicy=local"},
	{NodePortLocalUDP, ipset.BitmapPort, "Kubernetes nodeport UDP port with externalTrafficPolicy=local"},
	{NodePortLocalSCTP, ipset.HashIPPort, "Kubernetes nodeport SCTP port with externalTrafficPolicy=local with type 'hash ip:port'"},
	{LoadBalancerLocal, ipset.HashIPPort, "Kubernetes service load balancer ip + port with externalTrafficPolicy=local"},
	{ExternalIPLocal, ipset.HashIPPort, "Kubernetes service external ip + port with externalTrafficPolicy=local"},
	{Detour, ipset.HashIPPort, "Kubernetes service ip + port that clients of this node use by another way"},
	{DetourEnd, ipset.HashIPPort, "Kubernetes service ip + port that nobody dials"},
	{ClusterIP, ipset.HashIPPort, "Kubernetes service cluster ip + port for masquerade purpose"},
	{ExternalIP, ipset.HashIPPort, "Kubernetes service external ip + port for masquerade and filter purpose"},
	{LoadBalancer, ipset.HashIPPort, "Kubernetes service lb portal"},
	{NodePortIPs, ipset.HashIP, "Kubernetes node addresses that serve nodeports"},
	{NodePortTCP, ipset.BitmapPort, "Kubernetes nodeport TCP port for masquerade purpose"},
	{NodePortUDP, ipset.BitmapPort, "Kubernetes nodeport UDP port for masquerade purpose"},
	{NodePortSCTP, ipset.HashIPPort, "Kubernetes nodeport SCTP port for masquerade purpose with type 'hash ip:port'"},
	{DirectIPs, ipset.HashIP, "Kubernetes service address from which endpoints answer themselves"},
	{Capture, ipset.HashIPPort, "Kubernetes service ip + port of an address that another machine has"},
	{CaptureIPs, ipset.HashIP, "Kubernetes service address that another machine has"},
	{HealthCheck, ipset.BitmapPort, "Kubernetes health check node port"},
	{IPVSIPs, ipset.HashIP, ""},
}

// HoldSeconds is the lifetime of an entry of Hold, after which the kernel deletes it: the
// shortest time that a set of the kernel knows.
const HoldSeconds = 1

// Name is the kernel's name of a set.
func Name(f model.Family, name string) string { return ownership.SetName(f, name) }

// Comment is the comment of the rules that match a set.
func Comment(name string) string {
	for _, t := range setTypes {
		if t.name == name {
			return t.comment
		}
	}
	return ""
}
