package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/migrate"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/sysctl"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/wiring"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// Cleanup removes everything of ours from the kernel and restores the sysctls, for a successor. A
// failure of one does not stop the other.
func Cleanup(ctx context.Context, c config.Config, to migrate.Target, out io.Writer) error {
	logs, err := newLogger(c)
	if err != nil {
		return err
	}
	defer logs.sink.Close()
	log := logs.Logger
	if err := mayWrite(); err != nil {
		return withPermissionHint(fmt.Errorf("cleanup needs root: %w", err), "CAP_NET_ADMIN and CAP_NET_RAW")
	}
	lock, err := lockNode(log, "cleanup", c.RunDir)
	switch {
	case errors.Is(err, ErrRunning):
		return fmt.Errorf("stop the agent first: %w", err)
	case err != nil:
		return err
	}
	defer lock.Close()
	k, unseen, err := openForCleanup(ctx, log, c)
	if err != nil {
		return err
	}
	defer func() { _ = k.close(nil) }()
	both := model.Families() // also the families that iptables does not serve any more
	mode := k.newMode(log, wiring.Static(c), both[:], nil)
	unknown := knowHost(ctx, mode, k.link)
	stray := k.sweepStray(ctx, log, wiring.RulesOptions(c, k.tables, nil), to, out)
	leaving := mode.HandOver(to)
	if k.backend != nil && (to == migrate.TargetIPTables || to == migrate.TargetNFTables) {
		leaving = givingWay{leaving, func(ctx context.Context) error { return k.sweepTables(ctx, log, out) }}
	}
	swept := errors.Join(stray, sweep(ctx, leaving, out))
	if swept == nil && k.backend != nil {
		swept = k.sweepBothKinds(ctx, log, to, out)
	}
	if to != migrate.TargetNone && swept != nil {
		return errors.Join(unseen, unknown, swept) // remaining rows may carry traffic, and need their sysctls
	}
	if swept == nil {
		wiring.NewNodeClaims(log, c.RunDir).Keep(nil) // nothing is bound any more, so nothing has to be kept off
	}
	return errors.Join(unseen, unknown, swept, restore(ctx, k.sysctls, to, out))
}

// knowHost gives the mode the addresses of this machine, by which it recognizes the servers of
// NodePorts of a stopped kube-proxy.
func knowHost(ctx context.Context, mode dataplane.Dataplane, links agent.HostReader) error {
	local, err := links.Local(ctx)
	if err != nil {
		return fmt.Errorf("virtual servers of NodePorts may remain: read the addresses of this machine: %w", err)
	}
	mode.SetHost(model.Host{Links: local})
	return nil
}

// sweep removes all rows of the mode and prints how many of which kind.
func sweep(ctx context.Context, mode dataplane.Removable, out io.Writer) error {
	removed := 0
	err := dataplane.Sweep(ctx, mode, func(r dataplane.Result) {
		for _, s := range r.Stages {
			removed += s.Deletes
			fmt.Fprintf(out, "removed  %-12s %5d\n", s.Stage, s.Deletes)
		}
	})
	if err == nil && removed == 0 {
		fmt.Fprintln(out, "nothing to remove")
	}
	return err
}

// sweepTables removes our tables of nftables.
func (k *kernel) sweepTables(ctx context.Context, log *zap.Logger, out io.Writer) error {
	rows, err := removeNFT(ctx, log)
	if rows > 0 {
		fmt.Fprintf(out, "removed  %-12s %5d\n", "tables", rows)
	}
	return err
}

// givingWay is a clean-up with rules in nftables for a kube-proxy that rewrites destinations. Our nat
// chains keep the destinations of Services, which overrules the rules of that kube-proxy, too
// (nft.KeepDestination). So the tables go first, all at once, as soon as it is known that it serves.
// If servers or addresses went before, a new connection would have no backend.
type givingWay struct {
	dataplane.Removable
	sweepTables func(context.Context) error
}

// Load reads the kernel, removes the tables, and reads again.
func (g givingWay) Load(ctx context.Context) error {
	if err := g.Removable.Load(ctx); err != nil {
		return err
	}
	if err := g.sweepTables(ctx); err != nil {
		return err
	}
	return g.Removable.Load(ctx)
}

// restore restores the sysctls. The journal does not say which were required, so each refusal is a
// failure. A successor keeps the values that it found at its start, but no other program has
// connections picked up; one without IPVS does not need those that IPVS alone reads.
func restore(ctx context.Context, t *sysctl.Handle, to migrate.Target, out io.Writer) error {
	var restored []sysctl.Result
	switch to {
	case migrate.TargetNone:
		restored = t.Restore(ctx)
	case migrate.TargetIPVS:
		restored = t.RestoreKeys(ctx, sysctl.PickupKeys()...)
	default:
		restored = t.RestoreKeys(ctx, slices.Concat(ipvsAlone, sysctl.PickupKeys(), strictARP)...)
	}
	for _, r := range restored {
		fmt.Fprintln(out, r)
	}
	return sysctl.Failure(restored, sysctl.Wanted)
}

// ipvsAlone are the sysctls that only IPVS reads.
var ipvsAlone = []string{
	"net.ipv4.vs.conntrack", "net.ipv4.vs.conn_reuse_mode", "net.ipv4.vs.expire_nodest_conn", "net.ipv4.vs.expire_quiescent_template",
}

// sweepBothKinds removes our tables of nftables, and the sets of ipset that an agent with another
// --rules left, unless a successor has them.
func (k *kernel) sweepBothKinds(ctx context.Context, log *zap.Logger, to migrate.Target, out io.Writer) error {
	rows, err := removeNFT(ctx, log)
	if to != migrate.TargetIPVS && to != migrate.TargetIPTables {
		n, failed := removeIPSets(ctx)
		if errors.Is(failed, ipset.ErrUnsupported) {
			failed = nil
		}
		rows, err = rows+n, errors.Join(err, failed)
	}
	if rows > 0 {
		fmt.Fprintf(out, "removed  %-12s %5d\n", "other rules", rows)
	}
	return err
}

// sweepStray removes rules of ours from backends other than that of k.rules. It runs before sets
// are removed, which such rules may use. A kube-proxy that continues with iptables may have rules
// there, which look the same as ours.
func (k *kernel) sweepStray(ctx context.Context, log *zap.Logger, o rules.Options, to migrate.Target, out io.Writer) error {
	used := rules.Backend("")
	if k.rules != nil && k.backend == nil {
		used = k.rules.Backend()
	}
	if k.backend != nil && to == migrate.TargetIPVS {
		return nil // the rules of iptables are those of kube-proxy
	}
	handles, err := rules.Beside(ctx, log, o, used)
	errs := []error{err}
	for _, h := range handles {
		if to == migrate.TargetIPTables {
			fmt.Fprintf(out, "left     rules of backend %s, because they may be kube-proxy's\n", h.Backend())
			continue
		}
		found, err := h.Purge(ctx)
		errs = append(errs, err)
		if found > 0 && err == nil {
			fmt.Fprintf(out, "removed  %-12s %5d\n", h.Backend(), found)
		}
	}
	return errors.Join(errs...)
}
