package netfilter_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// spelled are rules with every condition and target, and their text in each family.
var spelled = []struct {
	rule   netfilter.Rule
	v4, v6 string // v6 empty: the same
}{
	{netfilter.Always(netfilter.Drop), "-j DROP", ""},
	{netfilter.If(netfilter.Comment("only counts")), `-m comment --comment "only counts"`, ""},
	{netfilter.If(netfilter.Comment(`it's "so"`), netfilter.New).Then(netfilter.Accept), `-m comment --comment "it\'s \"so\"" -m conntrack --ctstate NEW -j ACCEPT`, ""},
	{
		netfilter.If(netfilter.Established|netfilter.Related, netfilter.Comment("x")).Then(netfilter.Return),
		"-m conntrack --ctstate RELATED,ESTABLISHED -m comment --comment x -j RETURN", "",
	},
	{
		netfilter.If(netfilter.Not{Match: netfilter.Invalid | netfilter.Untracked | netfilter.SNATed | netfilter.DNATed}).Then(netfilter.JumpTo("KUBE-A")),
		"-m conntrack ! --ctstate INVALID,UNTRACKED,SNAT,DNAT -j KUBE-A", "",
	},
	{
		netfilter.If(netfilter.InSet{Name: "A", By: netfilter.Fields{netfilter.Dst, netfilter.Dst, netfilter.Src}},
			netfilter.Not{Match: netfilter.InSet{Name: "B", By: netfilter.Fields{netfilter.Src}}}).Then(netfilter.Reject{}),
		"-m set --match-set A dst,dst,src -m set ! --match-set B src -j REJECT --reject-with icmp-port-unreachable",
		"-m set --match-set A dst,dst,src -m set ! --match-set B src -j REJECT --reject-with icmp6-port-unreachable",
	},
	{
		netfilter.If(netfilter.Local(netfilter.Src), netfilter.Not{Match: netfilter.Local(netfilter.Dst)}).Then(netfilter.SetMark{Value: 0x4000}),
		"-m addrtype --src-type LOCAL -m addrtype ! --dst-type LOCAL -j MARK --set-xmark 0x4000/0x0", "",
	},
	{
		netfilter.If(netfilter.Not{Match: netfilter.Mark{Value: 0x4000, Mask: 0x4000}}).Then(netfilter.SetMark{Value: 0x4000, Mask: 0x4000}),
		"-m mark ! --mark 0x4000/0x4000 -j MARK --set-xmark 0x4000/0x4000", "",
	},
	{
		netfilter.If(netfilter.TCP, netfilter.TCPFlags{Of: netfilter.SYN | netfilter.ACK, Set: netfilter.SYN}, netfilter.SegmentSize{From: 1320, To: 65535}).
			Then(netfilter.SetSegmentSize(1280)),
		"-p tcp -m tcp --tcp-flags SYN,ACK SYN -m tcpmss --mss 1320:65535 -j TCPMSS --set-mss 1280", "",
	},
	{
		netfilter.If(netfilter.Input{Name: "cbr0"}, netfilter.UDP).Then(netfilter.SNAT{}),
		"-i cbr0 -p udp -j MASQUERADE", "",
	},
	{
		netfilter.If(netfilter.Not{Match: netfilter.Input{Name: "veth", Prefix: true}}).
			Then(netfilter.SNAT{Ports: netfilter.PortRange{First: 1024, Last: 29999}, Random: true}),
		"! -i veth+ -j MASQUERADE --to-ports 1024-29999 --random-fully", "",
	},
	{netfilter.If(netfilter.OneIn(3)).Then(netfilter.JumpTo("KUBE-A")), "-m statistic --mode random --probability 0.33333333349 -j KUBE-A", ""},
	{
		netfilter.If(netfilter.Seen{List: "KUBE-A", Within: 3 * time.Hour}).Then(netfilter.JumpTo("KUBE-A")),
		"-m recent --rcheck --seconds 10800 --reap --name KUBE-A --mask 255.255.255.255 --rsource -j KUBE-A",
		"-m recent --rcheck --seconds 10800 --reap --name KUBE-A --mask ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff --rsource -j KUBE-A",
	},
}

// ofOneFamily are rules that the other family cannot have.
var ofOneFamily = []struct {
	family rules.Family
	rule   netfilter.Rule
	text   string
}{
	{rules.IPv4, netfilter.If(netfilter.ICMP, netfilter.EchoRequest).Then(netfilter.Return), "-p icmp -m icmp --icmp-type 8 -j RETURN"},
	{rules.IPv6, netfilter.If(netfilter.ICMPv6, netfilter.EchoRequestV6).Then(netfilter.Return), "-p ipv6-icmp -m icmp6 --icmpv6-type 128 -j RETURN"},
	{
		rules.IPv4,
		netfilter.If(netfilter.Not{Match: netfilter.Source(prefix("10.244.0.0/16"))}, netfilter.DestinationIP(netip.MustParseAddr("10.96.0.1")),
			netfilter.SCTP, netfilter.DestinationPort{Protocol: netfilter.SCTP, Port: 80}).Then(netfilter.DNAT(netip.MustParseAddrPort("10.244.0.9:8080"))),
		"! -s 10.244.0.0/16 -d 10.96.0.1/32 -p sctp -m sctp --dport 80 -j DNAT --to-destination 10.244.0.9:8080",
	},
	{
		rules.IPv6,
		netfilter.If(netfilter.SourceIP(netip.MustParseAddr("fd00::1")), netfilter.TCP, netfilter.Remember{List: "L"}, netfilter.DestinationPort{Protocol: netfilter.TCP}).
			Then(netfilter.DNAT(netip.MustParseAddrPort("[fd00::2]:80"))),
		"-s fd00::1/128 -p tcp -m recent --set --name L --mask ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff --rsource -m tcp -j DNAT --to-destination [fd00::2]:80",
	},
}

// TestRuleIsReadBackAsItWasWritten: the text is what iptables-save prints, and means the rule.
func TestRuleIsReadBackAsItWasWritten(t *testing.T) {
	check := func(f rules.Family, r netfilter.Rule, want string) {
		l := netfilter.NewLine(f, r)
		if l.String() != want {
			t.Errorf("%s: text %q, want %q", f, l, want)
		}
		if saved := rules.Canonical(f, want); saved != want {
			t.Errorf("%s: iptables-save prints %q of %q", f, saved, want)
		}
		if back := l.Rule(f); !back.Equal(r) {
			t.Errorf("%s: %q is read as %#v, want %#v", f, l, back, r)
		}
	}
	for _, tt := range spelled {
		check(rules.IPv4, tt.rule, tt.v4)
		if tt.v6 == "" {
			tt.v6 = tt.v4
		}
		check(rules.IPv6, tt.rule, tt.v6)
	}
	for _, tt := range ofOneFamily {
		check(tt.family, tt.rule, tt.text)
	}
}

// TestRulesOfOtherPrograms: a match without a type is kept as text, beside those that have one.
func TestRulesOfOtherPrograms(t *testing.T) {
	for text, want := range map[string]netfilter.Rule{
		"-m physdev ! --physdev-is-in -m set --match-set A src -j KUBE-A": {
			Match:  []netfilter.Match{netfilter.Unknown("-m physdev ! --physdev-is-in"), netfilter.InSet{Name: "A", By: netfilter.Fields{netfilter.Src}}},
			Target: netfilter.JumpTo("KUBE-A"),
		},
		"-o eth0 -p tcp -m multiport --dports 80,443 -j LOG --log-prefix x --log-level 4": {
			Match:  []netfilter.Match{netfilter.Unknown("-o eth0"), netfilter.TCP, netfilter.Unknown("-m multiport --dports 80,443")},
			Target: netfilter.UnknownTarget("-j LOG --log-prefix x --log-level 4"),
		},
		"-g ELSEWHERE":                      {Target: netfilter.UnknownTarget("-g ELSEWHERE")},
		"-j REJECT --reject-with tcp-reset": {Target: netfilter.UnknownTarget("-j REJECT --reject-with tcp-reset")},
		"-m recent --update --name L":       {Match: []netfilter.Match{netfilter.Unknown("-m recent --update --name L --mask 255.255.255.255 --rsource")}},
		"-m statistic --mode nth --every 3": {Match: []netfilter.Match{netfilter.Unknown("-m statistic --mode nth --every 3")}},
		`-m comment --comment "not closed`:  {Match: []netfilter.Match{netfilter.Unknown(`-m comment --comment "not closed`)}},
	} {
		if got := netfilter.ReadLine(text).Rule(rules.IPv4); !got.Equal(want) {
			t.Errorf("%s: read as %#v, want %#v", text, got, want)
		}
	}
}

// TestLineLeadsWhereItsRuleDoes: the target that is found without reading the line is that of
// the rule, whatever is in its comment.
func TestLineLeadsWhereItsRuleDoes(t *testing.T) {
	for text, want := range map[string]string{
		"-j KUBE-A": "KUBE-A",
		`-m comment --comment "a -j KUBE-B rule" -j KUBE-A`:                    "KUBE-A",
		"-p tcp -j DNAT --to-destination 10.0.0.1:80":                          "DNAT",
		"-m comment --comment x":                                               "",
		"-j REJECT --reject-with icmp-port-unreachable":                        "REJECT",
		"-s 10.0.0.0/8 -m set --match-set KUBE-CLUSTER-IP dst,dst -j KUBE-SEP": "KUBE-SEP",
	} {
		if got := netfilter.ReadLine(text).JumpsTo(); got != want {
			t.Errorf("%s: leads to %q, want %q", text, got, want)
		}
	}
}

func TestChainOfLines(t *testing.T) {
	set := func(name string) netfilter.Match {
		return netfilter.InSet{Name: name, By: netfilter.Fields{netfilter.Dst}}
	}
	a, b := netfilter.If(set("KUBE-A")).Then(netfilter.Drop), netfilter.If(netfilter.Not{Match: set("KUBE-B")}).Then(netfilter.Accept)
	c := netfilter.NewChain(rules.IPv4, a).Then(netfilter.NewChain(rules.IPv4, b))
	if c != netfilter.NewChain(rules.IPv4, a, b) || c != netfilter.ChainOf([]netfilter.Line{netfilter.NewLine(rules.IPv4, a), netfilter.NewLine(rules.IPv4, b)}) {
		t.Errorf("two rules put together in three ways differ: %v", c)
	}
	var read []netfilter.Rule
	for r := range c.Rules(rules.IPv4) {
		read = append(read, r)
	}
	if len(read) != 2 || !read[0].Equal(a) || !read[1].Equal(b) {
		t.Errorf("read %v", read)
	}
	for name, want := range map[string]bool{"KUBE-A": true, "KUBE-B": true, "KUBE": false, "dst": false} {
		if got := c.RefersTo(rules.IPv4, name); got != want {
			t.Errorf("refers to %s: %t, want %t", name, got, want)
		}
	}
	for range (netfilter.Chain{}).Lines() {
		t.Error("an empty chain has a line")
	}
}

// TestJumpsHaveAPlace: the last one that is put at the head of a hook is the first that packets
// meet, and one at the end stays there.
func TestJumpsHaveAPlace(t *testing.T) {
	list := netfilter.Jumps{
		{Table: "filter", Hook: "INPUT", Target: "KUBE-A", Match: netfilter.New, Comment: "a"},
		{Table: "filter", Hook: "INPUT", Target: "KUBE-B", Comment: "b"},
		{Table: "filter", Hook: "INPUT", Target: "KUBE-Z", Comment: "z", Last: true},
	}
	var b strings.Builder
	rows := list.Rows(4, func(k netfilter.ChainKey) bool { return k.Name != "KUBE-Z" })
	if err := netfilter.WriteSave(&b, nil, rows, list); err != nil || len(rows) != 2 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	want := "# ip\n*filter\n-A INPUT -m comment --comment b -j KUBE-B\n-A INPUT -m conntrack --ctstate NEW -m comment --comment a -j KUBE-A\nCOMMIT\n"
	if b.String() != want {
		t.Errorf("printed %q, want %q", b.String(), want)
	}
	key := func(target string) netfilter.JumpKey {
		return netfilter.JumpKey{Family: rules.IPv4, Table: "filter", Hook: "INPUT", Target: target}
	}
	if list.CompareInHook(key("KUBE-A"), key("KUBE-Z")) >= 0 || list.Compare(key("KUBE-A"), key("KUBE-B")) >= 0 || list.Compare(key("KUBE-Z"), key("KUBE-X")) >= 0 {
		t.Error("wrong order")
	}
}
