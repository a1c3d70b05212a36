package rules_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// spellings are ways to write a rule, with what iptables-save prints. The
// kernel test checks the same table against the tools.
var spellings = []struct {
	name     string
	family   rules.Family
	table    string
	in, want string
}{
	{"or-mark", 4, "nat", "-j MARK --or-mark 0x00004000", "-j MARK --set-xmark 0x4000/0x4000"},
	{"xor-mark", 4, "nat", "-j MARK --xor-mark 0x00004000", "-j MARK --set-xmark 0x4000/0x0"},
	{"and-mark", 6, "mangle", "-j MARK --and-mark 0xffffbfff", "-j MARK --set-xmark 0x0/0x4000"},
	{"set-mark", 4, "mangle", "-j MARK --set-mark 16385", "-j MARK --set-xmark 0x4001/0xffffffff"},
	{"set-mark with mask", 4, "mangle", "-j MARK --set-mark 0x3/0x1", "-j MARK --set-xmark 0x3/0x3"},
	{"a comment like an option", 4, "nat", `-m comment --comment "-c" -j RETURN`, "-m comment --comment -c -j RETURN"},
	{"a comment like a negation", 4, "nat", `-m comment --comment "!" -j RETURN`, `-m comment --comment "!" -j RETURN`},
	{"mark match", 4, "nat", "-m mark ! --mark 0x00004000/0x00004000 -j RETURN", "-m mark ! --mark 0x4000/0x4000 -j RETURN"},
	{"full mask is not shown", 6, "nat", "-m mark --mark 1/0xffffffff -j RETURN", "-m mark --mark 0x1 -j RETURN"},
	{"zero mark", 4, "nat", "-m mark --mark 0 -j RETURN", "-m mark --mark 0x0 -j RETURN"},
	{"state order", 4, "filter", "-m conntrack --ctstate ESTABLISHED,RELATED,NEW -j ACCEPT", "-m conntrack --ctstate NEW,RELATED,ESTABLISHED -j ACCEPT"},
	{"refusal", 4, "filter", "-j REJECT", "-j REJECT --reject-with icmp-port-unreachable"},
	{"refusal v6", 6, "filter", "-j REJECT", "-j REJECT --reject-with icmp6-port-unreachable"},
	{"reset", 6, "filter", "-p tcp -j REJECT --reject-with tcp-reset", "-p tcp -j REJECT --reject-with tcp-reset"},
	{"host address", 4, "filter", "-d 10.0.0.1 -j DROP", "-d 10.0.0.1/32 -j DROP"},
	{"host bits", 4, "filter", "-d 10.1.2.3/8 -j DROP", "-d 10.0.0.0/8 -j DROP"},
	{"v6 spelling", 6, "filter", "-d FD00:0:0::1 -j DROP", "-d fd00::1/128 -j DROP"},
	{"everything", 4, "filter", "-s 0.0.0.0/0 -p all -j DROP", "-j DROP"},
	{"built-in matches last", 4, "nat", `-m comment --comment "ns1/svc1:p80 cluster IP" -m tcp -p tcp --dport 80 -d 10.0.0.1/32 ! -s 10.0.0.0/8 -j RETURN`, `! -s 10.0.0.0/8 -d 10.0.0.1/32 -p tcp -m comment --comment "ns1/svc1:p80 cluster IP" -m tcp --dport 80 -j RETURN`},
	{"implied match", 4, "filter", "-p udp --dport 53 -j DROP", "-p udp -m udp --dport 53 -j DROP"},
	{"protocol number", 6, "filter", "-p 58 -j ACCEPT", "-p ipv6-icmp -j ACCEPT"},
	{"icmp type", 4, "filter", "-p icmp -m icmp --icmp-type 8 -j ACCEPT", "-p icmp -m icmp --icmp-type 8 -j ACCEPT"},
	{"word as comment", 4, "nat", `-m comment --comment "loop" -j RETURN`, "-m comment --comment loop -j RETURN"},
	{"colon in comment", 4, "nat", "-m comment --comment ns1/svc1:p80 -j RETURN", `-m comment --comment "ns1/svc1:p80" -j RETURN`},
	{"quotes in comment", 4, "nat", `-m comment --comment "it's \"so\" \\" -j RETURN`, `-m comment --comment "it\'s \"so\" \\" -j RETURN`},
	{"dash in comment", 4, "nat", `-m comment --comment "-j DROP" -j RETURN`, `-m comment --comment "-j DROP" -j RETURN`},
	{"probability", 4, "nat", "-m statistic --mode random --probability 0.3333333333 -j RETURN", "-m statistic --mode random --probability 0.33333333349 -j RETURN"},
	{"source port range", 4, "nat", "-p tcp -j MASQUERADE --random-fully --to-ports 1024-29999", "-p tcp -j MASQUERADE --to-ports 1024-29999 --random-fully"},
	{"translation", 4, "nat", "-p tcp --dport 80 -j DNAT --to-destination 10.96.0.10:80 -d 1.2.3.4", "-d 1.2.3.4/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.96.0.10:80"},
	{"translation v6", 6, "nat", "-d fd00::1 -p udp -m udp --dport 80 -j DNAT --to-destination [fd00:96::a]:80", "-d fd00::1/128 -p udp -m udp --dport 80 -j DNAT --to-destination [fd00:96::a]:80"},
	{"translation sctp", 6, "nat", "-d fd00::1 -p 132 --dport 80 -j DNAT --to-destination [fd00:96::a]:80", "-d fd00::1/128 -p sctp -m sctp --dport 80 -j DNAT --to-destination [fd00:96::a]:80"},
	{"source of this node", 4, "nat", `-m comment --comment "x" -m addrtype --src-type LOCAL -j RETURN`, "-m comment --comment x -m addrtype --src-type LOCAL -j RETURN"},
	{"links by prefix", 6, "filter", "-j RETURN ! -i cali+", "! -i cali+ -j RETURN"},
	{"state after translation", 4, "filter", "-m conntrack --ctstate dnat -j RETURN", "-m conntrack --ctstate DNAT -j RETURN"},
	{"recent", 4, "filter", "-m recent --name K --rcheck --seconds 10800 --reap -j RETURN", "-m recent --rcheck --seconds 10800 --reap --name K --mask 255.255.255.255 --rsource -j RETURN"},
	{"no target", 4, "filter", "-m comment --comment x", "-m comment --comment x"},
	{"unknown match", 4, "filter", "-p tcp -m multiport --dports 22,80 -j ACCEPT", "-p tcp -m multiport --dports 22,80 -j ACCEPT"},
}

func TestCanonical(t *testing.T) {
	for _, tc := range spellings {
		t.Run(tc.name, func(t *testing.T) {
			got := rules.Canonical(tc.family, tc.in)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if again := rules.Canonical(tc.family, got); again != got {
				t.Errorf("not stable: %s", again)
			}
		})
	}
}

// Shapes that no kernel at hand or no tool accepts.
func TestCanonicalBeyondTheTools(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"ipvs match", "-m ipvs --vaddr 10.0.0.1/32 --vproto tcp --vport 80 -s 10.0.0.1 -j DROP", "-s 10.0.0.1/32 -m ipvs --vproto 6 --vaddr 10.0.0.1 --vport 80 -j DROP"},
		{"goto", "-p tcp -g KUBE-B", "-p tcp -g KUBE-B"},
		{"long names", "--protocol tcp --source 10.0.0.1 --match comment --comment x --jump DROP", "-s 10.0.0.1/32 -p tcp -m comment --comment x -j DROP"},
		{"counters", "-p tcp -c 12 345 -j DROP", "-p tcp -j DROP"},
		{"open quote stays", `-m comment --comment "x -j  DROP`, `-m comment --comment "x -j  DROP`},
		{"stray word stays", "wat   -j DROP", "wat   -j DROP"},
		{"cut-off option stays", "-p tcp -s", "-p tcp -s"},
		{"blank lines go", "\n -j DROP \n\n-j ACCEPT\n", "-j DROP\n-j ACCEPT"},
		{"unknown extension keeps its text", `-m foo  --bar "a b" c -j BAZ --qux 010`, `-m foo --bar "a b" c -j BAZ --qux 010`},
		{"bad mark stays", "-j MARK --set-mark zz", "-j MARK --set-mark zz"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, rules.Canonical(rules.IPv4, tc.in)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTargets(t *testing.T) {
	got := rules.Targets("-j DROP\n-m comment --comment \"-j NO\" -j KUBE-A\n-p tcp\n-g KUBE-B")
	if diff := cmp.Diff("DROP KUBE-A KUBE-B", strings.Join(got, " ")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWords(t *testing.T) {
	for _, tc := range []struct {
		name, rule string
		want       []string
	}{
		{"quotes are resolved", `-m comment --comment "it\'s \"so\"" -j DROP`, []string{"-m", "comment", "--comment", `it's "so"`, "-j", "DROP"}},
		{"empty word stays", `--log-prefix ""`, []string{"--log-prefix", ""}},
		{"open quote", `-m comment --comment "x -j DROP`, []string{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, rules.Words(tc.rule)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzCanonical(f *testing.F) {
	for _, tc := range spellings {
		f.Add(tc.in)
	}
	f.Add("-j \f -i c")            // a space of Unicode is a letter here, at the end of a rule, too
	f.Add("-s 0.0.0.0/0\n-j DROP") // all, to nowhere
	f.Add("-m mark --mark -f 0")   // a value that stands behind no option
	f.Add("-m comment --comment \"-c\" - 0")
	f.Add("-m comment --dport -p tCp") // ports of no protocol yet
	f.Fuzz(func(t *testing.T, rule string) {
		once := rules.Canonical(rules.IPv4, rule)
		if twice := rules.Canonical(rules.IPv4, once); twice != once {
			t.Errorf("%q: %q, then %q", rule, once, twice)
		}
	})
}
