package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/nftrules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft/nfttest"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// This file is the node whose rules and sets are in nftables. Scenarios have the text of iptables and
// ipset. The backend reads rules and sets back in that form.

// Tables are our tables of nftables, of a fake or of a kernel, in the words of iptables and ipset.
type Tables struct{ Kernel nftrules.Kernel }

// NewNFTFakes returns an empty node without iptables and ipset, whose agents read work/manifests.
func NewNFTFakes(work string) *Fakes {
	f := newFakes(onDisk{filepath.Join(work, "manifests")})
	f.kernel.nft = nfttest.New()
	return f
}

// NFT returns the fake of nftables of a node that NewNFTFakes made.
func (f *Fakes) NFT() *nfttest.Fake { return f.kernel.nft }

// nftDeps are those of ipvs mode for one process.
func (k *kernel) nftDeps(t *faultProxy) ipvs.Deps {
	b := nftrules.New(k.nft)
	return ipvs.Deps{
		Servers: tappedServers{k.servers, t}, Sets: tappedSets{b.Sets(), t},
		Rules: tappedModeRules{b.Rules(), t}, Links: tappedLinks{k.links, t},
	}
}

// Text prints the kind "sets" or "rules" as the tools of ipset and iptables would.
func (t Tables) Text(kind string) (string, error) {
	var b strings.Builder
	write := t.writeSets
	if kind == "rules" {
		write = t.writeRules
	}
	if err := write(context.Background(), &b); err != nil {
		return "", err
	}
	return b.String(), nil
}

func (t Tables) writeSets(ctx context.Context, b *strings.Builder) error {
	reader := nftrules.New(t.Kernel).Sets()
	list, err := reader.ListSets(ctx)
	var contents []ipset.Contents
	for _, s := range list {
		found, entries, unread := reader.List(ctx, s.Name)
		err = errors.Join(err, unread)
		contents = append(contents, ipset.Contents{Set: found, Entries: entries})
	}
	return errors.Join(err, ipset.WriteSave(b, contents...))
}

func (t Tables) writeRules(ctx context.Context, b *strings.Builder) error {
	chains, jumps, err := nftrules.New(t.Kernel).Rules().List(ctx)
	if err != nil {
		return err
	}
	found, err := t.Kernel.Read(ctx)
	if err != nil {
		return err
	}
	place := func(j rules.JumpKey) int {
		base := found.Chains[nft.Key{Family: map[rules.Family]nft.Family{rules.IPv4: nft.IPv4, rules.IPv6: nft.IPv6}[j.Family], Name: j.Table + "-" + j.Hook}]
		return slices.IndexFunc(base.Rules, func(r nft.Rule) bool {
			return slices.Contains(r.Statements, nft.Statement(nft.Jump(j.Table+"-"+j.Target)))
		})
	}
	return rules.WriteSave(b, chains, jumps, func(a, b rules.JumpKey) int {
		return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Hook, b.Hook), cmp.Compare(place(a), place(b)))
	})
}

// nftSetTool changes sets as another program would.
type nftSetTool struct{ sets nftrules.Sets }

func (s nftSetTool) Create(ctx context.Context, set ipset.Set) error {
	return errors.Join(s.sets.CreateAll(ctx, set)...)
}

func (s nftSetTool) Flush(ctx context.Context, name string) error {
	set, _, err := s.sets.List(ctx, name)
	if err != nil {
		return err
	}
	return s.sets.Replace(ctx, set, nil)
}

func (s nftSetTool) Destroy(ctx context.Context, name string) error { return s.sets.Destroy(ctx, name) }

func (s nftSetTool) List(ctx context.Context, name string) (ipset.Set, []ipset.Entry, error) {
	return s.sets.List(ctx, name)
}

func (s nftSetTool) Add(ctx context.Context, name string, list ...ipset.Entry) error {
	return s.change(ctx, name, list, ipset.AddEntry)
}

func (s nftSetTool) Delete(ctx context.Context, name string, list ...ipset.Entry) error {
	return s.change(ctx, name, list, ipset.DeleteEntry)
}

func (s nftSetTool) change(ctx context.Context, name string, list []ipset.Entry, op func(ipset.Entry) ipset.Change) error {
	set, _, err := s.sets.List(ctx, name)
	if err != nil {
		return err
	}
	changes := make([]ipset.Change, len(list))
	for i, e := range list {
		changes[i] = op(e)
	}
	return errors.Join(s.sets.Write(ctx, set, changes)...)
}

// Tool does to our tables what ipset, iptables or ip6tables would do to its own objects.
func (t Tables) Tool(args []string) (err error) {
	switch args[0] {
	case "ipset":
		err = setCommand(nftSetTool{nftrules.New(t.Kernel).Sets()}, args[1:])
	case "iptables":
		err = t.iptables(rules.IPv4, args[1:])
	case "ip6tables":
		err = t.iptables(rules.IPv6, args[1:])
	default:
		err = errNotUnderstood
	}
	if err != nil {
		return fmt.Errorf("kernel %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

func (t Tables) iptables(f rules.Family, args []string) error {
	if len(args) < 3 || args[0] != "-t" {
		return errNotUnderstood
	}
	ctx, r := context.Background(), nftrules.New(t.Kernel).Rules()
	chains, jumps, err := r.List(ctx)
	if err != nil {
		return err
	}
	table, verb, rest := args[1], args[2], args[3:]
	if verb == "-F" && len(rest) == 0 {
		return nftFlushTable(ctx, r, f, table, chains, jumps)
	}
	if len(rest) == 0 {
		return errNotUnderstood
	}
	key := rules.ChainKey{Family: f, Table: table, Name: rest[0]}
	have, exists := chains[key]
	change := rules.ChainChange{Op: rules.Update, Key: key}
	line := strings.Join(quoted(rest[1:]), " ")
	switch {
	case verb == "-F" && !exists:
		return nil
	case verb == "-F", verb == "-N":
	case verb == "-X":
		change.Op = rules.Delete
	case verb == "-A":
		change.Chain.Rules = strings.TrimPrefix(have.Rules+"\n"+rules.Canonical(f, line), "\n")
	case verb == "-D":
		lines := strings.Split(have.Rules, "\n")
		at := slices.Index(lines, rules.Canonical(f, line))
		if at < 0 {
			return fmt.Errorf("rule %q: %w", line, rules.ErrNotExist)
		}
		change.Chain.Rules = strings.Join(slices.Delete(lines, at, at+1), "\n")
	default:
		return errNotUnderstood
	}
	return errors.Join(r.WriteChains(ctx, []rules.ChainChange{change})...)
}

func nftFlushTable(ctx context.Context, r nftrules.Rules, f rules.Family, table string, chains map[rules.ChainKey]rules.Chain, jumps map[rules.JumpKey]rules.Jump) error {
	var gone []rules.JumpChange
	for key := range jumps {
		if key.Family == f && key.Table == table {
			gone = append(gone, rules.JumpChange{Op: rules.Delete, Key: key})
		}
	}
	var empty []rules.ChainChange
	for key := range chains {
		if key.Family == f && key.Table == table {
			empty = append(empty, rules.ChainChange{Op: rules.Update, Key: key})
		}
	}
	return errors.Join(append(r.WriteJumps(ctx, gone), r.WriteChains(ctx, empty)...)...)
}
