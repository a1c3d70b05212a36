package daemon

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/nftrules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/modules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/sysctl"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/wiring"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// openForCleanup opens the subsystems that may hold something of ours. It loads no module: a
// subsystem that the kernel lacks, or has not loaded, holds nothing. Without the tools of iptables
// rules cannot be read, and unseen has the error.
func openForCleanup(ctx context.Context, log *zap.Logger, c config.Config) (k *kernel, unseen, err error) {
	k = &kernel{sysctls: sysctl.New(log, sysctl.Options{RunDir: c.RunDir}), modules: modules.New(log, modules.Options{})}
	if k.link, err = link.New(log, link.Options{}); err != nil {
		return nil, nil, k.close(err)
	}
	if k.tables, err = nftables.New(log, nftables.Options{}); err != nil {
		return nil, nil, k.close(err)
	}
	if k.servers, err = vserver.New(log, vserver.Options{}); err != nil && !errors.Is(err, vserver.ErrUnsupported) {
		return nil, nil, k.close(err)
	}
	if k.sets, err = ipset.Open(ctx, ipset.Options{}); err != nil && !errors.Is(err, ipset.ErrUnsupported) {
		return nil, nil, k.close(err)
	}
	if k.rules, err = wiring.OpenRules(log, c, k.tables, nil); err != nil && !errors.Is(err, rules.ErrUnsupported) {
		return nil, nil, k.close(err)
	}
	if k.rules == nil {
		k.noIPTables = err
	}
	if failed := k.openRemainingNFT(ctx, log); failed != nil {
		return nil, nil, k.close(failed)
	}
	if err != nil && k.backend == nil { // with rules in nftables the node may never have had iptables
		unseen = fmt.Errorf("iptables rules, if any, remain: %w", err)
	}
	return k, unseen, nil
}

// openRemainingNFT opens our tables of nftables where there are some. The mode takes its rows from
// them: the tables were in use last.
func (k *kernel) openRemainingNFT(ctx context.Context, log *zap.Logger) error {
	h, err := nft.New(log, nft.Options{})
	if errors.Is(err, nft.ErrUnsupported) {
		return nil
	} else if err != nil {
		return err
	}
	if there, err := nftrules.Exists(ctx, h); err != nil || !there {
		h.Close()
		return err
	}
	k.nft, k.backend = h, nftrules.New(h)
	return nil
}

// The substitutes hold no rows. Cleanup desires nothing, so nothing is ever written to them, and
// the rest of the interface may be nil.

type noServers struct{ ipvs.Servers }

func (noServers) ListServers(context.Context) (map[vserver.ServerKey]vserver.Server, error) {
	return nil, nil
}

type noSets struct{ ipvs.Sets }

func (noSets) ListSets(context.Context) ([]ipset.Set, error) { return nil, nil }

func (noSets) Stat(context.Context) ([]ipset.Info, error) { return nil, nil }

type noRules struct{ ipvs.Rules }

func (noRules) List(context.Context) (map[rules.ChainKey]rules.Chain, map[rules.JumpKey]rules.Jump, error) {
	return nil, nil, nil
}

func (noRules) Generation(context.Context) uint64 { return 0 }
