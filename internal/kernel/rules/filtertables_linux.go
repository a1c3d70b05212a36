package rules

import (
	"bytes"
	"context"
	"fmt"
	"slices"
)

// FilterTables reads the filter tables of both backends, of all programs. For nft it reads the
// requested families; for legacy it reads the loaded tables, because its tools would load a missing
// one. A table that cannot be read has the reason in its Err. It may be called from any goroutine,
// in the network namespace of its thread.
func FilterTables(ctx context.Context, opts Options, nft map[Family]bool) []FilterTable {
	opts = opts.Defaults()
	var out []FilterTable
	for _, b := range []Backend{NFT, Legacy} {
		for _, f := range opts.Families {
			loaded, err := nft[f], error(nil)
			if b == Legacy {
				loaded, err = filterLoaded(opts.Root, f)
			}
			switch {
			case err != nil:
				out = append(out, FilterTable{Family: f, Backend: b, Table: SaveTable{Name: "filter"}, Err: err})
			case loaded:
				out = append(out, readFilter(ctx, opts, f, b))
			}
		}
	}
	return out
}

// LegacyThere reports whether a filter table of legacy may be loaded, whose rules change without
// a new generation of nftables.
func LegacyThere(opts Options) bool {
	opts = opts.Defaults()
	return slices.ContainsFunc([]Family{IPv4, IPv6}, func(f Family) bool {
		loaded, err := filterLoaded(opts.Root, f)
		return loaded || err != nil
	})
}

func filterLoaded(root string, f Family) (bool, error) {
	loaded, err := tablesLoaded(root, f)
	return slices.Contains(loaded, "filter"), err
}

func readFilter(ctx context.Context, opts Options, f Family, b Backend) FilterTable {
	out := FilterTable{Family: f, Backend: b, Table: SaveTable{Name: "filter"}}
	t, err := findTools(ctx, opts.Timeout, f, b)
	if err != nil {
		out.Err = err
		return out
	}
	text, err := run(ctx, opts.Timeout, nil, t.save, "-t", "filter")
	switch {
	case err != nil:
		out.Err = err
		return out
	case bytes.Contains(text, []byte(errIncompatible.Error())):
		out.Err = fmt.Errorf("table filter: %w", errIncompatible)
		return out
	case len(text) > mostFilter:
		out.Err = fmt.Errorf("table filter has %d bytes of rules, more than are judged", len(text))
		return out
	}
	tables, err := ParseSave(bytes.NewReader(text))
	if out.Err = err; err == nil && len(tables) > 0 {
		out.Table = tables[0]
	}
	return out
}

// mostFilter bounds what is parsed, in bytes: some ten thousand rules.
const mostFilter = 1 << 20
