package netfilter

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// proxyTable is the name of the tables of kube-proxy's nftables mode, one of each family
// (pkg/proxy/nftables/proxier.go).
const proxyTable = "kube-proxy"

// ProxyTable is the table of kube-proxy's nftables mode for an address family.
func ProxyTable(f model.Family) nftables.Key {
	family := "ip"
	if f == model.IPv6 {
		family = "ip6"
	}
	return nftables.Key{Family: family, Name: proxyTable}
}

// IsProxyTable reports whether a table is kube-proxy's, of one of the families.
func IsProxyTable(k nftables.Key, families []model.Family) bool {
	return slices.ContainsFunc(families, func(f model.Family) bool { return k == ProxyTable(f) })
}

// NFTables is the part of kernel/nftables that a ProxyTableStore uses.
type NFTables interface {
	List(ctx context.Context) (map[nftables.Key]struct{}, error)
	Delete(ctx context.Context, keys []nftables.Key) []error
}

// ProxyTableStore reads and deletes tables of nftables; none is ever wanted. Nil Tables is a
// kernel without nftables.
type ProxyTableStore struct{ Tables NFTables }

var errNoTables = errors.New("tables of nftables are never written")

// List returns the tables of the whole namespace.
func (s ProxyTableStore) List(ctx context.Context) (map[nftables.Key]struct{}, error) {
	if s.Tables == nil {
		return map[nftables.Key]struct{}{}, nil
	}
	return s.Tables.List(ctx)
}

// Write deletes tables, all at once.
func (s ProxyTableStore) Write(ctx context.Context, changes []delta.Change[nftables.Key, struct{}]) []error {
	keys := make([]nftables.Key, len(changes))
	for i, c := range changes {
		if keys[i] = c.Key; c.Op != delta.Delete {
			return []error{errNoTables}
		}
	}
	return s.Tables.Delete(ctx, keys)
}

// ProxyTableCommand returns what an operator would type to make a change of a table.
func ProxyTableCommand(c delta.Change[nftables.Key, struct{}]) string {
	return "nft " + c.Op.String() + " table " + c.Key.String()
}

// CompareTables orders tables by family and name.
func CompareTables(a, b nftables.Key) int { return strings.Compare(a.Family+a.Name, b.Family+b.Name) }
