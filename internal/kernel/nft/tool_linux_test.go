package nft_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft/nfttest"
)

// listed is one object of `nft -j list ruleset`.
type listed struct {
	Set, Map, Chain *struct {
		Family, Name, Table string
		Type, Map           any
		Hook                string
		Prio                int32
		Policy              string
		Flags               []string
		Timeout             int
		Elem                []any
	}
	Rule *struct {
		Family, Chain, Comment string
	}
}

// TestToolSeesTheSame compares headers, hooks, elements and the number of rules with the JSON of the
// tool, which does not depend on how a version of the tool prints rules.
func TestToolSeesTheSame(t *testing.T) {
	h := openKernel(t)
	defer h.Close()
	if !hasTool() {
		t.Skip("skipped: nft is not installed")
	}
	p := nfttest.Everything(nft.IPv4, nft.IPv6)
	if err := h.Apply(t.Context(), p).Err(); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	add := func(k nft.Key, kind, text string) { want[kind+" "+k.Family.String()+" "+k.Name] += text }
	for _, c := range p.Sets {
		kind := "set"
		if c.Set.Data != nft.NoData {
			kind = "map"
		}
		text := fmt.Sprintf("timeout %d", int(c.Set.Timeout.Seconds()))
		if c.Set.Shape == nft.AddrPortNet || c.Set.Shape == nft.Net {
			text += " interval"
		}
		n := 0
		for _, e := range p.Elements {
			if e.Key == c.Key {
				n++
			}
		}
		add(c.Key, kind, fmt.Sprintf("%s elements %d", text, n))
	}
	for _, c := range p.Chains {
		b := c.Chain.Base
		add(c.Key, "chain", fmt.Sprintf("type %s hook %s %d", b.Type, b.Hook, b.Priority))
		for _, r := range c.Chain.Rules {
			add(c.Key, "chain", ";"+r.Comment)
		}
	}
	if diff := cmp.Diff(want, fromTool(t)); diff != "" {
		t.Errorf("nft -j list ruleset (-want +got):\n%s", diff)
	}
}

func fromTool(t *testing.T) map[string]string {
	t.Helper()
	var out struct{ Nftables []listed }
	if err := json.Unmarshal([]byte(tool(t, "", "-j", "list", "ruleset")), &out); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, o := range out.Nftables {
		if o.Rule != nil {
			got["chain "+o.Rule.Family+" "+o.Rule.Chain] += ";" + o.Rule.Comment
		}
		if c := o.Chain; c != nil {
			typ, _ := c.Type.(string)
			got["chain "+c.Family+" "+c.Name] += fmt.Sprintf("type %s hook %s %d", typ, c.Hook, c.Prio)
		}
		if s := o.Set; s != nil {
			got["set "+s.Family+" "+s.Name] = fmt.Sprintf("timeout %d%s elements %d", s.Timeout, interval(s.Flags), len(s.Elem))
		}
		if s := o.Map; s != nil {
			got["map "+s.Family+" "+s.Name] = fmt.Sprintf("timeout %d%s elements %d", s.Timeout, interval(s.Flags), len(s.Elem))
		}
	}
	return got
}

func interval(flags []string) string {
	if slices.Contains(flags, "interval") {
		return " interval"
	}
	return ""
}

// TestAdoptsRulesOfTheTool: the text of our tables, loaded by the tool, reads as the same, but for
// rules, which are another program's.
func TestAdoptsRulesOfTheTool(t *testing.T) {
	h := openKernel(t)
	defer h.Close()
	if !hasTool() {
		t.Skip("skipped: nft is not installed")
	}
	fake := nfttest.New()
	if err := fake.Apply(t.Context(), nfttest.Everything(nft.IPv4, nft.IPv6)).Err(); err != nil {
		t.Fatal(err)
	}
	load := exec.Command("nft", "-f", "-")
	load.Stdin = strings.NewReader(fake.String())
	if out, err := load.CombinedOutput(); strings.Contains(string(out), "Operation not supported") {
		t.Skipf("skipped: this kernel refuses a rule as nft writes it: %s", out)
	} else if err != nil {
		t.Fatalf("nft -f -: %v: %s", err, out)
	}
	r, err := h.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r.Tables[nft.IPv4] != 0 || r.Tables[nft.IPv6] != 0 {
		t.Errorf("versions %v, want none", r.Tables)
	}
	got := r.Text(func(k nft.Key) []nft.Element {
		_, list, err := h.Elements(t.Context(), k)
		if err != nil {
			t.Error(err)
		}
		return list
	})
	for _, k := range slices.Collect(maps.Keys(r.Chains)) {
		for _, rule := range r.Chains[k].Rules {
			if !rule.Foreign {
				t.Errorf("%s: %s has our tag", k, rule.Text(k.Family))
			}
		}
	}
	// For a network that ends between bytes, and for a key with a range, the tool writes other
	// expressions, which do the same.
	const mostUnknown = 6
	unknown := 0
	printed := slices.Collect(strings.Lines(fake.String()))
	for line := range strings.Lines(got) {
		switch {
		case strings.Contains(line, "[ "):
			unknown++
		case !slices.Contains(printed, line):
			t.Errorf("the tool's table has the line %q", line)
		}
	}
	if n := len(strings.Split(got, "\n")) - 1; unknown > mostUnknown || n != len(printed) {
		t.Errorf("%d lines, %d of them unknown; want %d and at most %d", n, unknown, len(printed), mostUnknown)
	}
}
