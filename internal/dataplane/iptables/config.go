package iptables

import (
	"context"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/announce"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/conntrack"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Config has the facts about the node and the settings for the mode.
type Config struct {
	// Families are the address families to serve.
	Families []model.Family
	// MasqueradeAll rewrites the source of all traffic to cluster IPs.
	MasqueradeAll bool
	Masquerade    netfilter.Masquerade
	// Local tells pods of this node from everybody else.
	Local netfilter.LocalPods
	// Everywhere reports whether NodePorts of a family are served on every address of this machine;
	// otherwise they are on those of model.Host.NodePorts. Nil is nowhere so.
	Everywhere func(model.Family) bool
	// Localhost has NodePorts answer on IPv4 loopback, too, for this machine itself
	// (iptables.localhostNodePorts); it takes net.ipv4.conf.all.route_localnet.
	Localhost bool
	// Loopback reports whether loopback is among the addresses that are chosen for NodePorts, which
	// may change; nil means always.
	Loopback func() bool
	// Bound reports whether addresses of Services are on a link of this machine, as ipvs mode
	// leaves them; nil means never. The source of a packet from the machine itself to such an
	// address is that address, and an endpoint of another node cannot answer it.
	Bound func() bool
	// DropInvalid drops what connection tracking finds invalid on its way through: such
	// packets pass by DNAT untranslated. Not where tracking is liberal
	// (net.netfilter.nf_conntrack_tcp_be_liberal).
	DropInvalid bool
	// AnnounceTable is the routing table of the routes that announce addresses; 0 announces none.
	AnnounceTable uint32
	// Both: Services come from two sources, and those of files have chains of other names,
	// so that two Services of one name do not share theirs.
	Both bool
}

// localhost reports whether NodePorts are served on loopback now.
func (c Config) localhost() bool { return c.Localhost && (c.Loopback == nil || c.Loopback()) }

// Deps are what the mode drives.
type Deps struct {
	Rules Rules
	// Flows gets the stale flows; it may be nil.
	Flows Flows
	// Tables are those of kube-proxy's nftables mode; nil is a kernel without.
	Tables Tables
	// Announced has the routes that announce addresses; nil is a kernel without any.
	Announced announce.Kernel
	// Tune sets what the mode asks of the kernel (sysctls); nil asks nothing.
	Tune func(ctx context.Context) error
	// Now is the time; nil is time.Now.
	Now func() time.Time
}

// Rules is the part of kernel/rules that the mode uses. List is called by another goroutine
// than the writes, and beside them.
type Rules interface {
	Backend() rules.Backend
	Generation(ctx context.Context) uint64
	List(ctx context.Context) (map[rules.ChainKey]rules.Chain, map[rules.JumpKey]rules.Jump, error)
	Write(ctx context.Context, chains []rules.ChainChange, edits []rules.RuleChange) (chainErrs, ruleErrs []error)
	WriteJumps(ctx context.Context, changes []rules.JumpChange) []error
}

// Flows is the part of kernel/conntrack that the mode uses. It never waits for the kernel.
type Flows interface {
	Order(list ...conntrack.Order)
}

// Tables is the part of kernel/nftables that the mode uses.
type Tables interface {
	List(ctx context.Context) (map[nftables.Key]struct{}, error)
	Delete(ctx context.Context, keys []nftables.Key) []error
}
