package rulestest

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

const portalsArgs = `-m comment --comment "kubernetes service portals"`

// portals is the jump from a hook of table nat to KUBE-SERVICES.
func portals(f rules.Family, hook string) rules.JumpKey {
	return rules.JumpKey{Family: f, Table: "nat", Hook: hook, Target: "KUBE-SERVICES"}
}

// ipvsJumps are the jumps of kube-proxy's ipvs mode in its order of prepend,
// and the two that we add to them.
func ipvsJumps(f rules.Family) []rules.JumpChange {
	jump := func(table, hook, target, comment string) rules.JumpChange {
		return rules.JumpChange{
			Op:   rules.Add,
			Key:  rules.JumpKey{Family: f, Table: table, Hook: hook, Target: target},
			Jump: rules.Jump{Args: `-m comment --comment "` + comment + `"`},
		}
	}
	return []rules.JumpChange{
		jump("nat", "OUTPUT", "KUBE-SERVICES", "kubernetes service portals"),
		jump("nat", "PREROUTING", "KUBE-SERVICES", "kubernetes service portals"),
		jump("nat", "POSTROUTING", "KUBE-POSTROUTING", "kubernetes postrouting rules"),
		jump("filter", "FORWARD", "KUBE-FORWARD", "kubernetes forwarding rules"),
		jump("filter", "INPUT", "KUBE-NODE-PORT", "kubernetes health check rules"),
		jump("filter", "INPUT", "KUBE-PROXY-FIREWALL", "kube-proxy firewall rules"),
		jump("filter", "FORWARD", "KUBE-PROXY-FIREWALL", "kube-proxy firewall rules"),
		jump("filter", "INPUT", "KUBE-IPVS-FILTER", "kubernetes ipvs access filter"),
		jump("filter", "OUTPUT", "KUBE-IPVS-OUT-FILTER", "kubernetes ipvs access filter"),
		jump("mangle", "OUTPUT", "KUBE-IPVS-OUT-FILTER", "kubernetes ipvs access filter"),
		last(jump("filter", "INPUT", "KUBE-IPVS-ACCEPT", "kubernetes ipvs service traffic")),
	}
}

func last(c rules.JumpChange) rules.JumpChange {
	c.Last = true
	return c
}

func testJumpOrder(t *testing.T, b *bench) {
	b.write(rules.Add, Shapes(b.Client.Families()...))
	want := map[rules.JumpKey]rules.Jump{}
	for _, f := range b.Client.Families() {
		changes := ipvsJumps(f)
		if errs := b.Client.WriteJumps(t.Context(), changes); errs != nil {
			t.Fatal(errs)
		}
		for _, c := range changes {
			want[c.Key] = c.Jump
		}
		b.wantHook(f, "filter", "INPUT",
			`-m comment --comment "kubernetes ipvs access filter" -j KUBE-IPVS-FILTER`,
			`-m comment --comment "kube-proxy firewall rules" -j KUBE-PROXY-FIREWALL`,
			`-m comment --comment "kubernetes health check rules" -j KUBE-NODE-PORT`,
			`-m comment --comment "kubernetes ipvs service traffic" -j KUBE-IPVS-ACCEPT`)
		b.wantHook(f, "filter", "FORWARD",
			`-m comment --comment "kube-proxy firewall rules" -j KUBE-PROXY-FIREWALL`,
			`-m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD`)
		b.wantHook(f, "nat", "PREROUTING", portalsArgs+" -j KUBE-SERVICES")
	}
	b.wantJumps(want)
}

func testJumpTwice(_ *testing.T, b *bench) {
	for _, f := range b.Client.Families() {
		b.write(rules.Add, chainMap{nat(f, "KUBE-SERVICES"): {}, nat(f, "KUBE-OTHER"): {}})
		b.jump(rules.Add, portals(f, "PREROUTING"), portalsArgs)
		other := portals(f, "PREROUTING")
		other.Target = "KUBE-OTHER"
		b.jump(rules.Add, other, "")
		b.jump(rules.Add, portals(f, "PREROUTING"), portalsArgs)
		b.wantHook(f, "nat", "PREROUTING", "-j KUBE-OTHER", portalsArgs+" -j KUBE-SERVICES")
	}
}

func testJumpReplaced(_ *testing.T, b *bench) {
	const old = `-m conntrack --ctstate NEW -m comment --comment "kubernetes service portals"`
	for _, f := range b.Client.Families() {
		b.write(rules.Add, chainMap{nat(f, "KUBE-SERVICES"): {}})
		b.jump(rules.Add, portals(f, "OUTPUT"), old)
		b.wantHook(f, "nat", "OUTPUT", old+" -j KUBE-SERVICES")
		b.jump(rules.Update, portals(f, "OUTPUT"), portalsArgs)
		b.wantHook(f, "nat", "OUTPUT", portalsArgs+" -j KUBE-SERVICES")
	}
}

func testJumpDeleted(t *testing.T, b *bench) {
	for _, f := range b.Client.Families() {
		b.write(rules.Add, chainMap{nat(f, "KUBE-SERVICES"): {}})
		b.jump(rules.Delete, portals(f, "OUTPUT"), "")
		b.jump(rules.Add, portals(f, "OUTPUT"), `-p tcp -m comment --comment "it's \"quoted\""`)
		if err := b.Load(f, "*nat\n-A OUTPUT -j KUBE-SERVICES\nCOMMIT\n"); err != nil {
			t.Fatal(err)
		}
		b.jump(rules.Delete, portals(f, "OUTPUT"), "")
		b.wantHook(f, "nat", "OUTPUT")
	}
}

// testJumpDeletedExactly: another program's jump to the same chain stays.
func testJumpDeletedExactly(_ *testing.T, b *bench) {
	for _, f := range b.Client.Families() {
		b.write(rules.Add, chainMap{nat(f, "KUBE-SERVICES"): {}})
		key := portals(f, "PREROUTING")
		b.jump(rules.Add, key, portalsArgs)
		b.jumps(rules.JumpChange{Op: rules.Delete, Key: key, Jump: rules.Jump{Args: "-p tcp"}, Exact: true})
		b.wantHook(f, "nat", "PREROUTING", portalsArgs+" -j KUBE-SERVICES")
		b.jumps(rules.JumpChange{Op: rules.Delete, Key: key, Jump: rules.Jump{Args: portalsArgs}, Exact: true})
		b.wantHook(f, "nat", "PREROUTING")
	}
}

// acceptJump is the jump that ends INPUT.
func acceptJump(f rules.Family, args string) rules.JumpChange {
	key := rules.JumpKey{Family: f, Table: "filter", Hook: "INPUT", Target: "KUBE-IPVS-ACCEPT"}
	return last(rules.JumpChange{Op: rules.Add, Key: key, Jump: rules.Jump{Args: args}})
}

func (b *bench) jumps(changes ...rules.JumpChange) {
	b.t.Helper()
	if errs := b.Client.WriteJumps(b.t.Context(), changes); errs != nil {
		b.t.Fatal(errs)
	}
}

func testJumpLast(t *testing.T, b *bench) {
	const foreign1, foreign2, ours = "-j cali-INPUT", "-p tcp -m tcp --dport 22 -j ACCEPT", "-j KUBE-IPVS-ACCEPT"
	for _, f := range b.Client.Families() {
		if err := b.Load(f, foreign); err != nil {
			t.Fatal(err)
		}
		b.write(rules.Add, chainMap{{Family: f, Table: "filter", Name: "KUBE-IPVS-ACCEPT"}: {Rules: "-j RETURN"}})
		b.jumps(acceptJump(f, ""))
		b.wantHook(f, "filter", "INPUT", foreign1, foreign2, ours)
		if err := b.Load(f, "*filter\n-A INPUT -p udp -j DROP\nCOMMIT\n"); err != nil {
			t.Fatal(err)
		}
		again := acceptJump(f, "")
		b.jumps(again)
		again.Op, again.Last = rules.Update, false
		b.jumps(again)
		b.wantHook(f, "filter", "INPUT", foreign1, foreign2, ours, "-p udp -j DROP")
		b.jumps(acceptJump(f, "-p tcp"))
		b.wantHook(f, "filter", "INPUT", foreign1, foreign2, "-p udp -j DROP", "-p tcp "+ours)
		b.jump(rules.Delete, again.Key, "")
		b.wantHook(f, "filter", "INPUT", foreign1, foreign2, "-p udp -j DROP")
	}
}

// endOf is how distributions end INPUT (RHEL's /etc/sysconfig/iptables).
func endOf(f rules.Family) string {
	if f == rules.IPv6 {
		return "-j REJECT --reject-with icmp6-adm-prohibited"
	}
	return "-j REJECT --reject-with icmp-host-prohibited"
}

func testJumpBeforeEnd(t *testing.T, b *bench) {
	const foreign1, foreign2, partly, ours = "-j cali-INPUT", "-p tcp -m tcp --dport 22 -j ACCEPT", "-i eth9 -j DROP", "-j KUBE-IPVS-ACCEPT"
	for _, f := range b.Client.Families() {
		end := endOf(f)
		if err := b.Load(f, foreign+"*filter\n-A INPUT "+partly+"\n-A INPUT "+end+"\nCOMMIT\n"); err != nil {
			t.Fatal(err)
		}
		b.write(rules.Add, chainMap{{Family: f, Table: "filter", Name: "KUBE-IPVS-ACCEPT"}: {Rules: "-j RETURN"}})
		b.jumps(acceptJump(f, ""))
		b.wantHook(f, "filter", "INPUT", foreign1, foreign2, partly, ours, end)
		b.jumps(acceptJump(f, ""))
		b.wantHook(f, "filter", "INPUT", foreign1, foreign2, partly, ours, end)
		b.jump(rules.Delete, acceptJump(f, "").Key, "")
		b.wantHook(f, "filter", "INPUT", foreign1, foreign2, partly, end)
	}
}

// always is an end that is the same for both families.
func always(end string) func(rules.Family) string { return func(rules.Family) string { return end } }

func testJumpUnreached(endOf func(rules.Family) string) func(*testing.T, *bench) {
	return func(t *testing.T, b *bench) {
		for _, f := range b.Client.Families() {
			end, accept := endOf(f), acceptJump(f, "")
			front := rules.JumpChange{Op: rules.Add, Key: accept.Key}
			front.Key.Target = "KUBE-PROXY-FIREWALL"
			for _, name := range []string{"KUBE-IPVS-ACCEPT", "KUBE-PROXY-FIREWALL"} {
				b.write(rules.Add, chainMap{{Family: f, Table: "filter", Name: name}: {Rules: "-j RETURN"}})
			}
			if err := b.Load(f, "*filter\n-A INPUT "+end+"\n-A INPUT -j KUBE-IPVS-ACCEPT\n-A INPUT -j KUBE-PROXY-FIREWALL\nCOMMIT\n"); err != nil {
				t.Fatal(err)
			}
			b.wantMissing([]rules.JumpKey{accept.Key, front.Key}, accept.Key, front.Key)
			_, jumps := b.list()
			for _, key := range []rules.JumpKey{accept.Key, front.Key} {
				if _, there := jumps[key]; there {
					t.Errorf("behind %q %s counts as there", end, key)
				}
			}
			b.jumps(front, accept)
			b.wantHook(f, "filter", "INPUT", "-j KUBE-PROXY-FIREWALL", "-j KUBE-IPVS-ACCEPT", end)
			b.wantMissing([]rules.JumpKey{accept.Key, front.Key})
			if err := b.Load(f, "*filter\n-A INPUT -j KUBE-IPVS-ACCEPT\nCOMMIT\n"); err != nil { // a second one, out of reach
				t.Fatal(err)
			}
			b.jumps(accept)
			b.wantHook(f, "filter", "INPUT", "-j KUBE-PROXY-FIREWALL", "-j KUBE-IPVS-ACCEPT", end)
		}
	}
}

func testJumpBehind(t *testing.T, b *bench) {
	for _, f := range b.Client.Families() {
		if err := b.Load(f, foreign); err != nil {
			t.Fatal(err)
		}
		names := []string{"KUBE-NODE-PORT", "KUBE-PROXY-FIREWALL", "KUBE-IPVS-FILTER"} // from below to the top
		var changes []rules.JumpChange
		for i, name := range names {
			key := rules.JumpKey{Family: f, Table: "filter", Hook: "INPUT", Target: name}
			b.write(rules.Add, chainMap{{Family: f, Table: "filter", Name: name}: {}})
			changes = append(changes, rules.JumpChange{Op: rules.Add, Key: key, Behind: names[i+1:]})
		}
		want := []string{"-j KUBE-IPVS-FILTER", "-j KUBE-PROXY-FIREWALL", "-j KUBE-NODE-PORT", "-j cali-INPUT", "-p tcp -m tcp --dport 22 -j ACCEPT"}
		b.jumps(changes[2], changes[0], changes[1])
		b.wantHook(f, "filter", "INPUT", want...)
		for _, c := range changes {
			b.jump(rules.Delete, c.Key, "")
			b.jumps(c)
			b.wantHook(f, "filter", "INPUT", want...)
		}
	}
}

func testJumpFirstStays(_ *testing.T, b *bench) {
	for _, f := range b.Client.Families() {
		accept, other := acceptJump(f, ""), acceptJump(f, "")
		other.Key.Target = "KUBE-OTHER"
		for _, name := range []string{"KUBE-IPVS-ACCEPT", "KUBE-OTHER"} {
			b.write(rules.Add, chainMap{{Family: f, Table: "filter", Name: name}: {}})
		}
		first := accept
		first.Last = false
		b.jumps(first, other, accept)
		b.wantHook(f, "filter", "INPUT", "-j KUBE-IPVS-ACCEPT", "-j KUBE-OTHER")
	}
}

// testJumpDoubled: the tools delete the first of several equal rules.
func testJumpDoubled(t *testing.T, b *bench) {
	for _, f := range b.Client.Families() {
		b.write(rules.Add, chainMap{nat(f, "KUBE-SERVICES"): {}})
		const twice = "*nat\n-A OUTPUT -j KUBE-SERVICES\n-A OUTPUT -p tcp -j RETURN\n-A OUTPUT -j KUBE-SERVICES\nCOMMIT\n"
		if err := b.Load(f, twice); err != nil {
			t.Fatal(err)
		}
		b.jump(rules.Add, portals(f, "OUTPUT"), "")
		b.wantHook(f, "nat", "OUTPUT", "-p tcp -j RETURN", "-j KUBE-SERVICES")
	}
}

func testJumpMissing(t *testing.T, b *bench) {
	for _, f := range b.Client.Families() {
		errs := b.Client.WriteJumps(t.Context(), []rules.JumpChange{{Op: rules.Add, Key: portals(f, "OUTPUT")}})
		b.wantError(errs, 0, rules.ErrNotExist)
	}
}

func testJumpRefused(t *testing.T, b *bench) {
	for _, f := range b.Client.Families() {
		b.write(rules.Add, chainMap{nat(f, "KUBE-SERVICES"): {}})
		for _, j := range []struct{ name, hook, args string }{
			{"no link to come from", "OUTPUT", "-i cni0"},
			{"no link to go to", "PREROUTING", "-o cni0"},
			{"unknown match", "PREROUTING", "-m nope"},
			{"unknown protocol", "OUTPUT", "-p nope"},
		} {
			c := rules.JumpChange{Op: rules.Add, Key: portals(f, j.hook), Jump: rules.Jump{Args: j.args}}
			if errs := b.Client.WriteJumps(t.Context(), []rules.JumpChange{c}); errs == nil {
				t.Errorf("%s: %s %s is written", j.name, c.Key, j.args)
			}
		}
		b.wantJumps(map[rules.JumpKey]rules.Jump{})
		b.jump(rules.Add, portals(f, "PREROUTING"), "-i cni0")
		b.jump(rules.Delete, portals(f, "PREROUTING"), "")
	}
}

// fourteenJumps are more than any mode has, in three tables.
func fourteenJumps(f rules.Family) []rules.JumpChange {
	out := ipvsJumps(f)
	for _, hook := range []string{"INPUT", "FORWARD", "OUTPUT"} {
		key := rules.JumpKey{Family: f, Table: "filter", Hook: hook, Target: "KUBE-FORWARD-2"}
		out = append(out, rules.JumpChange{Op: rules.Add, Key: key, Jump: rules.Jump{Args: "-m conntrack --ctstate NEW"}})
	}
	return out
}

func testJumpProcesses(t *testing.T, b *bench) {
	b.write(rules.Add, Shapes(b.Client.Families()...))
	for _, f := range b.Client.Families() {
		b.write(rules.Add, chainMap{{Family: f, Table: "filter", Name: "KUBE-FORWARD-2"}: {}})
		changes := fourteenJumps(f)
		before := b.Client.Counters()
		b.jumps(changes...)
		after := b.Client.Counters()
		if got := after.Restore - before.Restore; got != 1 || after.Bytes == before.Bytes {
			t.Errorf("%d restores of %d bytes for %d jumps", got, after.Bytes-before.Bytes, len(changes))
		}
		if hooks, all := after.Jump-before.Jump, after.Save-before.Save; hooks != 0 || all != 1 {
			t.Errorf("%d listings of one hook and %d of everything for many hooks", hooks, all)
		}
		for n, c := range changes[:rules.FewHooks] { // each of another hook
			before := b.Client.Counters()
			b.jumps(changes[:n+1]...)
			after := b.Client.Counters()
			if got := after.Jump - before.Jump; got != uint64(n+1) || after.Save != before.Save {
				t.Errorf("%d listings of one hook for %d, the last is %s", got, n+1, c.Key)
			}
		}
		b.jumps(changes...)
		if got := b.Client.Counters().Restore - after.Restore; got != 0 {
			t.Errorf("%d restores for jumps that are there", got)
		}
		for i := range changes {
			changes[i].Op = rules.Delete
		}
		b.jumps(changes...)
		if got := b.Client.Counters().Restore - after.Restore; got != 1 {
			t.Errorf("%d restores to delete %d jumps", got, len(changes))
		}
	}
	b.wantJumps(map[rules.JumpKey]rules.Jump{})
}

// testJumpRefusedAlone: the refused ones are found in the batch, in every table,
// and the others are written once and in order.
func testJumpRefusedAlone(t *testing.T, b *bench) {
	b.write(rules.Add, Shapes(b.Client.Families()...))
	for _, f := range b.Client.Families() {
		good := ipvsJumps(f)
		bad := map[rules.JumpKey]bool{}
		for _, c := range []rules.JumpChange{
			{Key: rules.JumpKey{Family: f, Table: "filter", Hook: "INPUT", Target: "KUBE-NOT-THERE"}},
			{Key: rules.JumpKey{Family: f, Table: "nat", Hook: "OUTPUT", Target: "KUBE-NOT-THERE"}},
			{Key: rules.JumpKey{Family: f, Table: "nat", Hook: "OUTPUT", Target: "KUBE-MARK-MASQ"}, Jump: rules.Jump{Args: "-i cni0"}},
		} {
			c.Op = rules.Add
			bad[c.Key] = true
			good = append([]rules.JumpChange{c}, good...)
		}
		errs := b.Client.WriteJumps(t.Context(), good)
		for i, c := range good {
			if len(errs) != len(good) || (errs[i] != nil) != bad[c.Key] {
				t.Fatalf("row %d of %v", i, errs)
			}
		}
		b.wantHook(f, "filter", "FORWARD",
			`-m comment --comment "kube-proxy firewall rules" -j KUBE-PROXY-FIREWALL`,
			`-m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD`)
		b.wantHook(f, "nat", "OUTPUT", portalsArgs+" -j KUBE-SERVICES")
		b.wantHook(f, "filter", "INPUT",
			`-m comment --comment "kubernetes ipvs access filter" -j KUBE-IPVS-FILTER`,
			`-m comment --comment "kube-proxy firewall rules" -j KUBE-PROXY-FIREWALL`,
			`-m comment --comment "kubernetes health check rules" -j KUBE-NODE-PORT`,
			`-m comment --comment "kubernetes ipvs service traffic" -j KUBE-IPVS-ACCEPT`)
	}
}

func testJumpsThere(t *testing.T, b *bench) {
	for _, f := range b.Client.Families() {
		b.write(rules.Add, chainMap{nat(f, "KUBE-SERVICES"): {}})
		keys := []rules.JumpKey{portals(f, "PREROUTING"), portals(f, "OUTPUT")}
		other := portals(f, "OUTPUT")
		other.Target = "KUBE-OTHER"
		keys = append(keys, other)
		b.wantMissing(keys, keys...)
		b.jump(rules.Add, keys[0], portalsArgs)
		b.jump(rules.Add, keys[1], "-p tcp")
		before := b.Client.Counters()
		b.wantMissing(keys, other)
		after := b.Client.Counters()
		if got := after.Jump - before.Jump; got != 2 || after.Save != before.Save {
			t.Errorf("%d listings of two hooks", got)
		}
		b.wantMissing(keys[:2])
		b.wantMissing(nil)
		nowhere := portals(f, "NOWHERE")
		if _, err := b.Client.JumpsThere(t.Context(), []rules.JumpKey{nowhere}); err == nil {
			t.Error("a hook that is not there can be read")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if missing, err := b.Client.JumpsThere(ctx, []rules.JumpKey{portals(b.Client.Families()[0], "OUTPUT")}); !errors.Is(err, context.Canceled) || missing != nil {
		t.Errorf("missing %v, %v", missing, err)
	}
}

func (b *bench) wantMissing(keys []rules.JumpKey, want ...rules.JumpKey) {
	b.t.Helper()
	missing, err := b.Client.JumpsThere(b.t.Context(), keys)
	if diff := cmp.Diff(want, missing); diff != "" || err != nil {
		b.t.Fatalf("missing jumps (-want +got), %v:\n%s", err, diff)
	}
}
