package nftables_test

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
)

func loadRuleset(t *testing.T, text string) {
	t.Helper()
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skipf("skipped: %v", err)
	}
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v: %s", err, out)
	}
}

// TestFilters reads base chains of the three hooks, what they lead to and the sets they ask, and nothing else.
func TestFilters(t *testing.T) {
	h := openKernel(t)
	defer h.Close()
	loadRuleset(t, `
table inet host {
	set admins { type ipv4_addr; flags interval; elements = { 10.0.0.0/8, 192.0.2.1 } }
	chain in {
		type filter hook input priority 5; policy drop;
		ip saddr @admins tcp dport vmap { 22 : accept, 23 : jump old }
		jump more
	}
	chain more { counter reject; }
	chain old { return; }
	chain unused { drop; }
}
table ip nat {
	chain pre { type nat hook prerouting priority 0; }
}
table bridge b {
	chain in { type filter hook input priority 0; policy drop; }
}
`)
	got, err := h.Filters(t.Context())
	if err != nil || len(got) != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	f := got[0]
	if f.Key != (nftables.Key{Family: "inet", Name: "host"}) || f.Unread != "" {
		t.Errorf("table %s, unread %q", f.Key, f.Unread)
	}
	var names []string
	for name, c := range f.Chains {
		names = append(names, fmt.Sprintf("%s %d %+v", name, len(c.Rules), c.Hook))
	}
	slices.Sort(names)
	want := []string{fmt.Sprintf("in 2 %+v", &nftables.Hook{Name: "input", Priority: 5, Drop: true}), "more 1 <nil>", "old 1 <nil>"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("chains (-want +got):\n%s", diff)
	}
	var exprs []string
	for _, e := range f.Chains["in"].Rules[0].Exprs {
		exprs = append(exprs, strings.TrimSpace(e.Name+" "+strings.TrimRight(e.Set, "0123456789")))
	}
	if diff := cmp.Diff([]string{"meta", "cmp", "payload", "lookup admins", "meta", "cmp", "payload", "lookup __map"}, exprs); diff != "" {
		t.Errorf("expressions (-want +got):\n%s", diff)
	}
	if s := f.Sets["admins"]; !s.Interval || len(s.Elements) < 4 {
		t.Errorf("set: %+v", s)
	}
	if v := f.Chains["more"].Rules[0].Exprs; v[len(v)-1].Name != "reject" || f.Chains["more"].Rules[0].Handle == 0 {
		t.Errorf("rule: %+v", f.Chains["more"].Rules[0])
	}
}

// TestLargeFilter: a chain with more rules than can be checked is not read, and a set with more elements is read in part.
func TestLargeFilter(t *testing.T) {
	h := openKernel(t)
	defer h.Close()
	var b strings.Builder
	b.WriteString("table inet host {\nset many { type ipv4_addr; elements = { 10.9.9.9")
	for i := range 17000 {
		fmt.Fprintf(&b, ", 10.0.%d.%d", i>>8, i&255)
	}
	b.WriteString("} }\nchain in { type filter hook input priority 0; ip saddr @many drop; jump long; }\nchain long {\n")
	for i := range 5000 {
		fmt.Fprintf(&b, "tcp dport %d accept\n", i+1)
	}
	b.WriteString("}\n}\n")
	loadRuleset(t, b.String())
	got, err := h.Filters(t.Context())
	if err != nil || len(got) != 1 {
		t.Fatalf("%d tables, %v", len(got), err)
	}
	f := got[0]
	if f.Unread == "" || !f.Chains["long"].Unread || len(f.Chains["long"].Rules) > 0 || len(f.Chains["in"].Rules) != 2 || !f.Sets["many"].Unread {
		t.Errorf("unread %q, long has %d rules, in %d", f.Unread, len(f.Chains["long"].Rules), len(f.Chains["in"].Rules))
	}
}
