package topology

import "net/netip"

// Addresses that the API has to agree with.
const (
	NodeAddr     = "192.168.0.1" // the node's InternalIP
	BackendsAddr = "192.168.0.2" // of the machine that all endpoints are on
	BackendPort  = 8080          // where each endpoint answers
	ClusterCIDR  = "10.244.0.0/16"
)

// Ranges of endpoints, of Services, and of addresses that the pod asks from.
const (
	everyEndpoint = "10.128.0.0/12"
	everyService  = "10.96.0.0/16"
	everySource   = "10.244.128.0/17"
)

// Endpoint is the address of an endpoint by its number, which is below a million.
func Endpoint(i int) netip.Addr {
	n := uint32(10<<24|128<<16) + uint32(i) + 1
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}
