package rules

import "testing"

func TestBrief(t *testing.T) {
	for _, tt := range []struct {
		family     Family
		rule, want string
	}{
		{IPv4, "-s 10.244.1.5/32 -j KUBE-MARK-MASQ", "-s 10.244.1.5 -j KUBE-MARK-MASQ"},
		{IPv4, "! -s 10.244.0.0/16 -d 10.96.0.1/32 -p tcp -m comment --comment \"a/32 -d 1.2.3.4/32 cluster IP\" -m tcp --dport 80 -j X",
			"! -s 10.244.0.0/16 -d 10.96.0.1 -p tcp -m comment --comment \"a/32 -d 1.2.3.4/32 cluster IP\" -m tcp --dport 80 -j X"},
		{IPv6, "-s fd00::5/128 -j X", "-s fd00::5 -j X"},
		{IPv6, "-s fd00::/32 -j X", "-s fd00::/32 -j X"},
		{IPv4, "-m statistic --mode random --probability 0.10000000009 -j X", "-m statistic --mode random --probability 0.1 -j X"},
		{IPv4, "-m statistic --mode random --probability 0.33333333349 -j X", "-m statistic --mode random --probability 0.3333333335 -j X"},
		{IPv4, "-m statistic --mode random --probability 0.50000000000 -j X", "-m statistic --mode random --probability 0.5 -j X"},
		{IPv4, "-j RETURN", "-j RETURN"},
		{IPv4, "", ""},
	} {
		got := brief(tt.rule)
		if got != tt.want {
			t.Errorf("%s\n got %s\nwant %s", tt.rule, got, tt.want)
		}
		if again := Canonical(tt.family, got); again != tt.rule {
			t.Errorf("%s means %s, want %s", got, again, tt.rule)
		}
	}
}
