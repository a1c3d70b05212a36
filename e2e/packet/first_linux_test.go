package packet

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/load"
	"github.com/kube-ipvs/kube-ipvs/internal/agent"
)

// firstServices is how many Services a node finds that was just booted.
const firstServices = 5000

// ordinary is one of them.
func ordinary(i int) service {
	n := 2 * i
	return service{
		name: fmt.Sprintf("ordinary-%04d", i), vip: pair{v4: fmt.Sprintf("10.101.%d.%d", i/250, i%250+1)}, ports: []port{{"http", "TCP", 80, 8080}},
		backends: []endpoint{
			{addr: fmt.Sprintf("10.246.%d.%d", n/250, n%250+1), node: otherNode},
			{addr: fmt.Sprintf("10.246.%d.%d", n/250, n%250+2), node: otherNode},
		},
	}
}

// TestFirstSync5000: a node joins a cluster of 5,000 Services. The kubernetes Service is served, to
// pods and to the host, before the rest is in the kernel.
func TestFirstSync5000(t *testing.T) {
	w := newWorld(t)
	w.pod1.serve(t, 8080)
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	api := service{
		name: "kubernetes", namespace: "default", vip: pair{v4: "10.96.0.1"}, ports: []port{{"https", "TCP", 443, 8080}}, backends: endpoints(w.pod1)[:1],
	}
	items := api.items()
	for i := range firstServices - 1 {
		items = append(items, ordinary(i).items()...)
	}
	const inFile = 1000
	for i := 0; i < len(items); i += inFile { // the API server's is in the last file by name
		n.writeFile(t, fmt.Sprintf("services-%03d.yaml", 100-i/inFile), list(items[i:min(i+inFile, len(items))]...))
	}
	var runs []*load.Run
	for _, from := range []*pod{w.host(), w.pod3} {
		profile := load.Profile{To: netip.MustParseAddrPort("10.96.0.1:443"), New: 5, Timeout: time.Second}
		if from.name != "host" {
			profile.Sources = []netip.Addr{from.source("10.96.0.1")}
		}
		runs = append(runs, from.load(t, profile))
	}
	start := time.Now()
	n.launch(t, append([]string{program()}, n.flags...))
	answered := make([]time.Duration, len(runs))
	atAnswer := 0
	poll(t, "the API server's Service to answer", firstPatience, func() error {
		waiting := 0
		for i, run := range runs {
			if answered[i] == 0 && run.Report().OK > 0 {
				answered[i] = time.Since(start)
				atAnswer = w.node.countServers(t)
			}
			if answered[i] == 0 {
				waiting++
			}
		}
		if waiting > 0 {
			return fmt.Errorf("%d of %d clients still wait", waiting, len(runs))
		}
		return nil
	})
	if atAnswer >= firstServices {
		t.Errorf("when the API server's Service answered, all %d virtual servers were in the kernel already", firstServices)
	}
	var s agent.Status
	poll(t, "everything to be in the kernel", firstPatience, func() (err error) {
		if s, err = n.status(); err == nil && (!s.Ready || s.Failures > 0) {
			err = fmt.Errorf("status %+v", s)
		}
		return err
	})
	t.Logf("figure: %d Services: the API server's answers the host after %s and a pod after %s, with %d virtual servers in the kernel; all %d are there after %s (of which %s applying)",
		s.Services, answered[0].Round(10*time.Millisecond), answered[1].Round(10*time.Millisecond), atAnswer, w.node.countServers(t),
		time.Since(start).Round(10*time.Millisecond), s.Last.Took.Round(10*time.Millisecond))
}

// firstPatience bounds the wait for so many Services.
const firstPatience = 5 * time.Minute
