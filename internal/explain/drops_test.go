package explain_test

import (
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/explain"
)

// TestDroppedPackets: a Service shows what its own packets can meet, and marks a number that is that of all Services.
func TestDroppedPackets(t *testing.T) {
	found := there
	found.Drops = []explain.Drop{
		{Reason: "source_ranges", Family: "IPv4", Packets: 3, Rule: "KUBE-SOURCE-RANGES-FIREWALL -j DROP"},
		{Reason: "no_local_endpoints", Family: "IPv4", Packets: 4, Rule: "KUBE-IPVS-FILTER -j DROP"},
		{Reason: "no_endpoints", Family: "IPv6", Packets: 5, Port: "default/web:http", Rule: "KUBE-SERVICES -j REJECT"},
	}
	for name, tt := range map[string]struct {
		change func(*agent.Report)
		want   []string
	}{
		"its own":            {nil, []string{"5 IPv6 no_endpoints default/web:http"}},
		"with source ranges": {func(s *agent.Report) { s.Services[0].Frontends[0].SourceRanges = []string{"10.0.0.0/8"} }, []string{"3 IPv4 source_ranges all Services together", "5 IPv6 no_endpoints default/web:http"}},
		"without local ends": {func(s *agent.Report) { s.Services[0].Frontends[0].NoLocal = true }, []string{"4 IPv4 no_local_endpoints all Services together", "5 IPv6 no_endpoints default/web:http"}},
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			if err := explain.New("default/web", story(tt.change), nil, found).Write(&b, false); err != nil {
				t.Fatal(err)
			}
			_, section, _ := strings.Cut(b.String(), "Dropped packets\n")
			section, _, _ = strings.Cut(section, "\n\n")
			var got []string
			for line := range strings.Lines(section) {
				got = append(got, strings.Join(strings.Fields(line), " "))
			}
			if want := append([]string{"PACKETS FAMILY REASON OF"}, tt.want...); strings.Join(got, "|") != strings.Join(want, "|") {
				t.Errorf("%q, want %q in\n%s", got, want, b.String())
			}
		})
	}
}
