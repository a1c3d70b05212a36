package rulestest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// outFilter is the one chain name that we use in two tables.
func outFilter(f rules.Family, table string) rules.ChainKey {
	return rules.ChainKey{Family: f, Table: table, Name: "KUBE-IPVS-OUT-FILTER"}
}

func testTwoTables(t *testing.T, b *bench) {
	for _, f := range b.Client.Families() {
		filter, mangle := outFilter(f, "filter"), outFilter(f, "mangle")
		b.write(rules.Add, chainMap{filter: {Rules: "-p tcp -j RETURN"}, mangle: {Rules: "-p udp -j DROP"}})
		jump := func(table string) rules.JumpKey {
			return rules.JumpKey{Family: f, Table: table, Hook: "OUTPUT", Target: filter.Name}
		}
		b.jump(rules.Add, jump("filter"), "")
		b.jump(rules.Add, jump("mangle"), "-p udp")
		b.wantJumps(map[rules.JumpKey]rules.Jump{jump("filter"): {}, jump("mangle"): {Args: "-p udp"}})
		b.write(rules.Update, chainMap{mangle: {Rules: "-p sctp -j DROP"}})
		b.wantChains(chainMap{filter: {Rules: "-p tcp -j RETURN"}, mangle: {Rules: "-p sctp -j DROP"}})

		errs := b.Client.WriteChains(t.Context(), Changes(rules.Delete, chainMap{mangle: {}}))
		b.wantError(errs, 0, rules.ErrBusy) // the jump stands
		b.jump(rules.Delete, jump("mangle"), "")
		b.write(rules.Delete, chainMap{mangle: {}})
		b.wantChains(chainMap{filter: {Rules: "-p tcp -j RETURN"}})
		b.wantJumps(map[rules.JumpKey]rules.Jump{jump("filter"): {}})
		b.jump(rules.Delete, jump("filter"), "")
		b.write(rules.Delete, chainMap{filter: {}})
	}
}

// testHooked: the kernel looks at a rule again when a hook comes to lead to
// it, and at a rule written under a hook at once.
func testHooked(_ *testing.T, b *bench) {
	want := Shapes(b.Client.Families()...)
	b.write(rules.Add, want)
	for _, f := range b.Client.Families() {
		b.jumps(ipvsJumps(f)...)
	}
	b.wantChains(want)
	b.write(rules.Update, want)
	b.wantChains(want)
}

func testTableMissing(t *testing.T, b *bench) {
	for _, f := range b.Client.Families() {
		good := chainMap{nat(f, "KUBE-A"): {Rules: "-j RETURN"}, outFilter(f, "filter"): {Rules: "-j RETURN"}}
		changes := append(Changes(rules.Add, good), rules.ChainChange{Op: rules.Add, Key: outFilter(f, "broute")})
		errs := b.Client.WriteChains(t.Context(), changes)
		b.wantError(errs, len(changes)-1, rules.ErrUnsupported)
		if errs[0] != nil || errs[1] != nil {
			t.Errorf("neighbours fail too: %v", errs)
		}
		b.wantChains(good)
		b.write(rules.Delete, good)
	}
}

// testLongChain logs how long the one process takes.
func testLongChain(t *testing.T, b *bench) {
	size := manyChains() * 2 / 3
	for _, f := range b.Client.Families() {
		words := shapeWords[f]
		var text []string
		for i := range size {
			text = append(text, words.Replace(fmt.Sprintf("-d VIP -p tcp -m tcp --dport %d -j DNAT --to-destination EPPORT", 1024+i)))
		}
		state := chainMap{nat(f, "KUBE-DETOUR-TO"): {Rules: strings.Join(text, "\n")}}
		before, start := b.Client.Counters().Restore, time.Now()
		b.write(rules.Add, state)
		written := time.Since(start)
		b.wantChains(state)
		t.Logf("%s: %d rules written in %v, listed in %v", f, size, written, time.Since(start)-written)
		if got := b.Client.Counters().Restore - before; got != 1 {
			t.Errorf("%d restore processes", got)
		}
		b.write(rules.Delete, state)
	}
}

// refused are rules that no kernel and no tool takes, in the given table.
var refused = []struct{ name, table, rule string }{
	{"chain of another table", "mangle", "-j KUBE-IN-NAT"},
	{"chain that is not there", "nat", "-j KUBE-NOT-THERE"},
	{"built-in chain", "nat", "-j PREROUTING"},
	{"drop in nat", "nat", "-j DROP"},
	{"refusal in mangle", "mangle", "-j REJECT"},
	{"refusal in nat", "nat", "-j REJECT"},
	{"translation in filter", "filter", "-p tcp -j DNAT --to-destination EPPORT"},
	{"translation in mangle", "mangle", "-p tcp -j DNAT --to-destination EPPORT"},
	{"masquerade in mangle", "mangle", "-j MASQUERADE"},
	{"translation to nowhere", "nat", "-p tcp -j DNAT"},
	{"translation to a port of no protocol", "nat", "-j DNAT --to-destination EPPORT"},
	{"translation to the other family", "nat", "-p tcp -j DNAT --to-destination OTHERPORT"},
	{"source ports of no protocol", "nat", "-j MASQUERADE --to-ports 32768-65535"},
	{"address of the other family", "nat", "-d OTHER -j RETURN"},
	{"port of no protocol", "nat", "--dport 80 -j RETURN"},
	{"port of another protocol", "nat", "-p udp -m tcp --dport 80 -j RETURN"},
	{"port beyond all", "nat", "-p tcp -m tcp --dport 99999 -j RETURN"},
	{"unknown protocol", "nat", "-p nope -j RETURN"},
	{"unknown match", "nat", "-m nope -j RETURN"},
	{"unknown option", "nat", "-j RETURN --nope"},
	{"unknown state", "nat", "-m conntrack --ctstate NAT -j RETURN"},
	{"unknown type of address", "nat", "-m addrtype --src-type NOWHERE -j RETURN"},
	{"set without direction", "nat", "-m set --match-set SET-CLUSTER-IP -j RETURN"},
	{"set with a wrong direction", "nat", "-m set --match-set SET-CLUSTER-IP dst,port -j RETURN"},
	{"option without value", "nat", "-m comment --comment -j RETURN"},
	{"stray word", "nat", "-j RETURN nope"},
}

// testRefused writes all of them at once between two good chains: each one
// is found and fails alone.
func testRefused(t *testing.T, b *bench) {
	otherFamily := map[rules.Family]*strings.Replacer{
		rules.IPv4: strings.NewReplacer("OTHERPORT", "[fd00::1]:80", "OTHER", "fd00::1/128"),
		rules.IPv6: strings.NewReplacer("OTHERPORT", "10.0.0.1:80", "OTHER", "10.0.0.1/32"),
	}
	for _, f := range b.Client.Families() {
		good := chainMap{nat(f, "KUBE-IN-NAT"): {Rules: "-j RETURN"}, outFilter(f, "mangle"): {Rules: "-j RETURN"}}
		changes := Changes(rules.Add, good)
		for i, r := range refused {
			rule := shapeWords[f].Replace(otherFamily[f].Replace(r.rule))
			changes = append(changes, rules.ChainChange{
				Op:    rules.Add,
				Key:   rules.ChainKey{Family: f, Table: r.table, Name: fmt.Sprintf("KUBE-BAD-%02d", i)},
				Chain: rules.Chain{Rules: "-j RETURN\n" + rule},
			})
		}
		errs := b.Client.WriteChains(t.Context(), changes)
		if len(errs) != len(changes) {
			t.Fatalf("%d errors for %d chains", len(errs), len(changes))
		}
		for i, err := range errs {
			if bad := i >= len(good); bad != (err != nil) {
				t.Errorf("%s %s: %v", changes[i].Key, changes[i].Chain.Rules, err)
			}
		}
		b.wantChains(good)
		b.write(rules.Delete, good)
	}
}

func testStamp(t *testing.T, b *bench) {
	for _, f := range b.Client.Families() {
		if _, err := b.Client.Stamp(f, "broute"); !errors.Is(err, rules.ErrUnsupported) {
			t.Errorf("stamp of no table: %v", err)
		}
		if b.Client.Backend() != rules.Legacy {
			if _, err := b.Client.Stamp(f, "nat"); !errors.Is(err, rules.ErrUnsupported) {
				t.Errorf("stamp of nft: %v", err)
			}
			continue
		}
		last, both := b.stamp(f, "nat"), b.stamp(f, "nat", "filter", "broute")
		if got := b.stamp(f, "nat", "broute"); got != last {
			t.Errorf("stamp %#x with a table that is none, %#x without", got, last)
		}
		for _, change := range []struct {
			name string
			do   func()
			new  bool
		}{
			{"nothing", func() {}, false},
			{"a new chain", func() { b.write(rules.Add, chainMap{nat(f, "KUBE-A"): {Rules: "-j RETURN"}}) }, true},
			{"a list", func() { b.list() }, false},
			{"another rule", func() { b.wantWritten(1, nil, []rules.RuleChange{addRule(nat(f, "KUBE-A"), lastRule)}) }, true},
			{"a change of another table", func() { b.write(rules.Add, chainMap{outFilter(f, "filter"): {}}) }, false},
			{"a jump", func() { b.load(f, "*nat\n-A OUTPUT -j KUBE-A\nCOMMIT\n") }, true},
			{"a foreign chain", func() { b.load(f, "*nat\n:CNI-A - [0:0]\nCOMMIT\n") }, true},
		} {
			change.do()
			now := b.stamp(f, "nat")
			if (now != last) != change.new {
				t.Errorf("%s: stamp %#x, was %#x", change.name, now, last)
			}
			now, last = b.stamp(f, "nat", "filter", "broute"), now
			if other := change.name == "a change of another table"; (now != both) != (change.new || other) {
				t.Errorf("%s: stamp of two tables %#x, was %#x", change.name, now, both)
			}
			both = now
		}
	}
}

func (b *bench) stamp(f rules.Family, tables ...string) uint64 {
	b.t.Helper()
	n, err := b.Client.Stamp(f, tables...)
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

func (b *bench) load(f rules.Family, text string) {
	b.t.Helper()
	if err := b.Load(f, text); err != nil {
		b.t.Fatal(err)
	}
}

// A rule that comes, goes and comes again leaves the rules as they were, and another
// generation each time: a reading of one proves nothing about the next.
func testGeneration(t *testing.T, b *bench) {
	f, ctx := b.Client.Families()[0], t.Context()
	if b.Client.Backend() == rules.Legacy {
		if g := b.Client.Generation(ctx); g != 0 {
			t.Errorf("legacy has a generation, %d", g)
		}
		return
	}
	b.write(rules.Add, chainMap{nat(f, "KUBE-A"): {}})
	seen := map[uint64]string{0: "not known"}
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"at first", func() {}},
		{"a rule comes", func() { b.load(f, "*nat\n-A KUBE-A -j RETURN\nCOMMIT\n") }},
		{"it goes", func() { b.load(f, "*nat\n:KUBE-A - [0:0]\nCOMMIT\n") }},
		{"it comes again", func() { b.load(f, "*nat\n-A KUBE-A -j RETURN\nCOMMIT\n") }},
		{"we take it away", func() { b.write(rules.Update, chainMap{nat(f, "KUBE-A"): {}}) }},
	} {
		step.do()
		g := b.Client.Generation(ctx)
		if before, there := seen[g]; there {
			t.Errorf("%s: generation %d, as %s", step.name, g, before)
		}
		seen[g] = step.name
		if b.list(); b.Client.Generation(ctx) != g {
			t.Errorf("%s: reading makes another generation", step.name)
		}
	}
}
