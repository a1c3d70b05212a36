package rulestest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

type chainMap = map[rules.ChainKey]rules.Chain

func testShapes(_ *testing.T, b *bench) {
	want := Shapes(b.Client.Families()...)
	b.write(rules.Add, want)
	b.wantChains(want)
}

func testLifecycle(_ *testing.T, b *bench) {
	for _, f := range b.Client.Families() {
		key := nat(f, "KUBE-A")
		b.write(rules.Add, chainMap{key: {Rules: "-j RETURN"}})
		b.wantChains(chainMap{key: {Rules: "-j RETURN"}})
		b.write(rules.Update, chainMap{key: {Rules: "-p tcp -j ACCEPT\n-j RETURN"}})
		b.wantChains(chainMap{key: {Rules: "-p tcp -j ACCEPT\n-j RETURN"}})
		b.write(rules.Update, chainMap{key: {}})
		b.wantChains(chainMap{key: {}})
		b.write(rules.Delete, chainMap{key: {}})
		b.wantChains(chainMap{})
	}
}

func testConverge(_ *testing.T, b *bench) {
	for _, f := range b.Client.Families() {
		key := nat(f, "KUBE-A")
		b.write(rules.Delete, chainMap{key: {}})
		b.write(rules.Update, chainMap{key: {Rules: "-j RETURN"}})
		b.write(rules.Add, chainMap{key: {Rules: "-j ACCEPT"}})
		b.wantChains(chainMap{key: {Rules: "-j ACCEPT"}})
		b.write(rules.Delete, chainMap{key: {}})
	}
}

func testReferences(t *testing.T, b *bench) {
	want := chainMap{}
	var changes []rules.ChainChange
	for _, f := range b.Client.Families() {
		for i := range 5 {
			key, next := nat(f, "KUBE-%d", i), rules.Chain{Rules: fmt.Sprintf("-j KUBE-%d", (i*2)%5+5)}
			want[key], want[nat(f, "KUBE-%d", i+5)] = next, rules.Chain{Rules: "-j RETURN"}
			changes = append(changes, rules.ChainChange{Op: rules.Add, Key: key, Chain: next},
				rules.ChainChange{Op: rules.Add, Key: nat(f, "KUBE-%d", i+5), Chain: rules.Chain{Rules: "-j RETURN"}})
		}
	}
	if errs := b.Client.WriteChains(t.Context(), changes); errs != nil {
		t.Fatal(errs)
	}
	b.wantChains(want)
}

func testDeleteReferenced(t *testing.T, b *bench) {
	for _, f := range b.Client.Families() {
		state := chainMap{nat(f, "KUBE-A"): {Rules: "-j KUBE-B"}, nat(f, "KUBE-B"): {Rules: "-j RETURN"}}
		b.write(rules.Add, state)
		errs := b.Client.WriteChains(t.Context(), []rules.ChainChange{
			{Op: rules.Delete, Key: nat(f, "KUBE-B")},
			{Op: rules.Add, Key: nat(f, "KUBE-C"), Chain: rules.Chain{Rules: "-j ACCEPT"}},
		})
		b.wantError(errs, 0, rules.ErrBusy)
		if errs[1] != nil {
			t.Fatal(errs[1])
		}
		state[nat(f, "KUBE-C")] = rules.Chain{Rules: "-j ACCEPT"}
		b.wantChains(state)
		b.write(rules.Delete, state)
	}
}

func testDeleteTogether(t *testing.T, b *bench) {
	for _, f := range b.Client.Families() {
		b.write(rules.Add, chainMap{
			nat(f, "KUBE-A"): {Rules: "-j KUBE-B"}, nat(f, "KUBE-B"): {Rules: "-j KUBE-C"},
			nat(f, "KUBE-C"): {Rules: "-j RETURN"}, nat(f, "KUBE-Z"): {Rules: "-j KUBE-C"},
		})
		errs := b.Client.WriteChains(t.Context(), []rules.ChainChange{
			{Op: rules.Delete, Key: nat(f, "KUBE-C")}, {Op: rules.Delete, Key: nat(f, "KUBE-B")},
			{Op: rules.Delete, Key: nat(f, "KUBE-A")},
			{Op: rules.Update, Key: nat(f, "KUBE-Z"), Chain: rules.Chain{Rules: "-j ACCEPT"}},
		})
		if errs != nil {
			t.Fatal(errs)
		}
		b.wantChains(chainMap{nat(f, "KUBE-Z"): {Rules: "-j ACCEPT"}})
		b.write(rules.Delete, chainMap{nat(f, "KUBE-Z"): {}})
	}
}

func testOneBad(t *testing.T, b *bench) {
	const bad = 11
	var changes []rules.ChainChange
	want := chainMap{}
	for _, f := range b.Client.Families() {
		for i := range 20 {
			c := rules.ChainChange{Op: rules.Add, Key: nat(f, "KUBE-%02d", i), Chain: rules.Chain{Rules: "-p tcp -j RETURN"}}
			if i == bad {
				c.Chain.Rules += "\n-j KUBE-NOT-THERE"
			} else {
				want[c.Key] = c.Chain
			}
			changes = append(changes, c)
		}
	}
	errs := b.Client.WriteChains(t.Context(), changes)
	for i := range changes {
		if i%20 == bad {
			b.wantError(errs, i, rules.ErrNotExist)
			if !strings.Contains(errs[i].Error(), changes[i].Key.String()) {
				t.Errorf("error %q does not name %s", errs[i], changes[i].Key)
			}
		} else if errs[i] != nil {
			t.Errorf("%s: %v", changes[i].Key, errs[i])
		}
	}
	b.wantChains(want)
}

// foreign is what a CNI plug-in and an administrator may have left.
const foreign = `*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:cali-INPUT - [0:0]
-A INPUT -j cali-INPUT
-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT
-A cali-INPUT -m comment --comment "cali:x \"y\"" -j RETURN
COMMIT
*mangle
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
-A PREROUTING -j MARK --set-xmark 0x8/0x8
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:CNI-HOSTPORT-DNAT - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A CNI-HOSTPORT-DNAT -p udp -j RETURN
COMMIT
`

func testForeign(t *testing.T, b *bench) {
	before := map[rules.Family]string{}
	for _, f := range b.Client.Families() {
		if err := b.Load(f, foreign); err != nil {
			t.Fatal(err)
		}
		before[f] = b.Save(f)
	}
	b.wantChains(chainMap{})
	b.wantJumps(map[rules.JumpKey]rules.Jump{})
	ours := Shapes(b.Client.Families()...)
	b.write(rules.Add, ours)
	for _, f := range b.Client.Families() {
		for _, c := range ipvsJumps(f) {
			b.jump(rules.Add, c.Key, c.Jump.Args)
		}
	}
	_, jumps := b.list()
	for k := range jumps {
		b.jump(rules.Delete, k, "")
	}
	b.write(rules.Delete, ours)
	for f, want := range before {
		if got := b.Save(f); got != want {
			t.Errorf("%s changed:\n%s\nwas:\n%s", f, got, want)
		}
	}
}

func testNotOurs(t *testing.T, b *bench) {
	for _, f := range b.Client.Families() {
		if err := b.Load(f, foreign); err != nil {
			t.Fatal(err)
		}
		before := b.Save(f)
		for _, op := range []rules.Op{rules.Add, rules.Delete} {
			for _, name := range []string{"PREROUTING", "CNI-HOSTPORT-DNAT"} {
				errs := b.Client.WriteChains(t.Context(), []rules.ChainChange{{Op: op, Key: nat(f, "%s", name)}})
				b.wantError(errs, 0, rules.ErrUnsupported)
			}
			key := portals(f, "PREROUTING")
			key.Target = "CNI-HOSTPORT-DNAT"
			b.wantError(b.Client.WriteJumps(t.Context(), []rules.JumpChange{{Op: op, Key: key}}), 0, rules.ErrUnsupported)
		}
		if got := b.Save(f); got != before {
			t.Errorf("%s changed:\n%s\nwas:\n%s", f, got, before)
		}
	}
}

func testReplay(t *testing.T, b *bench, newHost func(*testing.T) Host) {
	b.write(rules.Add, Shapes(b.Client.Families()...))
	for _, f := range b.Client.Families() {
		b.jump(rules.Add, portals(f, "PREROUTING"), portalsArgs)
	}
	chains, jumps := b.list()
	other := &bench{t: t, Host: newHost(t)}
	for _, f := range b.Client.Families() {
		mine := maps.Clone(chains)
		maps.DeleteFunc(mine, func(k rules.ChainKey, _ rules.Chain) bool { return k.Family != f })
		var text strings.Builder
		jump := portals(f, "PREROUTING")
		if err := rules.WriteSave(&text, mine, map[rules.JumpKey]rules.Jump{jump: jumps[jump]}, nil); err != nil {
			t.Fatal(err)
		}
		if err := other.Load(f, text.String()); err != nil {
			t.Fatal(err)
		}
	}
	other.wantChains(chains)
	other.wantJumps(jumps)
}

func testProcesses(t *testing.T, b *bench) {
	before := b.Client.Counters()
	state := Shapes(b.Client.Families()...)
	b.write(rules.Add, state)
	b.wantChains(state)
	after := b.Client.Counters()
	families := uint64(len(b.Client.Families()))
	if got := after.Restore - before.Restore; got != families {
		t.Errorf("%d restore processes for %d families", got, families)
	}
	if got := after.Save - before.Save; got != families {
		t.Errorf("%d save processes for %d families", got, families)
	}
	if got := after.Rows - before.Rows; got != uint64(len(state)) {
		t.Errorf("%d rows counted, want %d", got, len(state))
	}
}

// manyChains is how many testLoad writes. An emulated machine gets fewer: it is
// slow, and what counts there is that its kernel takes a batch at all.
func manyChains() int {
	if os.Getenv("KUBE_IPVS_WHERE") == "vm" {
		return 300
	}
	return 3000
}

func testLoad(t *testing.T, b *bench) {
	want := chainMap{}
	f, size := b.Client.Families()[0], manyChains()
	t.Logf("%d chains", size)
	for i := range size {
		want[nat(f, "KUBE-SEP-%04d", i)] = rules.Chain{Rules: "-p tcp -m comment --comment \"ns1/svc1:p80\" -m tcp --dport 80 -j RETURN\n-j RETURN"}
	}
	b.write(rules.Add, want)
	b.wantChains(want)
	b.write(rules.Delete, want)
	b.wantChains(chainMap{})
}

func testContext(t *testing.T, b *bench) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f := b.Client.Families()[0]
	errs := b.Client.WriteChains(ctx, []rules.ChainChange{{Op: rules.Add, Key: nat(f, "KUBE-A")}})
	b.wantError(errs, 0, context.Canceled)
	errs = b.Client.WriteJumps(ctx, []rules.JumpChange{{Op: rules.Delete, Key: portals(f, "OUTPUT")}})
	b.wantError(errs, 0, context.Canceled)
	if _, _, err := b.Client.List(ctx); err == nil {
		t.Error("list worked")
	}
	b.wantChains(chainMap{})
}
