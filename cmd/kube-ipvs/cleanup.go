package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/tune"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

const cleanupHelp = `Remove everything of kube-ipvs from this node and nothing else: addresses, virtual
servers, rules, sets and the device, in an order in which nothing is removed while
something refers to it, and rules from both backends of iptables. Sysctls get back
the values they had, but for net.ipv4.ip_forward and nf_conntrack_max, which other
programs may need by now: they are named and stay. No module is loaded for it, and
what this kernel does not have is passed over. What could not be removed is listed,
and the exit status is 1. It needs root, and that no agent runs in this network
namespace. Running it twice is fine.
Names are kube-proxy's: stop a kube-proxy before, for its chains, sets and tables
go, too.

Where a kube-proxy is to carry on, say its mode with --for:

  --for=ipvs      before it starts: all that it takes over stays and goes on carrying,
                  connections included; what only kube-ipvs has goes
  --for=iptables  after it has started: its rules stay, which carry new connections by
                  then; those that IPVS still carries are cut
  --for=nftables  after it has started: its tables stay. A kube-proxy that starts in
                  this mode removes IPVS and rules itself before it writes its own, and
                  so cuts for some seconds; this removes what it leaves`

func newCleanup() *cobra.Command {
	var successor string
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "remove everything of kube-ipvs from this node",
		Long:  cleanupHelp,
		Example: `  kube-ipvs cleanup
  kube-ipvs cleanup --run-dir /run/kube-ipvs
  kube-ipvs cleanup --for=ipvs             # and then kube-proxy --proxy-mode=ipvs`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := check(cmd)
			if err != nil {
				return err
			}
			to, err := ipvs.ParseSuccessor(successor)
			if err != nil {
				return fmt.Errorf("--for: %w", err)
			}
			return asAnswer(cleanup(cmd.Context(), c, to, cmd.OutOrStdout()))
		},
	}
	cmd.Flags().StringVar(&successor, "for", "", "mode of the kube-proxy that carries on: ipvs, iptables or nftables (default: nobody does)")
	choose(cmd, "for", "ipvs", "iptables", "nftables")
	return cmd
}

// cleanup sweeps the kernel and puts the sysctls back. Both are done as far as they
// go: what one cannot remove is no reason to leave the other.
func cleanup(ctx context.Context, c config.Config, to ipvs.Successor, out io.Writer) error {
	logs, err := newLogger(c)
	if err != nil {
		return err
	}
	defer logs.sink.Close()
	log := logs.Logger
	if err := mayWrite(); err != nil {
		return denied(fmt.Errorf("cleanup needs root: %w", err), "CAP_NET_ADMIN and CAP_NET_RAW")
	}
	lock, err := lockNode(log, "cleanup", c.RunDir)
	switch {
	case errors.Is(err, errRunning):
		return fmt.Errorf("stop the agent first: %w", err)
	case err != nil:
		return err
	}
	defer lock.Close()
	k, unseen, err := openRemains(ctx, log, c)
	if err != nil {
		return err
	}
	defer func() { _ = k.close(nil) }()
	both := model.Families() // also those that iptables does not serve any more
	mode := k.newMode(log, fixed(c), both[:], nil)
	unknown := knowHost(ctx, mode, k.link)
	stray := k.sweepStray(ctx, log, rulesOptions(c, k.tables, nil), to, out)
	swept := errors.Join(stray, sweep(ctx, mode.HandOver(to), out))
	if to != ipvs.Nobody && swept != nil {
		return errors.Join(unseen, unknown, swept) // what is left may carry, and needs its sysctls
	}
	if swept == nil {
		newNodeClaims(log, c.RunDir).keep(nil) // nothing is bound any more, so nothing has to be kept off
	}
	return errors.Join(unseen, unknown, swept, restore(ctx, k.tuner, to, out))
}

// knowHost tells the mode the addresses of this machine: a stopped kube-proxy's
// servers of NodePorts are known by them.
func knowHost(ctx context.Context, mode dataplane.Dataplane, links agent.HostReader) error {
	local, err := links.Local(ctx)
	if err != nil {
		return fmt.Errorf("servers of NodePorts may be left: read the addresses of this machine: %w", err)
	}
	mode.SetHost(model.Host{Links: local})
	return nil
}

// sweep removes all rows of the mode and says how many of which kind.
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

// restore puts the sysctls back. The journal does not say which were required, so
// any that is refused is a failure. A successor needs what it found right when it began,
// but for what IPVS alone reads where it does not use that.
func restore(ctx context.Context, t *tune.Tuner, to ipvs.Successor, out io.Writer) error {
	var restored []tune.SysctlResult
	switch to {
	case ipvs.Nobody:
		restored = t.Restore(ctx)
	case ipvs.SuccessorIPVS:
	default:
		restored = t.RestoreKeys(ctx, slices.Concat(ipvsAlone, strictARP)...)
	}
	for _, r := range restored {
		fmt.Fprintln(out, r)
	}
	return tune.Failure(restored, tune.Wanted)
}

// ipvsAlone are the sysctls that only IPVS reads.
var ipvsAlone = []string{
	"net.ipv4.vs.conntrack", "net.ipv4.vs.conn_reuse_mode", "net.ipv4.vs.expire_nodest_conn", "net.ipv4.vs.expire_quiescent_template",
}

// sweepStray removes rules of ours from backends other than that of k.rules. It runs before sets are removed, which such
// rules may use. A kube-proxy that continues with iptables may have rules there, which cannot be told from ours.
func (k *kernel) sweepStray(ctx context.Context, log *zap.Logger, o rules.Options, to ipvs.Successor, out io.Writer) error {
	used := rules.Backend("")
	if k.rules != nil {
		used = k.rules.Backend()
	}
	handles, err := rules.Beside(ctx, log, o, used)
	errs := []error{err}
	for _, h := range handles {
		if to == ipvs.SuccessorIPTables {
			fmt.Fprintf(out, "left     rules of backend %s, for they may be kube-proxy's\n", h.Backend())
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
