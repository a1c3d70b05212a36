package rules

import (
	"context"
	"fmt"
)

// Counted reads the packet counters of the rules in some chains of some tables. It is one
// process for each table and family, which lists that table. It may be called while another
// goroutine writes.
func (h *Handle) Counted(ctx context.Context, tables []string, wanted func(ChainKey) bool) ([]Counted, error) {
	var out []Counted
	for _, f := range h.families {
		for _, table := range tables {
			text, err := h.run(ctx, h.opts.listTimeout(), nil, h.per[f].save, "-c", "-t", table)
			if err != nil {
				return nil, fmt.Errorf("read counters of table %s of family %s: %w", table, f, err)
			}
			out = append(out, ParseCounted(f, string(text), wanted)...)
		}
	}
	return out, nil
}
