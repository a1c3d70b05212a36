package rules_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules/rulestest"
)

// scripts puts shell scripts in place of the iptables tools: each gets the
// body of its name, "" meaning one that does nothing.
func scripts(t *testing.T, bodies map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, body := range bodies {
		// The version is asked first of every command.
		text := "#!/bin/sh\nPATH=/usr/bin:/bin\ncase \"$*\" in *--version*) echo 'iptables v1.8.9 (nf_tables)'; exit;; esac\n" + body + "\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	return dir
}

func ipv4Scripts(restore, command string) map[string]string {
	return map[string]string{"iptables": command, "iptables-save": "", "iptables-restore": restore}
}

var keyA = rules.ChainKey{Family: rules.IPv4, Table: "nat", Name: "KUBE-A"}

func addA() []rules.ChainChange { return []rules.ChainChange{{Op: rules.Add, Key: keyA}} }

func TestToolFailures(t *testing.T) {
	for _, tc := range []struct {
		name, restore string
		want          error
		says          string
	}{
		{"lock not had", "echo 'Another app is currently holding the xtables lock; waited 5s' >&2; exit 4", rules.ErrBusy, "xtables lock"},
		{"silent status 4", "exit 4", rules.ErrBusy, ""},
		{"no kernel side", `echo "can't initialize iptables table: Table does not exist" >&2; exit 3`, rules.ErrUnsupported, "can't initialize"},
		{"no capability", `echo "iptables v1.8.9 (nf_tables): Could not fetch rule set generation id: Permission denied (you must be root)" >&2; exit 4`, fs.ErrPermission, "Permission denied"},
		{"no capability for sets", `echo "Can't open socket to ipset." >&2; exit 2`, fs.ErrPermission, "CAP_NET_RAW"},
		{"match not there", `echo "Couldn't load match 'ipvs':No such file" >&2; exit 2`, rules.ErrUnsupported, "ipvs"},
		{"target extension not there", "echo \"Couldn't load target \\`TPROXY':No such file or directory\" >&2; exit 2", rules.ErrUnsupported, "TPROXY"},
		{"chain not there", "echo \"Couldn't load target \\`KUBE-B':No such file or directory\" >&2; exit 2", rules.ErrNotExist, "KUBE-B"},
		{"set not there", "echo \"Set KUBE-X doesn't exist.\" >&2; exit 2", rules.ErrNotExist, "KUBE-X"},
		{"hangs", "exec sleep 60", context.DeadlineExceeded, "killed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			scripts(t, ipv4Scripts(tc.restore, ""))
			h := newHandle(t, rules.Options{Families: []rules.Family{rules.IPv4}, LockWait: time.Second})
			if errors.Is(tc.want, context.DeadlineExceeded) {
				h.SetTimeout(300 * time.Millisecond)
			}
			errs := h.WriteChains(t.Context(), addA())
			if len(errs) != 1 || !errors.Is(errs[0], tc.want) {
				t.Fatalf("got %v, want %v", errs, tc.want)
			}
			for _, part := range []string{tc.says, "add chain ip nat KUBE-A"} {
				if !strings.Contains(errs[0].Error(), part) {
					t.Errorf("%q does not say %q", errs[0], part)
				}
			}
		})
	}
}

// go-iptables starts its own processes; a hanging one must end all the same.
func TestHangingJumpIsKilled(t *testing.T) {
	scripts(t, ipv4Scripts("", `case "$*" in *KUBE-A*|*OUTPUT*) exec sleep 60;; esac`))
	h := newHandle(t, rules.Options{Families: []rules.Family{rules.IPv4}, LockWait: time.Second})
	h.SetTimeout(300 * time.Millisecond)
	key := rules.JumpKey{Family: rules.IPv4, Table: "nat", Hook: "OUTPUT", Target: "KUBE-A"}
	errs := h.WriteJumps(t.Context(), []rules.JumpChange{{Op: rules.Add, Key: key}})
	if len(errs) != 1 || !errors.Is(errs[0], context.DeadlineExceeded) {
		t.Fatalf("got %v, want a deadline", errs)
	}
}

// A missing capability refuses every row: the rows are not tried one by one.
func TestMissingCapabilityIsAskedForOnce(t *testing.T) {
	scripts(t, ipv4Scripts(`echo "Can't open socket to ipset." >&2; exit 2`, ""))
	h := newHandle(t, rules.Options{Families: []rules.Family{rules.IPv4}})
	before := h.Counters().Restore
	changes := addA()
	for _, name := range []string{"KUBE-B", "KUBE-C", "KUBE-D"} {
		changes = append(changes, rules.ChainChange{Op: rules.Add, Key: rules.ChainKey{Family: rules.IPv4, Table: "nat", Name: name}})
	}
	if errs := h.WriteChains(t.Context(), changes); len(errs) != len(changes) || !errors.Is(errs[3], fs.ErrPermission) {
		t.Errorf("got %v, want every row denied", errs)
	}
	if n := h.Counters().Restore - before; n != 1 {
		t.Errorf("%d processes, want one", n)
	}
}

func TestBusyLockStopsJumps(t *testing.T) {
	scripts(t, ipv4Scripts("", `case "$*" in *OUTPUT*) echo 'Another app is currently holding the xtables lock.' >&2; exit 4;; esac`))
	h := newHandle(t, rules.Options{Families: []rules.Family{rules.IPv4}})
	var changes []rules.JumpChange
	for _, hook := range []string{"OUTPUT", "PREROUTING"} {
		key := rules.JumpKey{Family: rules.IPv4, Table: "nat", Hook: hook, Target: "KUBE-A"}
		changes = append(changes, rules.JumpChange{Op: rules.Add, Key: key})
	}
	errs := h.WriteJumps(t.Context(), changes)
	if len(errs) != 2 || !errors.Is(errs[0], rules.ErrBusy) || !errors.Is(errs[1], rules.ErrBusy) {
		t.Fatalf("got %v, want two busy rows", errs)
	}
	if got := h.Counters().Jump; got != 1 {
		t.Errorf("%d processes waited for the lock", got)
	}
}

// A restore that is refused for its length arrives in smaller pieces, with
// every chain after the ones it jumps to.
func TestTooLongBatchIsCut(t *testing.T) {
	dir := scripts(t, ipv4Scripts(`
cat > $0.in
[ $(wc -l < $0.in) -gt 40 ] && { echo 'sendmsg() failed: Message too long' >&2; exit 1; }
cat $0.in >> $0.all`, ""))
	h := newHandle(t, rules.Options{Families: []rules.Family{rules.IPv4}})
	var changes []rules.ChainChange
	for i := range 100 {
		key := rules.ChainKey{Family: rules.IPv4, Table: "nat", Name: fmt.Sprintf("KUBE-%03d", i)}
		changes = append(changes, rules.ChainChange{Op: rules.Add, Key: key, Chain: rules.Chain{Rules: fmt.Sprintf("-j KUBE-%03d", i+1)}})
	}
	if errs := h.WriteChains(t.Context(), changes); errs != nil {
		t.Fatal(errs)
	}
	text, err := os.ReadFile(filepath.Join(dir, "iptables-restore.all"))
	if err != nil {
		t.Fatal(err)
	}
	first, last := strings.Index(string(text), ":KUBE-099"), strings.Index(string(text), ":KUBE-000")
	if first < 0 || last < first {
		t.Errorf("callee at %d, caller at %d", first, last)
	}
	if got := strings.Count(string(text), "-A KUBE"); got != 100 {
		t.Errorf("%d rules arrived", got)
	}
}

// A refusal that names no line does not tell which tables were applied before it:
// the chains do, so that no rule is added twice.
func TestRulesAppliedBeforeARefusalWithoutLine(t *testing.T) {
	dir := scripts(t, ipv4Scripts(`
cat > $0.in
grep -q filter $0.in && grep -q nat $0.in && { echo 'sendmsg() failed: Message too long' >&2; exit 1; }
cat $0.in >> $0.all`, `case "$*" in *KUBE-F*) echo '-A KUBE-F -p tcp -j RETURN';; esac`))
	h := newHandle(t, rules.Options{Families: []rules.Family{rules.IPv4}})
	filter := rules.ChainKey{Family: rules.IPv4, Table: "filter", Name: "KUBE-F"}
	_, errs := h.Write(t.Context(), nil, []rules.RuleChange{
		{Op: rules.Add, Chain: filter, Rule: "-p tcp -j RETURN"},
		{Op: rules.Delete, Chain: filter, Rule: "-p udp -j RETURN"},
		{Op: rules.Add, Chain: keyA, Rule: "-p tcp -j RETURN"},
		{Op: rules.Add, Chain: keyA, Rule: "-p udp -j RETURN"},
	})
	if errs != nil {
		t.Fatal(errs)
	}
	text, err := os.ReadFile(filepath.Join(dir, "iptables-restore.all"))
	if err != nil {
		t.Fatal(err)
	}
	const want = "*nat\n-I KUBE-A -p tcp -j RETURN\nCOMMIT\n*nat\n-I KUBE-A -p udp -j RETURN\nCOMMIT\n"
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("written after the refusal (-want +got):\n%s", diff)
	}
}

// A chain that cannot be listed is not taken as absent.
func TestRuleOfUnreadableChainIsNotDeleted(t *testing.T) {
	for part, says := range map[string]string{"permission denied": "permission denied", "use 'nft' tool": "chain \\`KUBE-A' in table \\`nat' is incompatible, use 'nft' tool."} {
		tools := ipv4Scripts("echo 'line 2 failed: Bad rule (does a matching rule exist in that chain?).' >&2; exit 1",
			`case "$*" in *KUBE-A*) echo "`+says+`" >&2; exit 1;; esac`)
		tools["iptables-save"] = "echo \"# Table \\`nat' is incompatible, use 'nft' tool.\""
		scripts(t, tools)
		h := newHandle(t, rules.Options{Families: []rules.Family{rules.IPv4}})
		_, errs := h.Write(t.Context(), nil, []rules.RuleChange{{Op: rules.Delete, Chain: keyA, Rule: "-j RETURN"}})
		if len(errs) != 1 || errs[0] == nil || !strings.Contains(errs[0].Error(), part) {
			t.Errorf("got %v, want one that says %q", errs, part)
		}
	}
}

func TestCutShortListingIsNotBelieved(t *testing.T) {
	tools := ipv4Scripts("", "")
	tools["iptables-save"] = "printf '*nat\n:KUBE-A - [0:0]\n'"
	scripts(t, tools)
	h := newHandle(t, rules.Options{Families: []rules.Family{rules.IPv4}})
	chains, jumps, err := h.List(t.Context())
	if err == nil || chains != nil || jumps != nil {
		t.Errorf("got %v %v %v", chains, jumps, err)
	}
}

func TestMissingFamilyIsLeftOut(t *testing.T) {
	scripts(t, ipv4Scripts("", ""))
	core, logs := observer.New(zap.WarnLevel)
	h, err := rules.New(zap.New(core), rules.Options{Owned: rulestest.Owned})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]rules.Family{rules.IPv4}, h.Families()); diff != "" {
		t.Errorf("families (-want +got):\n%s", diff)
	}
	if got := logs.FilterMessage("IP family is not used").Len(); got != 1 {
		t.Errorf("%d log lines, want one", got)
	}
	key := keyA
	key.Family = rules.IPv6
	errs := h.WriteChains(t.Context(), []rules.ChainChange{{Op: rules.Add, Key: key}, addA()[0]})
	if len(errs) != 2 || !errors.Is(errs[0], rules.ErrUnsupported) || errs[1] != nil {
		t.Errorf("got %v", errs)
	}
	if !h.RandomFully(rules.IPv4) || h.RandomFully(rules.IPv6) {
		t.Error("random-fully belongs to the family in use")
	}
}

// The tools of nft that have listed their tables are not tried once more, those that did not
// get that far, or not all of it, are.
func TestListingIsTrial(t *testing.T) {
	for name, tt := range map[string]struct {
		save  string
		tried bool
	}{
		"listed":            {"", false},
		"a table of others": {"echo \"# Table \\`nat' is incompatible, use 'nft' tool.\"", true},
		"cannot be listed":  {"exit 4", true},
	} {
		t.Run(name, func(t *testing.T) {
			trial := filepath.Join(t.TempDir(), "trial")
			scripts(t, map[string]string{"iptables-nft": "echo \"$*\" >" + trial, "iptables-nft-save": tt.save, "iptables-nft-restore": ""})
			if _, err := rules.New(zap.NewNop(), rules.Options{Owned: rulestest.Owned}); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(trial); (err == nil) != tt.tried {
				t.Errorf("tried: %v, want %v", err == nil, tt.tried)
			}
		})
	}
}

func TestNoToolsAtAll(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := rules.New(zap.NewNop(), rules.Options{Owned: rulestest.Owned}); !errors.Is(err, rules.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
}

func TestBackendFromVersion(t *testing.T) {
	dir := scripts(t, ipv4Scripts("", ""))
	h := newHandle(t, rules.Options{Families: []rules.Family{rules.IPv4}})
	if h.Backend() != rules.NFT {
		t.Errorf("got %s", h.Backend())
	}
	_, err := rules.New(zap.NewNop(), rules.Options{Owned: rulestest.Owned, Backend: rules.Legacy})
	if !errors.Is(err, rules.ErrUnsupported) {
		t.Errorf("legacy with nft tools in %s: %v", filepath.Base(dir), err)
	}
}

func TestOptionMistakes(t *testing.T) {
	err := rules.Options{Families: []rules.Family{5}, Backend: "pf", LockWait: time.Millisecond}.Validate()
	for _, part := range []string{"family 5", `backend "pf"`, "lock wait", "timeout", "predicate"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not say %q", err, part)
		}
	}
}
