package rulestest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// Client is the behaviour under contract; *rules.Handle and *Fake have it.
type Client interface {
	Backend() rules.Backend
	Families() []rules.Family
	RandomFully(rules.Family) bool
	List(context.Context) (map[rules.ChainKey]rules.Chain, map[rules.JumpKey]rules.Jump, error)
	Write(context.Context, []rules.ChainChange, []rules.RuleChange) (chainErrs, ruleErrs []error)
	WriteChains(context.Context, []rules.ChainChange) []error
	WriteJumps(context.Context, []rules.JumpChange) []error
	JumpsThere(context.Context, []rules.JumpKey) (missing []rules.JumpKey, err error)
	Stamp(f rules.Family, tables ...string) (uint64, error)
	Generation(context.Context) uint64
	Counters() rules.Counters
}

// Host is a fresh node without any rules, its sets (see [Sets]) made.
type Host struct {
	Client Client
	// Load is iptables-restore --noflush, Save is iptables-save, as another
	// program on the node would call them.
	Load func(rules.Family, string) error
	Save func(rules.Family) string
}

// Owned accepts the chains that the contract calls ours.
func Owned(k rules.ChainKey) bool { return strings.HasPrefix(k.Name, "KUBE-") }

// Contract runs every behaviour against fresh hosts whose client was made
// with [Owned].
func Contract(t *testing.T, newHost func(t *testing.T) Host) {
	for _, c := range []struct {
		name string
		test func(*testing.T, *bench)
	}{
		{"every shape of rule reads back as written", testShapes},
		{"chain is added, updated and deleted", testLifecycle},
		{"operations converge whatever was there", testConverge},
		{"new chains refer to each other in any order", testReferences},
		{"referenced chain is not deleted", testDeleteReferenced},
		{"caller and callee go in one batch", testDeleteTogether},
		{"one bad chain among twenty fails alone", testOneBad},
		{"nonsense is refused and hits its own chain only", testRefused},
		{"table that is not there fails its own chains only", testTableMissing},
		{"rules come and go beside others", testRuleChanges},
		{"of equal rules one goes at a time", testRuleTwins},
		{"rules that are not there are deleted in few processes", testRulesMissing},
		{"rules of many chains are looked for at once", testRulesMissingManyChains},
		{"refused rule fails alone", testRulesRefused},
		{"rule that the kernel refuses fails alone", testRuleRefusedByKernel},
		{"chains and rules come and go in one process", testMixedBatch},
		{"rules of a table before a refusal are added once", testTableAppliedOnce},
		{"ended context stops rules", testRulesContext},
		{"bytes are counted", testBytes},
		{"one name in two tables is two chains", testTwoTables},
		{"every shape of rule passes under its hooks", testHooked},
		{"chain of thousands of rules goes in one process", testLongChain},
		{"foreign chains and rules stay byte for byte", testForeign},
		{"chain that is not ours is refused", testNotOurs},
		{"jumps of ipvs mode end up in kube-proxy's order", testJumpOrder},
		{"existing jump is neither doubled nor moved", testJumpTwice},
		{"last jump goes behind foreign rules and stays", testJumpLast},
		{"last jump goes before a rule that ends all", testJumpBeforeEnd},
		{"jump behind REJECT is missing and moved", testJumpUnreached(endOf)},
		{"jump behind DROP is missing and moved", testJumpUnreached(always(`-m comment --comment "nothing else" -j DROP`))},
		{"jump behind ACCEPT is missing and moved", testJumpUnreached(always("-j ACCEPT"))},
		{"a missing jump goes behind those that come first", testJumpBehind},
		{"first jump is not moved by asking for last", testJumpFirstStays},
		{"doubled jump becomes one", testJumpDoubled},
		{"jump with other arguments is replaced", testJumpReplaced},
		{"jump is deleted whatever its arguments", testJumpDeleted},
		{"jump of ours is deleted beside another", testJumpDeletedExactly},
		{"jump to a missing chain fails", testJumpMissing},
		{"jump that its hook does not take fails", testJumpRefused},
		{"one process a family for many jumps", testJumpProcesses},
		{"refused jump among others fails alone", testJumpRefusedAlone},
		{"jumps that are missing are told", testJumpsThere},
		{"printed state replays on another host", func(t *testing.T, b *bench) { testReplay(t, b, newHost) }},
		{"one process a family for a batch", testProcesses},
		{"stamp of a table changes with each change of any program", testStamp},
		{"generation of nftables never comes again", testGeneration},
		{"thousands of chains load", testLoad},
		{"ended context stops everything", testContext},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.test(t, &bench{t: t, Host: newHost(t)})
		})
	}
}

// bench shortens the cases: every call must work unless stated.
type bench struct {
	Host
	t *testing.T
}

func (b *bench) write(op rules.Op, chains map[rules.ChainKey]rules.Chain) {
	b.t.Helper()
	for _, err := range b.Client.WriteChains(b.t.Context(), Changes(op, chains)) {
		if err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *bench) jump(op rules.Op, key rules.JumpKey, args string) {
	b.t.Helper()
	change := []rules.JumpChange{{Op: op, Key: key, Jump: rules.Jump{Args: args}}}
	if errs := b.Client.WriteJumps(b.t.Context(), change); errs != nil {
		b.t.Fatal(errs)
	}
}

func (b *bench) list() (map[rules.ChainKey]rules.Chain, map[rules.JumpKey]rules.Jump) {
	b.t.Helper()
	chains, jumps, err := b.Client.List(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return chains, jumps
}

func (b *bench) wantChains(want map[rules.ChainKey]rules.Chain) {
	b.t.Helper()
	got, _ := b.list()
	if diff := cmp.Diff(want, got); diff != "" {
		b.t.Fatalf("chains (-want +got):\n%s", diff)
	}
}

func (b *bench) wantJumps(want map[rules.JumpKey]rules.Jump) {
	b.t.Helper()
	_, got := b.list()
	if diff := cmp.Diff(want, got); diff != "" {
		b.t.Fatalf("jumps (-want +got):\n%s", diff)
	}
}

// wantHook compares the rules of a built-in chain as any tool shows them.
func (b *bench) wantHook(f rules.Family, table, hook string, want ...string) {
	b.t.Helper()
	tables, err := rules.ParseSave(strings.NewReader(b.Save(f)))
	if err != nil {
		b.t.Fatal(err)
	}
	var got []string
	for _, t := range tables {
		for _, c := range t.Chains {
			if t.Name == table && c.Name == hook {
				got = append(got, c.Rules...)
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		b.t.Fatalf("%s %s %s (-want +got):\n%s", f, table, hook, diff)
	}
}

func (b *bench) wantError(errs []error, row int, want error) {
	b.t.Helper()
	if row >= len(errs) || !errors.Is(errs[row], want) {
		b.t.Fatalf("row %d of %v: want %v", row, errs, want)
	}
}

// Changes makes one change of each chain, in the order of the keys.
func Changes(op rules.Op, chains map[rules.ChainKey]rules.Chain) []rules.ChainChange {
	var out []rules.ChainChange
	for k, c := range chains {
		out = append(out, rules.ChainChange{Op: op, Key: k, Chain: c})
	}
	slices.SortFunc(out, func(a, b rules.ChainChange) int { return a.Key.Compare(b.Key) })
	return out
}

// nat is the key of a chain in table nat.
func nat(f rules.Family, format string, args ...any) rules.ChainKey {
	return rules.ChainKey{Family: f, Table: "nat", Name: fmt.Sprintf(format, args...)}
}
