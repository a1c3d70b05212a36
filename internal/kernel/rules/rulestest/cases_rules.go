package rulestest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

const lastRule = `-m comment --comment "the rest" -j RETURN`

// ruleTo is a rule like those that lead to the chain of one Service.
func ruleTo(target string, port int) string {
	return fmt.Sprintf(`-p tcp -m comment --comment "ns1/svc1:p80" -m tcp --dport %d -j %s`, port, target)
}

func addRule(k rules.ChainKey, rule string) rules.RuleChange {
	return rules.RuleChange{Op: rules.Add, Chain: k, Rule: rule}
}

func deleteRule(k rules.ChainKey, rule string) rules.RuleChange {
	return rules.RuleChange{Op: rules.Delete, Chain: k, Rule: rule}
}

// wantWritten fails unless every row was applied, by at most so many processes.
func (b *bench) wantWritten(processes uint64, chains []rules.ChainChange, changes []rules.RuleChange) {
	b.t.Helper()
	before := b.Client.Counters()
	chainErrs, ruleErrs := b.Client.Write(b.t.Context(), chains, changes)
	if chainErrs != nil || ruleErrs != nil {
		b.t.Fatalf("chains %v, rules %v", chainErrs, ruleErrs)
	}
	after := b.Client.Counters()
	if got := after.Restore + after.Save + after.Jump - before.Restore - before.Save - before.Jump; got > processes {
		b.t.Errorf("%d processes, want at most %d", got, processes)
	}
	if got, want := after.Rows-before.Rows, uint64(len(chains)+len(changes)); got != want {
		b.t.Errorf("%d rows counted, want %d", got, want)
	}
}

func rulesOf(list ...string) rules.Chain { return rules.Chain{Rules: strings.Join(list, "\n")} }

func testRuleChanges(_ *testing.T, b *bench) {
	for _, f := range b.Client.Families() {
		services, svc := nat(f, "KUBE-SERVICES"), nat(f, "KUBE-SVC-1")
		state := chainMap{services: rulesOf(ruleTo(svc.Name, 1), ruleTo(svc.Name, 2), lastRule), svc: {Rules: "-j RETURN"}}
		b.write(rules.Add, state)
		b.wantWritten(1, nil, []rules.RuleChange{
			addRule(services, ruleTo(svc.Name, 3)), addRule(services, ruleTo(svc.Name, 4)), deleteRule(services, ruleTo(svc.Name, 1)),
		})
		state[services] = rulesOf(ruleTo(svc.Name, 4), ruleTo(svc.Name, 3), ruleTo(svc.Name, 2), lastRule)
		b.wantChains(state)
		b.wantWritten(1, nil, []rules.RuleChange{deleteRule(services, lastRule), addRule(svc, "")})
		state[services] = rulesOf(ruleTo(svc.Name, 4), ruleTo(svc.Name, 3), ruleTo(svc.Name, 2))
		b.write(rules.Update, chainMap{svc: {Rules: "-j RETURN"}}) // a rule without words reads back as no line
		b.wantChains(state)
		b.write(rules.Delete, state)
	}
}

// testRuleTwins: the tools delete the first of several equal rules.
func testRuleTwins(_ *testing.T, b *bench) {
	for _, f := range b.Client.Families() {
		key := nat(f, "KUBE-A")
		b.write(rules.Add, chainMap{key: rulesOf("-p tcp -j RETURN", "-p udp -j RETURN", "-p tcp -j RETURN")})
		b.wantWritten(1, nil, []rules.RuleChange{deleteRule(key, "-p tcp -j RETURN")})
		b.wantChains(chainMap{key: rulesOf("-p udp -j RETURN", "-p tcp -j RETURN")})
		b.wantWritten(1, nil, []rules.RuleChange{addRule(key, "-p tcp -j RETURN")})
		twice := []rules.RuleChange{deleteRule(key, "-p tcp -j RETURN"), deleteRule(key, "-p tcp -j RETURN"), deleteRule(key, "-p tcp -j RETURN")}
		b.wantWritten(3, nil, twice)
		b.wantChains(chainMap{key: rulesOf("-p udp -j RETURN")})
		b.write(rules.Delete, chainMap{key: {}})
	}
}

// testRulesMissing: one that is not there to be deleted makes the tools refuse
// the batch, and looking for it costs few processes.
func testRulesMissing(_ *testing.T, b *bench) {
	for _, f := range b.Client.Families() {
		one, two := nat(f, "KUBE-ONE"), nat(f, "KUBE-TWO")
		b.write(rules.Add, chainMap{one: rulesOf(ruleTo("RETURN", 1), lastRule), two: rulesOf(lastRule)})
		changes := []rules.RuleChange{addRule(one, ruleTo("RETURN", 7)), deleteRule(one, ruleTo("RETURN", 1))}
		for i := range 50 {
			changes = append(changes, deleteRule(one, ruleTo("RETURN", 100+i)), deleteRule(two, ruleTo("KUBE-NOT-THERE", i)))
		}
		changes = append(changes, deleteRule(nat(f, "KUBE-GONE"), lastRule))
		b.wantWritten(2+4, nil, changes) // the refusal, three chains, what is left; a table for what is ambiguous
		b.wantChains(chainMap{one: rulesOf(ruleTo("RETURN", 7), lastRule), two: rulesOf(lastRule)})
		b.write(rules.Delete, chainMap{one: {}, two: {}})
	}
}

// testRulesMissingManyChains: many chains are listed at once.
func testRulesMissingManyChains(_ *testing.T, b *bench) {
	for _, f := range b.Client.Families() {
		state := chainMap{}
		var changes []rules.RuleChange
		for i := range 40 {
			key := nat(f, "KUBE-%02d", i)
			state[key] = rulesOf(lastRule)
			changes = append(changes, deleteRule(key, "-p tcp -j RETURN"))
		}
		b.write(rules.Add, state)
		b.wantWritten(3, nil, changes)
		b.wantChains(state)
		b.write(rules.Delete, state)
	}
}

func testRulesRefused(t *testing.T, b *bench) {
	for _, f := range b.Client.Families() {
		key, fresh, filter := nat(f, "KUBE-A"), nat(f, "KUBE-B"), outFilter(f, "filter")
		b.write(rules.Add, chainMap{key: rulesOf(lastRule), filter: {}})
		changes := []struct {
			name string
			rules.RuleChange
			want error // nil: written
		}{
			{"good", addRule(key, ruleTo("RETURN", 1)), nil},
			{"missing target", addRule(key, ruleTo("KUBE-NOT-THERE", 2)), rules.ErrNotExist},
			{"missing chain", addRule(nat(f, "KUBE-GONE"), ruleTo("RETURN", 3)), rules.ErrNotExist},
			{"missing chain, once more", addRule(nat(f, "KUBE-GONE"), ruleTo("RETURN", 4)), rules.ErrNotExist},
			{"missing chain, deletion", deleteRule(nat(f, "KUBE-GONE"), ruleTo("RETURN", 3)), nil},
			{"good in another table", addRule(filter, ruleTo("RETURN", 5)), nil},
			{"chain is written whole", addRule(fresh, ruleTo("RETURN", 6)), rules.ErrExist},
			{"chain is written whole, deletion", deleteRule(fresh, ruleTo("RETURN", 6)), rules.ErrExist},
			{"not ours", addRule(nat(f, "PREROUTING"), ruleTo("RETURN", 7)), rules.ErrUnsupported},
			{"not ours, deletion", deleteRule(nat(f, "CNI-A"), ruleTo("RETURN", 7)), rules.ErrUnsupported},
			{"two rules", addRule(key, "-j RETURN\n-j RETURN"), rules.ErrUnsupported},
			{"update", rules.RuleChange{Op: rules.Update, Chain: key, Rule: "-j RETURN"}, rules.ErrUnsupported},
			{"to the new chain", addRule(key, ruleTo(fresh.Name, 8)), nil},
		}
		var rows []rules.RuleChange
		for _, c := range changes {
			rows = append(rows, c.RuleChange)
		}
		chainErrs, ruleErrs := b.Client.Write(t.Context(), Changes(rules.Add, chainMap{fresh: rulesOf("-j RETURN")}), rows)
		if chainErrs != nil || len(ruleErrs) != len(rows) {
			t.Fatalf("chains %v, rules %v", chainErrs, ruleErrs)
		}
		for i, c := range changes {
			if c.want != nil {
				b.wantError(ruleErrs, i, c.want)
			} else if ruleErrs[i] != nil {
				t.Errorf("%s: %v", c.name, ruleErrs[i])
			}
		}
		want := chainMap{
			key: rulesOf(ruleTo(fresh.Name, 8), ruleTo("RETURN", 1), lastRule), fresh: rulesOf("-j RETURN"), filter: rulesOf(ruleTo("RETURN", 5)),
		}
		b.wantChains(want)
		b.write(rules.Delete, want)
	}
}

// testRuleRefusedByKernel: masquerading outside of nat passes the tools.
func testRuleRefusedByKernel(t *testing.T, b *bench) {
	for _, f := range b.Client.Families() {
		key, other := outFilter(f, "filter"), nat(f, "KUBE-A")
		b.write(rules.Add, chainMap{key: rulesOf(lastRule), other: rulesOf(lastRule)})
		var rows []rules.RuleChange
		want := []string{lastRule}
		for i := range 20 {
			rule := ruleTo("ACCEPT", 1+i)
			if i == 7 {
				rule = "-j MASQUERADE"
			} else {
				want = slices.Insert(want, 0, rule)
			}
			rows = append(rows, addRule(key, rule))
		}
		rows = append(rows, addRule(other, ruleTo("RETURN", 1)))
		_, errs := b.Client.Write(t.Context(), nil, rows)
		for i := range rows {
			if len(errs) != len(rows) || (errs[i] != nil) != (i == 7) {
				t.Fatalf("row %d of %v", i, errs)
			}
		}
		state := chainMap{key: rulesOf(want...), other: rulesOf(ruleTo("RETURN", 1), lastRule)}
		b.wantChains(state)
		b.write(rules.Delete, state)
	}
}

// testMixedBatch is what a Service that comes while another goes takes.
func testMixedBatch(_ *testing.T, b *bench) {
	for _, f := range b.Client.Families() {
		services, table := nat(f, "KUBE-SERVICES"), outFilter(f, "filter")
		old, oldSep := nat(f, "KUBE-SVC-OLD"), nat(f, "KUBE-SEP-OLD")
		fresh, freshSep := nat(f, "KUBE-SVC-NEW"), nat(f, "KUBE-SEP-NEW")
		b.write(rules.Add, chainMap{
			services: rulesOf(ruleTo(old.Name, 1), lastRule), table: rulesOf(ruleTo("DROP", 1), lastRule),
			old: rulesOf("-j KUBE-SEP-OLD"), oldSep: rulesOf("-j RETURN"),
		})
		chains := slices.Concat(
			Changes(rules.Delete, chainMap{old: {}, oldSep: {}}),
			Changes(rules.Add, chainMap{fresh: rulesOf("-j KUBE-SEP-NEW"), freshSep: rulesOf("-j RETURN")}))
		b.wantWritten(1, chains, []rules.RuleChange{
			deleteRule(services, ruleTo(old.Name, 1)), addRule(services, ruleTo(fresh.Name, 2)),
			deleteRule(table, ruleTo("DROP", 1)), addRule(table, ruleTo("DROP", 2)),
		})
		want := chainMap{
			services: rulesOf(ruleTo(fresh.Name, 2), lastRule), table: rulesOf(ruleTo("DROP", 2), lastRule),
			fresh: rulesOf("-j KUBE-SEP-NEW"), freshSep: rulesOf("-j RETURN"),
		}
		b.wantChains(want)
		b.write(rules.Delete, want)
	}
}

// testTableAppliedOnce: the tools apply table by table, so a refusal in one must
// not add the rules of another once more.
func testTableAppliedOnce(t *testing.T, b *bench) {
	for _, f := range b.Client.Families() {
		filter, key := outFilter(f, "filter"), nat(f, "KUBE-A")
		b.write(rules.Add, chainMap{filter: rulesOf(lastRule), key: rulesOf(lastRule)})
		_, errs := b.Client.Write(t.Context(), nil, []rules.RuleChange{
			addRule(filter, ruleTo("ACCEPT", 1)), addRule(key, "-j KUBE-NOT-THERE"),
			addRule(key, ruleTo("RETURN", 1)), deleteRule(key, ruleTo("RETURN", 2)), addRule(key, "-j REJECT"),
		})
		for i := range 5 {
			if len(errs) != 5 || (errs[i] != nil) != (i == 1 || i == 4) {
				t.Fatalf("row %d of %v", i, errs)
			}
		}
		want := chainMap{filter: rulesOf(ruleTo("ACCEPT", 1), lastRule), key: rulesOf(ruleTo("RETURN", 1), lastRule)}
		b.wantChains(want)
		b.write(rules.Delete, want)
	}
}

func testRulesContext(t *testing.T, b *bench) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f := b.Client.Families()[0]
	chainErrs, ruleErrs := b.Client.Write(ctx, Changes(rules.Add, chainMap{nat(f, "KUBE-A"): {}}), []rules.RuleChange{addRule(nat(f, "KUBE-B"), lastRule)})
	b.wantError(chainErrs, 0, context.Canceled)
	b.wantError(ruleErrs, 0, context.Canceled)
	b.wantChains(chainMap{})
}

// testBytes: the bytes handed to processes are counted.
func testBytes(_ *testing.T, b *bench) {
	for _, f := range b.Client.Families() {
		key := nat(f, "KUBE-A")
		b.write(rules.Add, chainMap{key: rulesOf(lastRule)})
		before := b.Client.Counters().Bytes
		b.wantWritten(1, nil, []rules.RuleChange{addRule(key, "-j RETURN")})
		if got, want := b.Client.Counters().Bytes-before, uint64(len("*nat\n-I KUBE-A -j RETURN\nCOMMIT\n")); got != want {
			b.t.Errorf("%d bytes counted, want %d", got, want)
		}
		b.write(rules.Delete, chainMap{key: {}})
	}
}
