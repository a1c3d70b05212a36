package rulestest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules/rulestest"
)

var (
	keyA = rules.ChainKey{Family: rules.IPv4, Table: "nat", Name: "KUBE-A"}
	keyB = rules.ChainKey{Family: rules.IPv4, Table: "nat", Name: "KUBE-B"}
	jump = rules.JumpKey{Family: rules.IPv4, Table: "nat", Hook: "OUTPUT", Target: "KUBE-B"}
)

func newFake() *rulestest.Fake {
	return rulestest.New(rules.Options{Families: []rules.Family{rules.IPv4}, Owned: rulestest.Owned})
}

func add(keys ...rules.ChainKey) []rules.ChainChange {
	var out []rules.ChainChange
	for _, k := range keys {
		out = append(out, rules.ChainChange{Op: rules.Add, Key: k})
	}
	return out
}

func TestPlanFailsNthCall(t *testing.T) {
	f := newFake()
	f.Plan.FailNth = map[rulestest.Call]int{rulestest.CallWriteChains: 2}
	for attempt, want := range []error{nil, rules.ErrBusy, nil} {
		errs := f.WriteChains(t.Context(), add(keyA))
		if got := errors.Join(errs...); !errors.Is(got, want) || (want == nil) != (got == nil) {
			t.Errorf("attempt %d: got %v, want %v", attempt+1, got, want)
		}
	}
	if got := f.Plan.Calls(rulestest.CallWriteChains); got != 3 {
		t.Errorf("%d calls counted", got)
	}
}

func TestPlanFailsKeys(t *testing.T) {
	f := newFake()
	f.Plan.FailChains = map[rules.ChainKey]error{keyA: rules.ErrUnsupported}
	f.Plan.FailJumps = map[rules.JumpKey]error{jump: rules.ErrBusy}
	errs := f.WriteChains(t.Context(), add(keyA, keyB))
	if len(errs) != 2 || !errors.Is(errs[0], rules.ErrUnsupported) || errs[1] != nil {
		t.Errorf("chains: %v", errs)
	}
	errs = f.WriteJumps(t.Context(), []rules.JumpChange{{Op: rules.Add, Key: jump}})
	if len(errs) != 1 || !errors.Is(errs[0], rules.ErrBusy) {
		t.Errorf("jumps: %v", errs)
	}
	const want = "# ip\n*nat\n:PREROUTING ACCEPT [0:0]\n:INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n:KUBE-B - [0:0]\nCOMMIT\n"
	if diff := cmp.Diff(want, f.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPlanFailsAlways(t *testing.T) {
	broken := errors.New("broken")
	f := newFake()
	f.Plan.FailAlways = map[rulestest.Call]error{rulestest.CallList: broken, rulestest.CallWriteJumps: broken}
	if _, _, err := f.List(t.Context()); !errors.Is(err, broken) {
		t.Errorf("list: %v", err)
	}
	if errs := f.WriteJumps(t.Context(), []rules.JumpChange{{Op: rules.Delete, Key: jump}}); !errors.Is(errors.Join(errs...), broken) {
		t.Errorf("jumps: %v", errs)
	}
}

func TestPlanDropsRows(t *testing.T) {
	f := newFake()
	f.WriteChains(t.Context(), add(keyA, keyB))
	f.WriteJumps(t.Context(), []rules.JumpChange{{Op: rules.Add, Key: jump}})
	f.Plan.DropChain = func(k rules.ChainKey) bool { return k == keyA }
	f.Plan.DropJump = func(rules.JumpKey) bool { return true }
	chains, jumps, err := f.List(t.Context())
	if err != nil || len(jumps) != 0 {
		t.Errorf("jumps %v, %v", jumps, err)
	}
	if diff := cmp.Diff(map[rules.ChainKey]rules.Chain{keyB: {}}, chains); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPlanHangsUntilDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.Plan.Hang = map[rulestest.Call]bool{rulestest.CallWriteChains: true}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if errs := f.WriteChains(ctx, add(keyA)); !errors.Is(errors.Join(errs...), context.DeadlineExceeded) {
			t.Errorf("got %v", errs)
		}
	})
}

// Another program on the node removes a chain together with the rules that lead to it.
func TestDeleteByAnother(t *testing.T) {
	f := newFake()
	f.WriteChains(t.Context(), add(keyA, keyB))
	f.WriteJumps(t.Context(), []rules.JumpChange{{Op: rules.Add, Key: jump}})
	f.Delete(keyB)
	chains, jumps, err := f.List(t.Context())
	if err != nil || len(jumps) != 0 {
		t.Errorf("jumps %v, %v", jumps, err)
	}
	if diff := cmp.Diff(map[rules.ChainKey]rules.Chain{keyA: {}}, chains); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFakeRefusesStrangeTables(t *testing.T) {
	f := newFake()
	strange := rules.ChainKey{Family: rules.IPv4, Table: "broute", Name: "KUBE-A"}
	other := rules.ChainKey{Family: rules.IPv6, Table: "nat", Name: "KUBE-A"}
	builtin := rules.ChainKey{Family: rules.IPv4, Table: "nat", Name: "OUTPUT"}
	errs := f.WriteChains(t.Context(), add(strange, other, builtin))
	for i, want := range []error{rules.ErrUnsupported, rules.ErrUnsupported, rules.ErrUnsupported} {
		if len(errs) != 3 || !errors.Is(errs[i], want) {
			t.Errorf("row %d of %v: want %v", i, errs, want)
		}
	}
	if err := f.Load(rules.IPv4, "*broute\nCOMMIT\n"); !errors.Is(err, rules.ErrUnsupported) {
		t.Errorf("load: %v", err)
	}
}
