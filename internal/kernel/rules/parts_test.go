package rules_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

func TestSplit(t *testing.T) {
	for _, tt := range []struct {
		rule string
		want rules.Parts
	}{
		{`-s 10.0.0.0/8 ! -i lo -p tcp -m tcp ! --dport 22 -m comment --comment "it's -j DROP" -j REJECT --reject-with tcp-reset`, rules.Parts{
			Options: []rules.Option{
				{Name: "-s", Args: []string{"10.0.0.0/8"}}, {Name: "-i", Not: true, Args: []string{"lo"}}, {Name: "-p", Args: []string{"tcp"}},
				{Match: "tcp", Name: "--dport", Not: true, Args: []string{"22"}}, {Match: "comment", Name: "--comment", Args: []string{"it's -j DROP"}},
			},
			Target: "REJECT", Of: []rules.Option{{Match: "REJECT", Name: "--reject-with", Args: []string{"tcp-reset"}}},
		}},
		{"-m conntrack --ctstate RELATED,ESTABLISHED -g other", rules.Parts{
			Options: []rules.Option{{Match: "conntrack", Name: "--ctstate", Args: []string{"RELATED,ESTABLISHED"}}}, Target: "other", Goto: true,
		}},
		{"-p tcp -m tcp", rules.Parts{Options: []rules.Option{{Name: "-p", Args: []string{"tcp"}}, {Match: "tcp"}}}},
	} {
		got, ok := rules.Split(rules.IPv4, tt.rule)
		if diff := cmp.Diff(tt.want, got); diff != "" || !ok {
			t.Errorf("%s: %t (-want +got):\n%s", tt.rule, ok, diff)
		}
	}
	if got, ok := rules.Split(rules.IPv4, "what is this"); ok {
		t.Errorf("nonsense is %+v", got)
	}
}
