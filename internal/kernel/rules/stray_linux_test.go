package rules_test

import (
	"os"
	"strings"
	"testing"

	"go.uber.org/zap/zaptest"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules/rulestest"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
)

// beside opens what an agent with another backend may have left.
func beside(t *testing.T, used rules.Backend) []*rules.Handle {
	t.Helper()
	handles, err := rules.Beside(t.Context(), zaptest.NewLogger(t), rules.Options{Owned: rulestest.Owned, Timeout: poll.Patience, Generation: generation}, used)
	if err != nil {
		t.Fatal(err)
	}
	return handles
}

func other(b rules.Backend) rules.Backend {
	return map[rules.Backend]rules.Backend{rules.NFT: rules.Legacy, rules.Legacy: rules.NFT}[b]
}

// TestStrayRulesGo: chains that lead to each other, and jumps to them from several hooks, in both families; foreign rules stay.
func TestStrayRulesGo(t *testing.T) {
	forBackends(t, func(t *testing.T, b rules.Backend) {
		const stray = "*nat\n:KUBE-A - [0:0]\n:KUBE-B - [0:0]\n:OTHER - [0:0]\n-A PREROUTING -j OTHER\n-A PREROUTING -j KUBE-A\n-A OUTPUT -j KUBE-A\n" +
			"-A KUBE-A -j KUBE-B\n-A KUBE-B -j RETURN\n-A OTHER -j RETURN\nCOMMIT\n*filter\n:KUBE-C - [0:0]\n-A INPUT -m comment --comment x -j KUBE-C\n-A INPUT -j ACCEPT\nCOMMIT\n"
		families := []rules.Family{rules.IPv4, rules.IPv6}
		for _, f := range families {
			tool(t, stray, binary(f, b, "-restore"), "--noflush")
		}
		var mine *rules.Handle
		for _, h := range beside(t, other(b)) {
			if h.Backend() != b {
				t.Errorf("backend %s opened, want %s", h.Backend(), b)
			}
			mine = h
		}
		if mine == nil {
			t.Fatalf("backend %s with rules is not opened", b)
		}
		before, err := mine.Sign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if found, err := mine.Purge(t.Context()); err != nil || found != 2*6 {
			t.Errorf("%d chains and jumps found, error %v; want 12", found, err)
		}
		after, err := mine.Sign(t.Context())
		if err != nil || after == before {
			t.Errorf("sign %d after %d, error %v; want another one", after, before, err)
		}
		if found, err := mine.Purge(t.Context()); err != nil || found != 0 {
			t.Errorf("%d found again, error %v", found, err)
		}
		if again, err := mine.Sign(t.Context()); err != nil || again != after {
			t.Errorf("sign %d, error %v, though nothing was written since %d", again, err, after)
		}
		for _, f := range families {
			left := saved(t, f, b)
			if strings.Contains(left, "KUBE-") || !strings.Contains(left, "-A PREROUTING -j OTHER") || !strings.Contains(left, "-A INPUT -j ACCEPT") {
				t.Errorf("%s after it:\n%s", f, left)
			}
		}
	})
}

// TestStrayRulesThatStay: a foreign rule that leads to a chain of ours keeps it, which is an error.
func TestStrayRulesThatStay(t *testing.T) {
	forBackends(t, func(t *testing.T, b rules.Backend) {
		tool(t, "*nat\n:KUBE-A - [0:0]\n:OTHER - [0:0]\n-A OTHER -j KUBE-A\nCOMMIT\n", binary(rules.IPv4, b, "-restore"), "--noflush")
		for _, h := range beside(t, other(b)) {
			if _, err := h.Purge(t.Context()); err == nil || !strings.Contains(err.Error(), "stay in backend "+string(b)) || !strings.Contains(err.Error(), "KUBE-A") {
				t.Errorf("error %v, want one that names the chain", err)
			}
		}
	})
}

// TestLookingLoadsNothing: a namespace without tables of legacy has none after the look, and missing tools are no error.
func TestLookingLoadsNothing(t *testing.T) {
	namespace(t)
	for range 2 {
		for _, h := range beside(t, rules.NFT) {
			t.Errorf("backend %s opened, though no table is loaded", h.Backend())
		}
		if text, err := os.ReadFile("/proc/thread-self/net/ip_tables_names"); err == nil && len(text) > 0 {
			t.Errorf("tables loaded: %s", text)
		}
		t.Setenv("PATH", t.TempDir())
		if handles := beside(t, rules.Legacy); len(handles) > 0 {
			t.Errorf("%d backends opened without tools", len(handles))
		}
	}
}

// TestLookingMakesNoTable: the tools of legacy make a table that they are asked for, and every packet passes it from then on.
func TestLookingMakesNoTable(t *testing.T) {
	namespace(t)
	for _, f := range []rules.Family{rules.IPv4, rules.IPv6} {
		tool(t, "*mangle\n:OTHER - [0:0]\nCOMMIT\n", binary(f, rules.Legacy, "-restore"), "--noflush")
	}
	for _, h := range beside(t, rules.NFT) {
		if _, err := h.Purge(t.Context()); err != nil {
			t.Errorf("purge: %v", err)
		}
	}
	if tables := rules.FilterTables(t.Context(), rules.Options{}, nil); len(tables) > 0 {
		t.Errorf("%d filter tables read, though none is loaded", len(tables))
	}
	for _, names := range []string{"ip_tables_names", "ip6_tables_names"} {
		if text, err := os.ReadFile("/proc/thread-self/net/" + names); err != nil || string(text) != "mangle\n" {
			t.Errorf("%s: %q, error %v, want mangle alone", names, text, err)
		}
	}
}
