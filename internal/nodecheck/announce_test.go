package nodecheck

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/diagnosis"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link/linktest"
)

func TestAnnounceCheck(t *testing.T) {
	for _, tt := range []struct {
		name  string
		links func(*linktest.Fake)
		want  diagnosis.Verdict
	}{
		{"a table of its own", func(f *linktest.Fake) { f.LeadTo(200, 5000) }, diagnosis.Verdict{State: diagnosis.OK, Detail: "no routing rule leads to table 100"}},
		{"a table that packets follow", func(f *linktest.Fake) { f.LeadTo(100, 5000, 6000) }, diagnosis.Verdict{State: diagnosis.Warn,
			Detail: "the routing rule with priority 5000 leads to table 100, whose routes drop packets: the agent announces no address",
			Fix:    "choose a table that no routing rule leads to (--announce-table), or delete the rules that ip rule list table 100 and ip -6 rule list table 100 show"}},
		{"no answer", func(f *linktest.Fake) { f.FailAlways(linktest.RulesTo, link.ErrBusy) }, diagnosis.Verdict{State: diagnosis.Failed,
			Detail: "list rules: busy", Fix: "run as root, in the network namespace of the host"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			links := linktest.New()
			tt.links(links)
			tt.want.Name = "announced addresses"
			if diff := cmp.Diff([]diagnosis.Verdict{tt.want}, diagnosis.Run(t.Context(), []diagnosis.Check{announceCheck(100, links.RulesTo)})); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}
