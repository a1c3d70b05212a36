package netfilter

import (
	"context"
	"errors"
	"fmt"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// SetMatch is the match of iptables by which rules refer to sets.
const SetMatch = "set"

// IPVSMatch is the match of packets of virtual servers. Its module needs that of IPVS, so the kernel loads both
// for a question about it.
const IPVSMatch = "ipvs"

// MatchFinder returns what rules.Options.Match asks nftables by.
func MatchFinder(tables *nftables.Handle) func(ctx context.Context, f rules.Family, name string) error {
	return func(ctx context.Context, f rules.Family, name string) error {
		err := tables.FindMatch(ctx, f.Table(), name)
		if errors.Is(err, nftables.ErrUnsupported) {
			return fmt.Errorf("%w: %w", rules.ErrUnsupported, err)
		}
		return err
	}
}
