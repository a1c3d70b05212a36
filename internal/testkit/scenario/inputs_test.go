package scenario_test

import (
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/testkit/scenario"
)

// fedNode returns a node whose agents are fed.
func fedNode(t *testing.T) (*scenario.Fakes, *scenario.Feed) {
	t.Helper()
	feed := scenario.NewFeed()
	n := scenario.NewFedFakes(feed)
	t.Cleanup(n.Close)
	return n, feed
}

// A feed does what a directory does, with the same words of the kernel.
func TestFeedIsLikeADirectory(t *testing.T) {
	n, feed := fedNode(t)
	moved := strings.ReplaceAll(web, "10.96.0.10", "10.96.0.12")
	feed.Put("b.yaml", web)
	must(t, n.Start(scenario.Start{}))
	servers := func(want string) func() bool {
		return func() bool { return found(n, "servers", `-A -t (\S+)`) == want }
	}
	for _, tt := range []struct {
		name string
		do   func()
		want string
	}{
		{"a file that is there", func() {}, "10.96.0.10:80"},
		{"the same object in a file before it", func() { feed.Put("a.yaml", moved) }, "10.96.0.12:80"},
		{"and in one behind it", func() { feed.Put("c.yaml", open) }, "10.96.0.11:80 10.96.0.12:80 192.0.2.254:80"},
		{"a bad file keeps its last good content", func() { feed.Put("a.yaml", "kind: ["); feed.Remove("c.yaml") }, "10.96.0.12:80"},
		{"a file that is gone", func() { feed.Remove("a.yaml") }, "10.96.0.10:80"},
	} {
		tt.do()
		eventually(t, n, tt.name, servers(tt.want))
	}
	feed.Put("c.yaml", open)
	eventually(t, n, "both", servers("10.96.0.10:80 10.96.0.11:80 192.0.2.254:80"))
	feed.Put("b.yaml", "kind: [")
	must(t, n.Kill())
	must(t, n.Start(scenario.Start{}))
	eventually(t, n, "ready", func() bool { s, err := n.Status(t.Context()); return err == nil && s.Ready })
	if s, err := n.Status(t.Context()); err != nil || s.Complete || !servers("10.96.0.10:80 10.96.0.11:80 192.0.2.254:80")() {
		t.Errorf("with a file that was never good: complete %t, %v, %s", s.Complete, err, found(n, "servers", `-A -t (\S+)`))
	}
}

func TestAgentDiesInACall(t *testing.T) {
	n, feed := fedNode(t)
	feed.Put("a.yaml", web)
	must(t, n.Fault("sets", []string{"crash", "3"}))
	must(t, n.Start(scenario.Start{}))
	eventually(t, n, "another agent took its place", func() bool { return n.Rose() && asPlanned(n)() })
}

func TestJudgeTellsWhatIsDifferent(t *testing.T) {
	n, feed := fedNode(t)
	feed.Put("a.yaml", web)
	must(t, n.Tool(strings.Fields("ipvsadm -A -t 198.51.100.7:80 -s wlc")))
	j := scenario.NewComparator(n)
	must(t, j.Foreign())
	must(t, n.Start(scenario.Start{Audit: true})) // Agree gives up after some audits
	_, deadline := n.Pace()
	must(t, j.Agree(scenario.Start{}, deadline))
	other := scenario.Start{Flags: []string{"--ipvs-scheduler=lc"}}
	if err := j.Agree(other, 0); err == nil || !strings.Contains(err.Error(), "the agent does not want what is planned") {
		t.Errorf("an agent with other settings: %v", err)
	}
}
