package ipvs

import (
	"context"
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// Deps are the kernel rooms the mode drives. Each writes in batches and
// converges; none is used by two goroutines at once.
type Deps struct {
	Servers Servers
	Sets    Sets
	Rules   Rules
	Links   Links
	Tuner   Tuner
}

// Servers is what the mode needs of kernel/vserver.
type Servers interface {
	ListServers(ctx context.Context) (map[vserver.ServerKey]vserver.Server, error)
	GetServers(ctx context.Context, keys []vserver.ServerKey) (map[vserver.ServerKey]vserver.Server, error)
	ListDestinations(ctx context.Context, k vserver.ServerKey) (map[vserver.DestinationKey]vserver.Destination, error)
	WriteServers(ctx context.Context, changes []vserver.ServerChange) []error
	WriteDestinations(ctx context.Context, changes []vserver.DestinationChange) []error
}

// Sets is what the mode needs of ipset.
type Sets interface {
	ListSets(ctx context.Context) ([]ipset.Set, error)
	List(ctx context.Context, name string) (ipset.Set, []ipset.Entry, error)
	Create(ctx context.Context, s ipset.Set) error
	Replace(ctx context.Context, s ipset.Set, entries []ipset.Entry) error
	Destroy(ctx context.Context, name string) error
	Write(ctx context.Context, s ipset.Set, changes []ipset.Change) []error
}

// Rules is what the mode needs of kernel/rules.
type Rules interface {
	List(ctx context.Context) (map[rules.ChainKey]rules.Chain, map[rules.JumpKey]rules.Jump, error)
	WriteChains(ctx context.Context, changes []rules.ChainChange) []error
	WriteJumps(ctx context.Context, changes []rules.JumpChange) []error
}

// Links is what the mode needs of kernel/link. It is the address table's store
// and the device under it.
type Links interface {
	Ensure(ctx context.Context) (created bool, err error)
	List(ctx context.Context) (map[netip.Addr]struct{}, error)
	Bind(ctx context.Context, addrs []netip.Addr) []error
	Unbind(ctx context.Context, addrs []netip.Addr) []error
	Remove(ctx context.Context) error
}

// Tuner sets what the mode asks of the kernel before it starts.
type Tuner interface {
	Tune(ctx context.Context) error
}
