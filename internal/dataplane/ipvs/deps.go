package ipvs

import (
	"context"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/addresses"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/destinations"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/servers"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/conntrack"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

// Deps are the kernel rooms the mode drives. Each writes in batches and
// converges; none is used by two goroutines at once.
type Deps struct {
	Servers Servers
	Sets    Sets
	Rules   Rules
	Links   Links
	// Flows is told which flows are stale; nil is nobody.
	Flows Flows
	// Tables are those of kube-proxy's nftables mode; nil is a kernel without.
	Tables Tables
	// Tune sets what the mode asks of the kernel (sysctls); nil asks nothing.
	Tune func(ctx context.Context) error
	// KeepTuned sets it again where another program has changed it; nil sets nothing. It is
	// called once a second, and cheap where nothing has changed.
	KeepTuned func(ctx context.Context) error
}

// Servers is what the mode needs of kernel/vserver.
type Servers interface {
	servers.Kernel
	destinations.Kernel
	BeginSurvey(ctx context.Context) error
	Survey(ctx context.Context, visit func(vserver.ServerKey, vserver.Sketch)) (done bool, err error)
}

// Sets is what the mode needs of ipset.
type Sets = sets.Kernel

// Rules is what the mode needs of kernel/rules.
type Rules interface {
	List(ctx context.Context) (map[rules.ChainKey]rules.Chain, map[rules.JumpKey]rules.Jump, error)
	// Generation is another one after each write by any process; 0 is not known.
	Generation(ctx context.Context) uint64
	WriteChains(ctx context.Context, changes []rules.ChainChange) []error
	WriteJumps(ctx context.Context, changes []rules.JumpChange) []error
}

// Flows is what the mode needs of kernel/conntrack. It never waits for the kernel.
type Flows interface {
	Order(list ...conntrack.Order)
}

// Tables is what the mode needs of kernel/nftables.
type Tables interface {
	List(ctx context.Context) (map[nftables.Key]struct{}, error)
	Delete(ctx context.Context, keys []nftables.Key) []error
}

// Links is what the mode needs of kernel/link: the store of addresses and routes, and the device
// under the addresses.
type Links interface {
	addresses.Kernel
	Remove(ctx context.Context) error
}
