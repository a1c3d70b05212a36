package explain_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/explain"
	"github.com/kube-ipvs/kube-ipvs/internal/firewall"
	"github.com/kube-ipvs/kube-ipvs/internal/firewall/firewalltest"
)

// TestFirewallStory: a packet that a filter drops is not called forwarded, and the report has the commands that let it pass.
func TestFirewallStory(t *testing.T) {
	way := func(o dataplane.Origin) agent.PacketPath {
		return agent.PacketPath{Origin: o, PacketPath: dataplane.PacketPath{End: dataplane.EndForwarded, Steps: []string{"routing: local", "filter INPUT: rules of others, then KUBE-IPVS-ACCEPT accepts", "IPVS"}}}
	}
	s := &agent.Report{Mode: "ipvs", Node: "a", Synced: true, Services: []agent.ServiceReport{{
		Name: "default/web", Frontends: []agent.FrontendReport{{Key: "10.96.0.10:80/tcp", Kind: "ClusterIP", Asked: true, Taking: 1, Backends: 1, Paths: []agent.PacketPath{way(dataplane.FromPod), way(dataplane.FromHost)}}},
	}}}
	tables, err := (&firewalltest.Kernel{Drop: true}).Reader().Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var found explain.Found
	found.JudgeFirewalls(s, tables, firewall.Facts{IPVS: true})
	r := explain.New("default/web", s, nil, found)
	if !strings.HasPrefix(r.Verdict[0], "a firewall drops "+firewalltest.PolicyDrops) || r.OK {
		t.Errorf("verdict: %q", r.Verdict)
	}
	ways := s.Services[0].Frontends[0].Paths
	const step = "dropped: input hook, table inet filter, chain input: its policy is drop"
	if diff := cmp.Diff([]string{"routing: local", step}, ways[0].Steps); diff != "" || ways[0].End != dataplane.EndDropped || ways[1].End != dataplane.EndForwarded {
		t.Errorf("steps (-want +got), ends %s, %s:\n%s", ways[0].End, ways[1].End, diff)
	}
	var text strings.Builder
	if err := r.Write(&text, false); err != nil || !strings.Contains(text.String(), "\n  "+firewalltest.PolicyFix+"\n") {
		t.Errorf("%v, no remedy in\n%s", err, text.String())
	}
}
