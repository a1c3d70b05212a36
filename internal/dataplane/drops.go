package dataplane

// DropReason is why a rule of ours drops or refuses packets. It is a label of a metric.
type DropReason string

// The reasons.
const (
	// DropNoEndpoints: the frontend has no endpoint. In ipvs mode IPVS itself refuses most of
	// these, and no rule counts them.
	DropNoEndpoints DropReason = "no_endpoints"
	// DropNoLocal: a policy is Local, and no endpoint is on this node.
	DropNoLocal DropReason = "no_local_endpoints"
	// DropSourceRanges: loadBalancerSourceRanges does not admit the client.
	DropSourceRanges DropReason = "source_ranges"
	// DropScheduler: the scheduler of the virtual server is being changed.
	DropScheduler DropReason = "scheduler_change"
	// DropNoService: no Service has this port of a service address.
	DropNoService DropReason = "no_service"
	// DropDetour: the address and port exist for clients that are led there, and one dialled it.
	DropDetour DropReason = "detour"
	// DropInvalid: connection tracking does not know what the packet belongs to.
	DropInvalid DropReason = "invalid"
	// DropLoopback: a neighbour sends to a loopback address.
	DropLoopback DropReason = "loopback"
)

// Drop is what a rule drops.
type Drop struct {
	Reason DropReason
	// Port is the Service port whose packets alone the rule meets, as rules name it; empty
	// where one rule serves all Services.
	Port string
}
