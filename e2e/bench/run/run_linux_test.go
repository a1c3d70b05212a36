package run

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/report"
	"github.com/kube-ipvs/kube-ipvs/e2e/kube/binaries"
)

// TestRun measures kube-proxy in iptables mode for some seconds, and a candidate that ends at once: the first has all its figures, the second
// its reason, and both have results.
func TestRun(t *testing.T) {
	if testing.Short() || os.Getuid() != 0 {
		t.Skip("needs root, an API server and kube-proxy: go test ./e2e/bench/run runs it, in a minute")
	}
	set, err := binaries.Find()
	if err != nil {
		t.Skip(err)
	}
	known, err := Choose([]string{"kube-proxy-iptables"})
	if err != nil {
		t.Fatal(err)
	}
	o := Options{
		Services: []int{20}, Endpoints: 3, Parts: []string{"endpoint", "service", "traffic", "roll", "churn"}, Samples: 2, Rate: 20, Out: t.TempDir(),
		Limit: time.Minute, Churn: 2 * time.Second, Settle: time.Millisecond, KubeProxy: set.Proxy, Log: t.Output(),
		Candidates: append([]Candidate{{"broken", "sh -c 'echo I cannot; exit 3'"}}, known...),
	}
	err = Run(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), "broken, 20 Services") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("error is %v, want that of the broken candidate alone", err)
	}
	results, err := report.Load(o.Out)
	if err != nil || len(results) != 2 {
		t.Fatalf("%d results, %v, want both", len(results), err)
	}
	broken, proxy := results[0], results[1]
	if broken.Start != nil || !strings.Contains(broken.Missing["rest"], "exit status 3") {
		t.Errorf("the broken candidate has %+v, %v", broken.Start, broken.Missing)
	}
	if s := proxy.Start; s == nil || s.Last.Over || s.Last.Seconds < s.First.Seconds || s.Unanswered != 0 || s.Cost.CPU() <= 0 {
		t.Fatalf("start of kube-proxy is %+v, missing %v", s, proxy.Missing)
	}
	if c := proxy.Endpoint; c == nil || c.Missed > 0 || c.Percentile(50).Seconds <= 0 || c.CPU <= 0 || c.Floor == nil {
		t.Errorf("change of an endpoint is %+v", c)
	}
	if c := proxy.Traffic; c == nil || c.Connections.Service.Rate() <= 0 || c.Requests.Direct.Rate() <= 0 || c.Requests.Service.P99 <= 0 {
		t.Errorf("traffic is %+v", c)
	}
	if r := proxy.Roll; r == nil || r.Done.Over || r.Asked == 0 {
		t.Errorf("roll is %+v", r)
	}
	if c := proxy.Churn; c == nil || c.Changes < 1 || len(c.Probes.Times) < 1 {
		t.Errorf("churn is %+v", c)
	}
	if text, err := os.ReadFile(o.Out + "/output-00020-broken.log"); err != nil || string(text) != "I cannot\n" {
		t.Errorf("the broken candidate printed %q, %v", text, err)
	}
}
