package ipvs

import (
	"context"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/announce"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/addresses"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/audit"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/chains"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/destinations"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/servers"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/conntrack"
)

// Deps are the kernel packages that the mode drives. Each writes in batches and converges; none is used
// by two goroutines at once.
type Deps struct {
	Servers Servers
	Sets    Sets
	Rules   Rules
	Links   Links
	// Announced has the routes that announce addresses; nil is a kernel without any.
	Announced announce.Kernel
	// Flows looks for stale flows; nil looks for none.
	Flows Flows
	// Tables are those of kube-proxy's nftables mode; nil is a kernel without nftables.
	Tables Tables
	// Tune sets the sysctls that the mode needs; nil sets none.
	Tune func(ctx context.Context) error
	// KeepTuned sets them again where another program has changed them; nil sets none. It is called once
	// a second, and cheap where nothing has changed.
	KeepTuned func(ctx context.Context) error
	// Pickup has the kernel pick up connections of other nodes; nil leaves it as it is.
	Pickup Pickup
}

// Servers is the part of kernel/vserver that the mode uses.
type Servers interface {
	servers.Kernel
	destinations.Kernel
	audit.Kernel
}

// Sets is the part of ipset that the mode uses.
type Sets = sets.Kernel

// Rules is the part of kernel/rules that the mode uses.
type Rules = chains.Kernel

// Flows is the part of kernel/conntrack that the mode uses. It never waits for the kernel.
type Flows interface {
	Order(list ...conntrack.Order)
}

// Tables is the part of kernel/nftables that the mode uses.
type Tables = netfilter.NFTables

// Links is what the mode needs of kernel/link: the store of addresses and routes, and the device
// under the addresses.
type Links interface {
	addresses.Kernel
	Remove(ctx context.Context) error
}
