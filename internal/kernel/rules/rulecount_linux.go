package rules

import "context"

// CountRules counts the rules of each backend, of all programs: a packet passes those of both. Tables
// of legacy that are not loaded are not loaded for it, and tools that are missing or fail count as
// no rules.
func CountRules(ctx context.Context, opts Options) map[Backend]int {
	opts = opts.Defaults()
	count := map[Backend]int{}
	for _, b := range []Backend{NFT, Legacy} {
		count[b] = readContent(ctx, opts, b).rules
	}
	return count
}
