package nftrules_test

import (
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/nftrules"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft/nfttest"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// A plan prints what the fake, whose text is compared with that of the tool, has after the same rows
// were written.
func TestTranslateIsWhatTheKernelHas(t *testing.T) {
	for name, c := range configs() {
		fake := nfttest.New()
		allSets(t, fake)
		b := nftrules.New(fake)
		cidr := setNamed(t, sets.SourceCIDR)
		entries := []ipset.Change{
			ipset.AddEntry(entry(t, cidr, "192.0.2.1,tcp:80,10.0.0.0/8")), ipset.AddEntry(entry(t, cidr, "192.0.2.1,tcp:80,10.1.0.0/16")),
		}
		must(t, b.Sets().Write(t.Context(), cidr, entries)...)
		chains, jumps := desired(t, c)
		must(t, b.Rules().WriteChains(t.Context(), chains)...)
		must(t, b.Rules().WriteJumps(t.Context(), jumps)...)

		var saved, set strings.Builder
		mode := ipvs.New(zap.NewNop(), c, ipvs.Deps{})
		mode.SetHost(host())
		must(t, mode.WriteRows(&saved, "rules"))
		var contents []ipset.Contents
		for _, s := range sets.All() {
			of := ipset.Contents{Set: s}
			if s.Name == cidr.Name {
				of.Entries = []ipset.Entry{entries[0].Entry, entries[1].Entry}
			}
			contents = append(contents, of)
		}
		must(t, ipset.WriteSave(&set, contents...))
		got, err := nftrules.Translate(set.String(), saved.String())
		must(t, err)
		if want := fake.String(); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
		}
	}
}

func TestTranslateRefusesWhatItCannotSay(t *testing.T) {
	for _, text := range [][2]string{
		{"create STRANGER hash:ip family inet hashsize 1024 maxelem 65536", ""}, {"nonsense", ""},
		{"", "# ip\n*nat\n:KUBE-A - [0:0]\n-A KUBE-A -m ipvs --ipvs -j ACCEPT\nCOMMIT\n"},
	} {
		if got, err := nftrules.Translate(text[0], text[1]); err == nil {
			t.Errorf("%q: %s", text, got)
		}
	}
}

func TestRuleText(t *testing.T) {
	for line, want := range map[string][2]string{
		"-m set --match-set KUBE-CLUSTER-IP dst,dst -j ACCEPT": {"nat-KUBE-DETOUR-TO", "ip daddr . meta l4proto . th dport @KUBE-CLUSTER-IP dnat to ip daddr"},
		detourA:                    {"nat-KUBE-DETOUR-TO", "map @nat-KUBE-DETOUR-TO { 192.0.2.1 . tcp . 80 : 10.96.0.1 . 80 }"},
		"-m ipvs --ipvs -j ACCEPT": {"nat-KUBE-DETOUR-TO", "-m ipvs --ipvs -j ACCEPT"},
	} {
		chain, rule := nftrules.RuleText(detourChain, netfilter.ReadLine(rules.Canonical(rules.IPv4, line)))
		if got := [2]string{chain, rule}; got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

func TestSetText(t *testing.T) {
	for name, want := range map[string][2]string{
		sets.ClusterIP: {"ip", "ipv4_addr . inet_proto . inet_service"}, "KUBE-6-CLUSTER-IP": {"ip6", "ipv6_addr . inet_proto . inet_service"},
		sets.NodePortTCP: {"ip", "inet_service"}, "KUBE-6-NODE-PORT-TCP": {"ip6", "inet_service"},
	} {
		if family, typ := nftrules.SetText(name); [2]string{family, typ} != want {
			t.Errorf("%s: %s, %s; want %s", name, family, typ, want)
		}
	}
	for text, want := range map[string]string{
		"192.0.2.1,tcp:80,10.0.0.0/8": "192.0.2.1 . tcp . 80 . 10.0.0.0/8", "192.0.2.1,tcp:80,10.0.0.0/8 nomatch": "192.0.2.1,tcp:80,10.0.0.0/8 nomatch",
	} {
		if got := nftrules.EntryText(sets.SourceCIDR, entry(t, setNamed(t, sets.SourceCIDR), text)); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
