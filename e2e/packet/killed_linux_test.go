package packet

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/e2e/load"
)

// churned is how many Services change all the time while the agent is killed.
const churned = 40

// kills is how often it is killed: each takes a slow machine some seconds, so the whole fifty are asked for.
func kills(t *testing.T) int {
	t.Helper()
	text := os.Getenv("KUBE_IPVS_E2E_KILLS")
	if text == "" {
		return 12
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("KUBE_IPVS_E2E_KILLS: %v", err)
	}
	return n
}

// churn changes Services at random. The endpoints do not exist: the test only compares the rows in
// the kernel.
type churn struct {
	*proxy
	random *rand.Rand
	there  map[int]bool // which Services have a manifest
	kind   string       // backend of the rules in iptables mode; empty in ipvs mode
}

// edit changes a few Services: it deletes some, and writes others again.
func (c *churn) edit(t *testing.T) {
	t.Helper()
	for range 1 + c.random.IntN(6) {
		i := c.random.IntN(churned)
		if c.there[i] && c.random.IntN(4) == 0 {
			c.there[i] = false
			if err := os.Remove(filepath.Join(c.manifests, c.service(i).name+".yaml")); err != nil {
				t.Error(err)
			}
			continue
		}
		c.there[i] = true
		c.write(t, c.service(i))
	}
}

// service makes up a Service: endpoints in all conditions, and what else has rows of its own.
func (c *churn) service(i int) service {
	s := service{
		name: fmt.Sprintf("churned-%02d", i), vip: pair{fmt.Sprintf("10.98.0.%d", i+1), fmt.Sprintf("fd00:98::%x", i+1)}, ports: webPorts()[:1+c.random.IntN(3)],
	}
	for e := range c.random.IntN(5) {
		s.backends = append(s.backends, endpoint{
			addr: fmt.Sprintf("10.245.%d.%d", i, e+1), node: []string{thisNode, otherNode}[e%2],
			unready: c.random.IntN(6) == 0, terminating: c.random.IntN(6) == 0,
		}, endpoint{addr: fmt.Sprintf("fd00:10:245:%x::%x", i, e+1), node: []string{thisNode, otherNode}[e%2]})
	}
	sometimes := func() bool { return c.random.IntN(3) == 0 }
	if sometimes() {
		s.affinity = 600
	}
	if sometimes() {
		s.nodePort = 30200 + i
	}
	if sometimes() {
		s.lb, s.ranges = pair{v4: fmt.Sprintf("198.18.5.%d", i+1)}, []string{"203.0.113.0/24"}
	}
	s.internalLocal, s.externalLocal = sometimes(), sometimes() && (s.nodePort > 0 || s.lb != pair{})
	if !sometimes() {
		s.annotations = annotations{"drain": "0s"}
	}
	return s
}

// TestKilledAtRandomMoments kills the agent again and again, while it starts, while it works and while it rests, and Services change
// before, meanwhile and while none runs. After each start the kernel is as planned, and clients of Services that did
// not change notice nothing.
func TestKilledAtRandomMoments(t *testing.T) {
	newWorld(t).killedAtRandom(t, "")
}

// killedAtRandom does so in ipvs mode, or in iptables mode with one kind of rules.
func (w *world) killedAtRandom(t *testing.T, kind string) {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	flags := []string{"--cluster-cidr", clusters, "--drain", "1s"}
	if kind != "" {
		flags = inIPTables(kind, flags[:2]...)
	}
	n := newAgent(t, w.node, flags...)
	c := &churn{kind: kind, proxy: n, random: rand.New(rand.NewPCG(seed, 0)), there: map[int]bool{}}
	steady := w.web(t)
	n.writeFile(t, "nodes.yaml", w.nodes())
	n.write(t, steady)
	for i := range churned {
		c.there[i] = true
		n.write(t, c.service(i))
	}
	n.start(t)
	var runs []*load.Run
	for i, from := range []*pod{w.visitor, w.outside} {
		to := steady.vip.of(families[i])
		runs = append(runs, from.load(t, load.Profile{
			To: netip.MustParseAddrPort(hostPort(to, 80)), Sources: []netip.Addr{from.source(to)}, New: 10, Long: 6, Every: time.Second,
		}))
	}
	start, rounds, killed := time.Now(), 0, 0
	for ; killed < kills(t); rounds++ {
		killed += c.round(t)
		if err := c.asPlanned(t); err != nil {
			t.Fatalf("seed %d, after %d kills: %v", seed, killed, err)
		}
	}
	t.Logf("figure: %d kills, %d times compared with the plan, in %s", killed, rounds, time.Since(start).Round(time.Second))
	for _, run := range runs {
		got, err := run.Stop()
		t.Logf("figure: of %d new connections %d failed, the slowest took %s; of %d held open %d live",
			got.Started, got.Failures(), got.Worst().Round(time.Millisecond), len(got.Long.Conns), got.Long.Alive)
		if err != nil || got.Failures() > 0 || got.Long.Alive != 6 {
			t.Errorf("%v\n%s", err, report(got))
		}
	}
}

// round kills the agent once or more, and leaves one that runs and has nothing to do. It returns how often.
func (c *churn) round(t *testing.T) int {
	t.Helper()
	moment := func(most time.Duration) { time.Sleep(time.Duration(c.random.Int64N(int64(most)))) }
	c.edit(t)
	moment(300 * time.Millisecond)
	c.kill(t)
	killed := 1
	for c.random.IntN(3) > 0 { // a start that does not come to its end
		c.edit(t)
		c.launch(t, append([]string{program()}, c.flags...))
		moment(time.Second)
		c.kill(t)
		killed++
	}
	if c.random.IntN(2) == 0 {
		c.edit(t)
	}
	c.start(t)
	return killed
}

// ours is what of the node's kernel a plan speaks of.
func (c *churn) ours(t *testing.T) view {
	t.Helper()
	if c.kind != "" {
		return ours(c.lookAtRules(t, c.kind))
	}
	return ours(c.look(t, "nft"))
}

// asPlanned waits until the kernel is as planned. Draining destinations are no part of a
// plan, and end soon.
func (c *churn) asPlanned(t *testing.T) error {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		diff := cmp.Diff(c.planned(t), c.ours(t))
		if diff == "" {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the kernel is not what was planned (-plan +kernel):\n%s", diff)
		}
		time.Sleep(200 * time.Millisecond)
	}
}
