package scenario

import (
	"errors"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// nat and filter are written in one call, a chain and a rule each.
func bothTables() (chains []rules.ChainChange, edits []rules.RuleChange) {
	for table, name := range map[string]string{"nat": "KUBE-SERVICES", "filter": "KUBE-FORWARD"} {
		key := rules.ChainKey{Family: rules.IPv4, Table: table, Name: name}
		chains = append(chains, rules.ChainChange{Op: rules.Add, Key: key})
	}
	for table, name := range map[string]string{"nat": "KUBE-NODEPORTS", "filter": "KUBE-NODEPORTS"} {
		key := rules.ChainKey{Family: rules.IPv4, Table: table, Name: name}
		edits = append(edits, rules.RuleChange{Op: rules.Add, Chain: key, Rule: "-p tcp -j RETURN"})
	}
	return chains, edits
}

// tapped returns rules behind a fault proxy, with chains that single rules can be put into.
func tapped(t *testing.T) (tappedRules, *faultProxy) {
	k, tap := newKernel(), newFaultProxy()
	tap.crash = func() {}
	for _, table := range []string{"nat", "filter"} {
		if err := k.rules.Load(rules.IPv4, "*"+table+"\n:KUBE-NODEPORTS - [0:0]\nCOMMIT\n"); err != nil {
			t.Fatal(err)
		}
	}
	return tappedRules{tappedModeRules{k.rules, tap}, k.rules}, tap
}

func TestDyingWriteLeavesWholeTables(t *testing.T) {
	r, tap := tapped(t)
	tap.faults = []*fault{{pkg: pkgRules, times: 1, crash: true}}
	chains, edits := bothTables()
	chainErrs, ruleErrs := r.Write(t.Context(), chains, edits)
	for _, err := range append(chainErrs, ruleErrs...) {
		if !errors.Is(err, errDead) {
			t.Errorf("a row of a dead process: %v", err)
		}
	}
	text := r.rules.String()
	for line, want := range map[string]bool{":KUBE-FORWARD": true, ":KUBE-SERVICES": false} {
		if strings.Contains(text, line) != want {
			t.Errorf("%s there: %t, want %t", line, !want, want)
		}
	}
	if got := strings.Count(text, "-A KUBE-NODEPORTS -p tcp -j RETURN"); got != 1 {
		t.Errorf("%d of 2 single rules were carried out, want that of filter alone:\n%s", got, text)
	}
}

// A row that the kernel refuses is refused for a dying process, too.
func TestDyingWriteIsRefusedRows(t *testing.T) {
	r, tap := tapped(t)
	tap.faults = []*fault{{pkg: pkgRules, times: 1, crash: true}, {pkg: pkgRules, times: endless, kind: Fail, row: "filter KUBE-FORWARD"}}
	chains, edits := bothTables()
	r.Write(t.Context(), chains, edits)
	text := r.rules.String()
	if strings.Contains(text, ":KUBE-FORWARD") || strings.Count(text, "-A KUBE-NODEPORTS -p tcp -j RETURN") != 1 {
		t.Errorf("the refused chain is there, or the rule beside it is not:\n%s", text)
	}
}

func TestRowOfAWriteFailsAlone(t *testing.T) {
	for _, row := range []string{"nat KUBE-SERVICES", "nat KUBE-NODEPORTS -p tcp"} {
		r, tap := tapped(t)
		tap.faults = []*fault{{pkg: pkgRules, times: endless, kind: Fail, row: row}}
		chains, edits := bothTables()
		chainErrs, ruleErrs := r.Write(t.Context(), chains, edits)
		failed := 0
		for i, err := range append(chainErrs, ruleErrs...) {
			rows := []restoreRow{{chain: &chains[0]}, {chain: &chains[1]}, {edit: &edits[0]}, {edit: &edits[1]}}
			if hit := strings.Contains(rows[i].String(), row); hit != errors.Is(err, errInjected) {
				t.Errorf("fault %q, row %q: %v", row, rows[i], err)
			} else if hit {
				failed++
			}
		}
		if failed != 1 {
			t.Errorf("%d rows failed of fault %q, want 1", failed, row)
		}
	}
}
