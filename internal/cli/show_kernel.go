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
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/wiring"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

const showKernelHelp = `Show what the kernel holds, read from it and not from the agent. Nothing is changed, and no
module of IPVS or of sets is loaded: what is not loaded holds nothing. Rules are those that
the tools of iptables show (--iptables-backend).

OWNER names the Services that a row is for, where an agent runs; kube-ipvs is ours, and of
no Service that is known: an agent that wants none there deletes it (explain calls it orphaned);
foreign is of others, and never touched.`

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
			long:  "ACTIVE connections are established, INACTIVE ones all others that the kernel remembers.",
			example: `  kube-ipvs show kernel servers
  kube-ipvs show kernel servers shop/cart --sort-by -active
  kube-ipvs show kernel servers --vip 10.96.0.10 --watch`,
			table: inspect.KernelServerTable,
			open:  fromKernel((*kernelReader).openServers, (*kernelReader).servers),
		}.command(),
		newShowKernelSets(),
		view[inspect.KernelRuleRow]{
			use: "rules", takes: takesChain, filters: byService | byVIP,
			short: "rules of iptables in our chains, and those that lead there",
			example: `  kube-ipvs show kernel rules
  kube-ipvs show kernel rules KUBE-SERVICES
  kube-ipvs show kernel rules -o json | jq -r '.items[].rule'`,
			table: inspect.KernelRuleTable,
			open:  fromKernel((*kernelReader).openRules, (*kernelReader).rules),
		}.command(),
		view[inspect.KernelAddressRow]{
			use: "addresses", filters: byService | byVIP,
			short: "addresses that this machine answers on, and ranges that are local as a whole",
			long: `Kinds: address; route (a range that is local as a whole, --vip-binding); detached (local to packets alone that come from
elsewhere, for backends that answer themselves), half detached (something of that is missing).`,
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
		long:  "With --namespace, --vip or --backend, which choose entries, name the set.",
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

func (r *kernelReader) openSets(ctx context.Context, _ config.Config) error {
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

func (r *kernelReader) openRules(_ context.Context, c config.Config) error {
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
