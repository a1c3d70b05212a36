package nft_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nfnetlink"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft/nfttest"
)

func message(t *testing.T, b []byte) nfnetlink.Message {
	t.Helper()
	m, rest, err := nfnetlink.Next(b)
	if err != nil || len(rest) > 0 {
		t.Fatalf("message of %d bytes: %v, %d left", len(b), err, len(rest))
	}
	return m
}

// TestCodec: a statement that is written reads as it was.
func TestCodec(t *testing.T) {
	p := nfttest.Everything(nft.IPv4, nft.IPv6)
	for _, c := range p.Chains {
		for _, r := range c.Chain.Rules {
			if got := nft.ReadRule(c.Key.Family, message(t, nft.WriteRule(c.Key, r))); !got.Equal(r) {
				t.Errorf("rule %s of %s reads as %s: %+v", r.Text(c.Key.Family), c.Key, got.Text(c.Key.Family), got)
			}
		}
	}
	for _, c := range p.Sets {
		if got := nft.ReadSet(c.Key.Family, message(t, nft.WriteSet(c.Key, c.Set))); got != c.Set {
			t.Errorf("set %s is %+v, reads as %+v", c.Key, c.Set, got)
		}
	}
	for _, c := range p.Elements {
		list := []nft.Element{c.Element}
		if got, ok := nft.ReadElements(c.Key.Family, c.Set, message(t, nft.WriteElements(c.Key, c.Set, list))); !ok || !slices.Equal(got, list) {
			t.Errorf("%s reads as %v, %t", c, got, ok)
		}
	}
}

// TestChangedRule: a rule that differs from its tag is another program's.
func TestChangedRule(t *testing.T) {
	k := nft.Key{Family: nft.IPv4, Name: "x"}
	accept := message(t, nft.WriteRule(k, nft.NewRule(nft.Accept).With("ours")))
	code := len(accept.Body) - len("\x05\x00ours\x00\xc0\x08........") // the code of the verdict is before the userdata
	changed := false
	for i := range code {
		b := slices.Clone(accept.Body)
		b[i] ^= 1
		m := accept
		m.Body = b
		if r := nft.ReadRule(nft.IPv4, m); r.Comment == "ours" && len(r.Statements) == 1 && r.Statements[0] != nft.Accept {
			changed = true
			if !r.Foreign {
				t.Errorf("byte %d changed: %+v is not foreign", i, r)
			}
		}
	}
	if !changed {
		t.Error("no byte changed the rule")
	}
}

func TestText(t *testing.T) {
	by := nft.By(nft.DestinationAddr, nft.Protocol, nft.DestinationPort)
	tcp := nft.MatchProtocol{Protocol: nft.TCP}
	for _, c := range []struct {
		family nft.Family
		rule   nft.Rule
		want   string
	}{
		{nft.IPv4, nft.NewRule(nft.MatchSet{Key: by, Set: "a"}, nft.Jump("b")).With("why"), `ip daddr . meta l4proto . th dport @a jump b comment "why"`},
		{nft.IPv6, nft.NewRule(nft.MatchSet{Key: by, Set: "a", Not: true}, nft.Drop), `ip6 daddr . meta l4proto . th dport != @a drop`},
		{nft.IPv4, nft.NewRule(tcp, nft.MatchState{States: nft.StateNew}, nft.MatchSet{Key: nft.By(nft.DestinationPort), Set: "p"}), `ct state new tcp dport @p`},
		{nft.IPv4, nft.NewRule(tcp, nft.Accept), `meta l4proto tcp accept`},
		{nft.IPv4, nft.NewRule(nft.SetMark{Keep: 0xfffeffff, Flip: 0x10008}), `meta mark set meta mark ^ 0x00000008 | 0x00010000`},
		{nft.IPv6, nft.NewRule(nft.DestinationMap{Key: by, Map: "m"}), `dnat ip6 to ip6 daddr . meta l4proto . th dport map @m`},
	} {
		if got := c.rule.Text(c.family); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

func TestDisjoint(t *testing.T) {
	parse := func(list ...string) (out []netip.Prefix) {
		for _, s := range list {
			out = append(out, netip.MustParsePrefix(s))
		}
		return out
	}
	in := parse("10.1.0.0/16", "10.0.0.0/8", "10.0.0.0/8", "9.0.0.1/32", "fd00::/8", "fd00::1/128", "10.255.255.255/32", "11.0.0.0/8")
	before := slices.Clone(in)
	got, want := nft.Disjoint(in), parse("9.0.0.1/32", "10.0.0.0/8", "11.0.0.0/8", "fd00::/8")
	if !slices.Equal(got, want) || !slices.Equal(in, before) {
		t.Errorf("got %v, want %v; the argument is %v", got, want, in)
	}
}

// shapes are the sets whose elements the fuzz targets read.
func shapes() (out []nft.Set) {
	for shape := nft.Addr; shape <= nft.ProtocolPort; shape++ {
		for data := nft.NoData; data <= nft.Destinations; data++ {
			out = append(out, nft.Set{Shape: shape, Data: data})
		}
	}
	return out
}

// FuzzRuleset reads messages about rules, sets, chains and tables. Statements that are read are
// exactly the expressions of the message, and have a text.
func FuzzRuleset(f *testing.F) {
	p := nfttest.Everything(nft.IPv4, nft.IPv6)
	for _, c := range p.Chains {
		for _, r := range c.Chain.Rules {
			f.Add(nft.WriteRule(c.Key, r))
		}
	}
	for _, c := range p.Sets {
		f.Add(nft.WriteSet(c.Key, c.Set))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, _, err := nfnetlink.Next(b)
		if err != nil {
			return
		}
		_, _ = m.Offset()
		for _, family := range nft.Families() {
			r := nft.ReadRule(family, m)
			unknown := slices.ContainsFunc(r.Statements, func(s nft.Statement) bool { _, is := s.(nft.Unknown); return is })
			if !unknown && !nft.Lowered(family, r, m) {
				t.Errorf("%s is not what was read", r.Text(family))
			}
			if len(r.Statements) > 0 && r.Text(family) == "" {
				t.Errorf("%+v prints as nothing", r)
			}
			_ = nft.ReadSet(family, m)
			_, _ = nft.ReadOthers(m)
		}
	})
}

// FuzzElements reads messages about elements. An element that is read can be written, and is then
// read as the same.
func FuzzElements(f *testing.F) {
	for _, c := range nfttest.Everything(nft.IPv4, nft.IPv6).Elements {
		f.Add(nft.WriteElements(c.Key, c.Set, []nft.Element{c.Element}))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, _, err := nfnetlink.Next(b)
		if err != nil {
			return
		}
		for _, s := range shapes() {
			for _, family := range nft.Families() {
				k := nft.Key{Family: family, Name: "x"}
				list, ok := nft.ReadElements(family, s, m)
				if !ok || len(list) == 0 {
					continue
				}
				for _, e := range list {
					c := nft.ElementChange{Op: nft.Add, Key: k, Set: s, Element: e}
					if err := c.Check(); err != nil {
						t.Fatalf("was read, cannot be written: %v", err)
					}
				}
				if s.Shape == nft.Net {
					continue // ranges that meet are in another order
				}
				again, _, err := nfnetlink.Next(nft.WriteElements(k, s, list[:1]))
				if err != nil {
					t.Fatal(err)
				}
				if got, ok := nft.ReadElements(family, s, again); !ok || !slices.Equal(got, list[:1]) {
					t.Fatalf("%s reads as %v", list[0].Text(s), got)
				}
			}
		}
	})
}
