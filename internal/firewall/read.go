package firewall

import (
	"context"
	"errors"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/printable"
)

// Reader reads the filters of all programs, those of kube-ipvs included.
type Reader struct {
	// NFT lists the filters of nftables.
	NFT func(context.Context) ([]nftables.Filter, error)
	// Save returns the filter tables of iptables: those of legacy, and those of nft for the given
	// families.
	Save func(ctx context.Context, nft map[rules.Family]bool) []rules.FilterTable
	// Generation returns a number that each change of a filter changes, and 0 where there is none.
	Generation func(context.Context) uint64
}

// NewReader returns a reader of this network namespace.
func NewReader(tables *nftables.Handle) Reader {
	return Reader{NFT: tables.Filters, Save: func(ctx context.Context, nft map[rules.Family]bool) []rules.FilterTable {
		return rules.FilterTables(ctx, rules.Options{}, nft)
	}, Generation: func(ctx context.Context) uint64 {
		n, err := tables.Generation(ctx)
		if err != nil || rules.LegacyThere(rules.Options{}) {
			return 0
		}
		return uint64(n)
	}}
}

// Read returns all tables. For tables that iptables-nft keeps in nftables it uses the output of
// iptables-save, because nftables does not show matches of xtables.
func (r Reader) Read(ctx context.Context) ([]Table, error) {
	filters, err := r.NFT(ctx)
	if err != nil && !errors.Is(err, nftables.ErrUnsupported) {
		return nil, err
	}
	byText := map[rules.Family]bool{}
	for _, f := range filters {
		if family := familyOfTable(f.Key); family != 0 && f.Unread == "" {
			byText[family] = true
		}
	}
	var out []Table
	for _, s := range r.Save(ctx, byText) {
		t := FromSave(s.Family, s.Backend, s.Table)
		switch {
		case s.Err == nil:
		case s.Backend == rules.NFT:
			byText[s.Family] = false
			continue
		default:
			t.Unread = printable.OneLine(s.Err)
		}
		out = append(out, t)
	}
	for _, f := range filters {
		if !byText[familyOfTable(f.Key)] {
			out = append(out, FromNFT(f))
		}
	}
	return out, ctx.Err()
}

// familyOfTable returns the family of a filter table of iptables-nft, and 0 for another table.
func familyOfTable(k nftables.Key) rules.Family {
	switch k {
	case nftables.Key{Family: "ip", Name: "filter"}:
		return rules.IPv4
	case nftables.Key{Family: "ip6", Name: "filter"}:
		return rules.IPv6
	}
	return 0
}

// CachedReader is a Reader that reads again only after a change. One goroutine uses it at a time.
type CachedReader struct {
	Reader
	generation uint64
	tables     []Table
}

// Read returns all tables.
func (c *CachedReader) Read(ctx context.Context) ([]Table, error) {
	now := c.Generation(ctx)
	if now != 0 && now == c.generation {
		return c.tables, nil
	}
	tables, err := c.Reader.Read(ctx)
	if c.generation = 0; err == nil {
		c.generation, c.tables = now, tables // a change in the meantime leaves another generation
	}
	return tables, err
}
