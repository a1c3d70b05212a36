package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/nftrules"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/events"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/rulewatch"
	"github.com/kube-ipvs/kube-ipvs/internal/wiring"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// This file decides where ipvs mode keeps its rules and sets, and removes those that an agent with
// another decision left.

// rulesDecision has the setting --rules, the decision, and the reason for it.
type rulesDecision struct {
	asked config.Rules
	// active is never RulesAuto. It is empty outside of ipvs mode.
	active config.Rules
	// missing is what iptables or ipset lack; nil for nothing.
	missing error
}

// decideRules opens ipset or nftables. noIPTables is why iptables cannot be used, nil where it can.
func decideRules(asked config.Rules, noIPTables error, openIPSet, openNFT func() error) (rulesDecision, error) {
	d := rulesDecision{asked: asked, active: config.RulesIPTables}
	if asked != config.RulesNFTables {
		if d.missing = noIPTables; d.missing == nil {
			d.missing = openIPSet()
		}
		if d.missing == nil || asked == config.RulesIPTables || !lacksRules(d.missing) {
			return d, d.missing
		}
	}
	d.active = config.RulesNFTables
	if err := openNFT(); err != nil {
		return d, errors.Join(d.missing, fmt.Errorf("rules cannot be in nftables: %w", err))
	}
	return d, nil
}

// lacksRules reports whether err means that the kernel or the node lacks iptables or ipset.
func lacksRules(err error) bool {
	return errors.Is(err, rules.ErrUnsupported) || errors.Is(err, ipset.ErrUnsupported)
}

// reason reports why the rules are where they are.
func (d rulesDecision) reason() string {
	switch {
	case d.active == "":
		return ""
	case d.asked != config.RulesAuto:
		return "--rules=" + string(d.asked)
	case d.missing != nil:
		what, _, _ := strings.Cut(d.missing.Error(), "\n  remedy:") // without the remedy, which is not needed
		return strings.ReplaceAll(what, "\n", "; ")
	}
	return "the kernel and the tools have iptables and ipset"
}

// report logs where the rules are, and sends an Event where auto had to use nftables.
func (d rulesDecision) report(log *zap.Logger, to *events.Recorder) {
	if d.active == "" {
		return
	}
	log.Info("rules and sets are in "+string(d.active), zap.String("rules", string(d.active)), zap.String("reason", d.reason()))
	if d.missing != nil && to != nil {
		to.Node(events.RulesInNFTables, "rules and sets are in nftables, because this node lacks iptables or ipset: "+d.reason())
	}
}

// openRuleStore opens what holds the rules and sets of ipvs mode.
func (k *kernel) openRuleStore(ctx context.Context, log *zap.Logger, c config.Config) (err error) {
	k.ruleStore, err = decideRules(c.Rules, k.noIPTables, func() error { return k.openIPSet(ctx, log) },
		func() error { return k.openNFT(ctx, log) })
	return err
}

// openIPSet opens ipset, if rules of iptables can refer to its sets.
func (k *kernel) openIPSet(ctx context.Context, log *zap.Logger) (err error) {
	if k.sets, err = ipset.Open(ctx, ipset.Options{Called: k.calls.of("ipset")}); err != nil {
		return k.withModuleHint("ip_set", err)
	}
	if err = setMatchMissing(k.rules.FindMatch(ctx, netfilter.SetMatch), log); err != nil {
		err = errors.Join(k.withModuleHint("xt_set", err), k.sets.Close())
		k.sets = nil
	}
	return err
}

// setMatchMissing returns an error if err means that the kernel lacks the match of sets. Another error
// does not say so, and iptables is used as without the question.
func setMatchMissing(err error, log *zap.Logger) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, rules.ErrUnsupported):
		return fmt.Errorf("rules of iptables cannot refer to sets of ipset: %w: %w", ipset.ErrUnsupported, err)
	}
	log.Warn("the kernel does not say whether rules of iptables can refer to sets, iptables is used", zap.Error(err))
	return nil
}

// openNFT opens nftables, and tries whether the kernel takes a table.
func (k *kernel) openNFT(ctx context.Context, log *zap.Logger) error {
	h, err := nft.New(log, nft.Options{Called: k.calls.of("nft")})
	if err != nil {
		return k.withModuleHint("nf_tables", err)
	}
	var trial nft.Pass
	for _, f := range nft.Families() {
		trial.Tables = append(trial.Tables, nft.TableChange{Op: nft.Add, Family: f})
	}
	if err := h.Check(ctx, trial).Tables; err != nil && err[0] != nil {
		h.Close()
		return k.withModuleHint("nf_tables", err[0])
	}
	k.nft, k.backend = h, nftrules.New(h)
	return nil
}

// families are those that the rules can serve on this node.
func (k *kernel) families() []model.Family {
	if k.backend != nil {
		return rules.UsableFamilies()
	}
	return wiring.Families(k.rules)
}

// iptablesBackend is the backend of iptables in use, empty where none is.
func (k *kernel) iptablesBackend() rules.Backend {
	if k.rules == nil || k.backend != nil {
		return ""
	}
	return k.rules.Backend()
}

// adoptSets copies the sets that an agent with another --rules left. They say which virtual servers
// are ours, and the new rules refer to them at once. Rules and sets of the other kind stay until the
// new ones are in place.
func (k *kernel) adoptSets(ctx context.Context, log *zap.Logger) error {
	switch {
	case k.backend != nil:
		from, err := ipset.Open(ctx, ipset.Options{})
		if errors.Is(err, ipset.ErrUnsupported) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read the sets of ipset: %w", err)
		}
		defer from.Close()
		return copySets(ctx, log, from, k.backend.Sets())
	case k.sets != nil:
		h, err := nft.New(log, nft.Options{})
		if errors.Is(err, nft.ErrUnsupported) {
			return nil
		} else if err != nil {
			return err
		}
		defer h.Close()
		return copySets(ctx, log, nftrules.New(h).Sets(), k.sets)
	}
	return nil
}

// copySets copies our sets with their entries, if the other side has none of them.
func copySets(ctx context.Context, log *zap.Logger, from, to ipvs.Sets) error {
	there, err := ownSets(ctx, to)
	if err != nil || len(there) > 0 {
		return err
	}
	list, err := ownSets(ctx, from)
	if err != nil || len(list) == 0 {
		return err
	}
	known := map[string]ipset.Set{}
	for _, s := range sets.All() {
		known[s.Name] = s
	}
	entries := 0
	for _, s := range list {
		if s.Timeout > 0 {
			continue // its entries live for a second
		}
		_, members, err := from.List(ctx, s.Name)
		if err == nil && s.Type == known[s.Name].Type {
			entries += len(members)
			err = to.Replace(ctx, known[s.Name], members)
		}
		if err != nil {
			return err
		}
	}
	log.Info("sets of an agent with another --rules adopted", zap.Int("rows", len(list)+entries))
	return nil
}

func ownSets(ctx context.Context, of ipvs.Sets) (out []ipset.Set, err error) {
	all, err := of.ListSets(ctx)
	for _, s := range all {
		if sets.Owned(s.Name) {
			out = append(out, s)
		}
	}
	return out, err
}

// leaveOtherRules removes the rules and sets of an agent with another --rules, or of a kube-proxy,
// when those of this agent are in place.
func (d *daemon) leaveOtherRules(ctx context.Context) error {
	if d.kernel.ruleStore.active == "" {
		return nil
	}
	select { // a removal before everything was written would leave Services without rules
	case <-d.filled:
	case <-ctx.Done():
		return nil
	}
	if !await(ctx, servedPollInterval, func() bool { return d.loop.Condition().Served }) {
		return nil
	}
	remove := func(ctx context.Context) (int, error) { return removeNFT(ctx, d.log) }
	if d.kernel.backend != nil {
		remove = func(ctx context.Context) (int, error) {
			return removeIPTables(ctx, d.log, wiring.RulesOptions(d.live.now(), d.kernel.tables, nil))
		}
	}
	retryUntilDone(ctx, func() bool {
		rows, err := remove(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			d.log.Warn("rules of an agent with another --rules stay, and packets meet them, too; the removal will be tried again", zap.Error(err))
		case rows > 0:
			d.log.Info("rules and sets of an agent with another --rules removed", zap.Int("rows", rows))
		}
		return err == nil
	})
	again := d.otherRulesAgain()
	for await(ctx, periods(d.live.now()).AuditPeriod, func() bool { return d.loop.Condition().Served }) {
		again(ctx)
	}
	return nil
}

// otherRulesAgain returns what looks once an audit period for rules and sets of an agent with another
// --rules that came back, and removes them. It starts a process only if another program uses iptables.
func (d *daemon) otherRulesAgain() func(ctx context.Context) {
	remove := func(ctx context.Context) (int, error) { return removeNFT(ctx, d.log) }
	if d.kernel.backend != nil {
		stray, noSets := rulewatch.NewStrayRules(d.log, d.besideNFT), false
		remove = func(ctx context.Context) (rows int, err error) {
			if stray.Remove(ctx); noSets {
				return 0, nil // a question would have the kernel start modprobe each time
			}
			if rows, err = removeIPSets(ctx); errors.Is(err, ipset.ErrUnsupported) {
				noSets, err = true, nil
			}
			return rows, err
		}
	}
	return func(ctx context.Context) {
		rows, err := remove(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			d.log.Info("rules or sets of an agent with another --rules are back and stay until the next audit", zap.Error(err))
		case rows > 0:
			d.log.Info("rules and sets of an agent with another --rules are removed again", zap.Int("rows", rows))
		}
	}
}

// besideNFT opens the backends of iptables that have tables. A kernel without tables of iptables-nft is not
// asked by its tools.
func (d *daemon) besideNFT(ctx context.Context) ([]*rules.Handle, error) {
	found, err := d.kernel.tables.List(ctx)
	if err != nil {
		return nil, err
	}
	used := rules.NFT
	for _, family := range []model.Family{model.IPv4, model.IPv6} {
		for _, name := range []string{"nat", "filter", "mangle"} {
			if _, there := found[nftables.Key{Family: family.Table(), Name: name}]; there {
				used = ""
			}
		}
	}
	return rules.Beside(ctx, d.log, wiring.RulesOptions(d.live.now(), d.kernel.tables, nil), used)
}

// removeNFT removes our tables of nftables.
func removeNFT(ctx context.Context, log *zap.Logger) (rows int, err error) {
	h, err := nft.New(log, nft.Options{})
	if errors.Is(err, nft.ErrUnsupported) {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	defer h.Close()
	found, err := h.Read(ctx)
	if err != nil || len(found.Tables) == 0 {
		return 0, err
	}
	return len(found.Chains) + len(found.Sets), nftrules.Remove(ctx, h)
}

// removeIPTables removes our rules from every backend of iptables, and then our sets.
func removeIPTables(ctx context.Context, log *zap.Logger, o rules.Options) (rows int, err error) {
	handles, err := rules.Beside(ctx, log, o, "")
	errs := []error{err}
	for _, h := range handles {
		n, err := h.Purge(ctx)
		rows, errs = rows+n, append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return rows, err
	}
	n, err := removeIPSets(ctx)
	if errors.Is(err, ipset.ErrUnsupported) {
		err = nil
	}
	return rows + n, err
}

// removeIPSets destroys our sets of ipset. The error matches ipset.ErrUnsupported if the kernel lacks ipset.
func removeIPSets(ctx context.Context) (rows int, err error) {
	h, err := ipset.Open(ctx, ipset.Options{})
	if err != nil {
		return 0, err
	}
	defer h.Close()
	list, err := ownSets(ctx, h)
	errs := []error{err}
	for _, s := range list {
		errs = append(errs, h.Destroy(ctx, s.Name))
	}
	return len(list), errors.Join(errs...)
}
