package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/nftrules"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/wiring"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

const showKernelHelp = `Show the rows of the kernel. They are read from the kernel, not from the agent. Nothing is
changed, and no kernel module is loaded: a module that is not loaded has no rows. Rules are
those of one iptables backend (--iptables-backend).

OWNER has the Services of a row, if an agent runs. The owner kube-ipvs means that kube-ipvs
wrote the row, but no known Service has it: the agent will delete it (explain calls it
orphaned). The owner foreign is another program, and the row is never touched.`

func newShowKernel() *cobra.Command {
	cmd := &cobra.Command{
		Use: "kernel", Short: "what the kernel holds: servers, sets, rules, addresses", Long: showKernelHelp,
		Example: `  kube-ipvs show kernel servers
  kube-ipvs show kernel sets KUBE-CLUSTER-IP
  kube-ipvs show kernel rules KUBE-SERVICES
  kube-ipvs show kernel addresses -o json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		view[inspect.KernelServerRow]{
			use: "servers", takes: takesService, filters: byService | byVIP | byBackend,
			short: "virtual servers, with a row for each destination and its connections",
			long:  "ACTIVE connections are established, INACTIVE are all others in the connection table.",
			example: `  kube-ipvs show kernel servers
  kube-ipvs show kernel servers shop/cart --sort-by -active
  kube-ipvs show kernel servers --vip 10.96.0.10 --watch`,
			table: inspect.KernelServerTable,
			open:  fromKernel((*kernelReader).openServers, (*kernelReader).servers),
		}.command(),
		newShowKernelSets(),
		view[inspect.KernelRuleRow]{
			use: "rules", takes: takesChain, filters: byService | byVIP,
			short: "rules in the chains of kube-ipvs, and the jumps to them",
			example: `  kube-ipvs show kernel rules
  kube-ipvs show kernel rules KUBE-SERVICES
  kube-ipvs show kernel rules -o json | jq -r '.items[].rule'`,
			table: inspect.KernelRuleTable,
			open:  fromKernel((*kernelReader).openRules, (*kernelReader).rules),
		}.command(),
		view[inspect.KernelAddressRow]{
			use: "addresses", filters: byService | byVIP,
			short: "Service addresses that are local to this machine, and local ranges",
			long: `Kinds: address; route (a range that is made local by one route, --vip-binding); detached (local only for marked packets
from outside, used for direct server return); half detached (one part of a detached address is missing).`,
			example: `  kube-ipvs show kernel addresses
  kube-ipvs show kernel addresses --vip 10.96.0.0/16 --no-headers`,
			table: inspect.KernelAddressTable,
			open:  fromKernel((*kernelReader).openLink, (*kernelReader).addresses),
		}.command(),
	)
	return cmd
}

// newShowKernelSets returns the view of sets, or of the entries of one set.
func newShowKernelSets() *cobra.Command {
	sets := view[inspect.KernelSetRow]{
		use: "sets", takes: takesSet, filters: byService | byVIP | byBackend,
		short: "sets, or the entries of one set",
		long:  "--namespace, --vip and --backend select entries of one set, so the name of a set is required with them.",
		example: `  kube-ipvs show kernel sets
  kube-ipvs show kernel sets KUBE-CLUSTER-IP
  kube-ipvs show kernel sets KUBE-CLUSTER-IP --vip 10.96.0.10`,
		table: inspect.KernelSetTable,
		open:  fromKernel((*kernelReader).openSets, (*kernelReader).sets),
	}
	entries := view[inspect.KernelEntryRow]{
		takes: takesSet, table: inspect.KernelEntryTable, open: fromKernel((*kernelReader).openSets, (*kernelReader).entries),
	}
	return sets.commandOr(entries.run)
}

// kernelReadsWithin bounds one reading of the kernel, of which each call has a deadline of its own.
const kernelReadsWithin = time.Minute

// fromKernel returns the opener of a reader of the kernel.
func fromKernel[R any](open func(*kernelReader, context.Context, config.Config) error, read func(*kernelReader, context.Context, query) (inspect.List[R], error)) func(*cobra.Command, config.Config) (reader[R], error) {
	return func(cmd *cobra.Command, c config.Config) (reader[R], error) {
		r := &kernelReader{agent: inspect.NewClient(c.Socket()), excluded: c.ExcludeCIDRs, notes: cmd.ErrOrStderr()}
		if err := open(r, cmd.Context(), c); err != nil {
			r.close()
			return reader[R]{}, asRoot(err)
		}
		return reader[R]{func(ctx context.Context, q query) (inspect.List[R], error) {
			ctx, cancel := context.WithTimeout(ctx, kernelReadsWithin)
			defer cancel()
			list, err := read(r, ctx, q)
			return list, asRoot(err)
		}, r.close}, nil
	}
}

// asRoot adds the remedy to an error of missing rights.
func asRoot(err error) error {
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w\n  remedy: run as root, or with CAP_NET_ADMIN", err)
	}
	return err
}

func (r *kernelReader) openServers(ctx context.Context, c config.Config) error {
	if err := errors.Join(r.openLink(ctx, c), r.openSets(ctx, c)); err != nil {
		return err
	}
	if !there("/proc/net/ip_vs") {
		r.note("IPVS is not loaded: there are no virtual servers")
		return nil
	}
	h, err := vserver.New(zap.NewNop(), vserver.Options{})
	if err != nil {
		return err
	}
	r.vserver, r.closers = h, append(r.closers, h.Close)
	return nil
}

// openTables opens nftables if our rules and sets are there.
func (r *kernelReader) openTables(ctx context.Context, c config.Config) (opened bool, err error) {
	if r.nft {
		return true, nil
	}
	h, err := tablesInUse(ctx, zap.NewNop(), c)
	if err != nil || h == nil {
		return false, err
	}
	backend := nftrules.New(h)
	r.nft, r.ipset, r.iptables, r.closers = true, backend.Sets(), backend.Rules(), append(r.closers, h.Close)
	return true, nil
}

func (r *kernelReader) openSets(ctx context.Context, c config.Config) error {
	if opened, err := r.openTables(ctx, c); opened || err != nil {
		return err
	}
	if there("/sys/module") && !there("/sys/module/ip_set") {
		r.note("ipset is not loaded: there are no sets")
		return nil
	}
	h, err := ipset.Open(ctx, ipset.Options{})
	if err != nil {
		return err
	}
	r.ipset, r.closers = h, append(r.closers, func() { _ = h.Close() })
	return nil
}

func (r *kernelReader) openRules(ctx context.Context, c config.Config) error {
	if opened, err := r.openTables(ctx, c); opened || err != nil {
		return err
	}
	if c.IPTables == string(rules.Legacy) && !there("/proc/net/ip_tables_names") && !there("/proc/net/ip6_tables_names") {
		r.note("iptables-legacy is not in use: there are no rules")
		return nil
	}
	h, err := wiring.OpenRules(zap.NewNop(), c, nil, nil)
	if errors.Is(err, rules.ErrUnsupported) {
		return fmt.Errorf("%w\n  remedy: %s", err, map[bool]string{true: "install iptables", false: "run as root"}[os.Geteuid() == 0])
	}
	if err != nil {
		return err
	}
	r.iptables = h
	return nil
}

func (r *kernelReader) openLink(_ context.Context, c config.Config) error {
	h, err := link.New(zap.NewNop(), link.Options{DetachMark: link.DetachMark(c.MasqueradeBit)})
	if err != nil {
		return err
	}
	r.link, r.closers = h, append(r.closers, h.Close)
	return nil
}

// there reports whether a file exists. After an error it returns true, so that the use of the file reports it.
func there(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, os.ErrNotExist)
}

// note prints a text once.
func (r *kernelReader) note(text string) {
	if r.said == nil {
		r.said = map[string]bool{}
	}
	if !r.said[text] {
		r.said[text] = true
		fmt.Fprintln(r.notes, "note:", text)
	}
}

// close closes all handles.
func (r *kernelReader) close() {
	for _, f := range r.closers {
		f()
	}
}
