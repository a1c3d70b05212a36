package packet

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
)

// heldServices have a scheduler that changes, and heldRounds is how often the agent is stopped meanwhile.
const (
	heldServices = 100
	heldRounds   = 12
)

// TestNoClientIsHeldByAStoppedAgent: at whatever step the agent loses its processor, it keeps no client out for longer
// than a retry of TCP takes.
func TestNoClientIsHeldByAStoppedAgent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pod1.serve(t, 8080)
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	var all []service
	for i := range heldServices {
		all = append(all, service{
			name: fmt.Sprintf("held-%d", i), vip: pair{v4: fmt.Sprintf("10.96.7.%d", i+1)}, ports: webPorts()[:1], backends: endpoints(w.pod1)[:1],
			annotations: annotations{"scheduler": "rr"},
		})
	}
	n.write(t, all...)
	n.start(t)
	signal := func(s syscall.Signal) { n.must(t, n.process.Process.Signal(s)) }
	admitted := func(what string) {
		t.Helper()
		for _, i := range []int{0, heldServices / 2, heldServices - 1} {
			for _, c := range []*pod{w.pod3, w.host(), w.outside} {
				if got := c.askFor(settleTimeout, backend.TCP, all[i].vip.v4, 80, 1); got.OK != 1 {
					t.Errorf("%s, the agent being stopped, from %s to %s\n%s", what, c.name, all[i].name, text(got))
				}
			}
		}
	}
	held := 0
	for round := range heldRounds {
		for i := range all {
			all[i].annotations = annotations{"scheduler": []string{"wrr", "rr"}[round%2]}
		}
		n.write(t, all...)
		time.Sleep(time.Duration(rand.IntN(1000)) * time.Millisecond)
		signal(syscall.SIGSTOP)
		held += strings.Count(w.node.shell(t, "ipset save KUBE-HOLD"), "add ")
		admitted(fmt.Sprintf("round %d", round))
		signal(syscall.SIGCONT)
		n.quiet(t)
	}
	t.Logf("figure: %d clients were held when the agent was stopped %d times", held, heldRounds)

	// The worst moment, made by hand.
	signal(syscall.SIGSTOP)
	var entries []string
	for _, s := range all {
		entries = append(entries, "add KUBE-HOLD "+s.vip.v4+",tcp:80")
	}
	_, err := w.node.feed(strings.Join(entries, "\n")+"\n", "ipset", "restore")
	n.must(t, err)
	admitted("all of them held")
	signal(syscall.SIGCONT)
}

// dropped is a value of the metric, -1 where there is none.
func (n *proxy) dropped(t *testing.T, reason, family string) int {
	t.Helper()
	page := n.page(t, "/metrics")
	found := regexp.MustCompile(`(?m)^kube_ipvs_dropped_packets_total\{family="` + family + `",reason="` + reason + `"\} (\S+)$`).FindStringSubmatch(page)
	if found == nil {
		return -1
	}
	v, err := strconv.ParseFloat(found[1], 64)
	n.must(t, err)
	return int(v)
}

// TestDropsAreCounted: each packet that a rule drops or refuses is in the metric by its reason, and explain has it.
func TestDropsAreCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.drops(t, newAgent(t, w.node, "--cluster-cidr", clusters), map[string]string{
		"far": "no_local_endpoints all Services together", "narrow": "source_ranges all Services together", "vip": "no_service all Services together",
	})
}

func TestIPTablesDropsAreCounted(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		w := iptablesWorld(t)
		w.drops(t, newAgent(t, w.node, append([]string{"--cluster-cidr", clusters}, inIPTables(kind)...)...), map[string]string{
			"far": "no_local_endpoints test/far:tcp", "narrow": "source_ranges test/narrow:tcp", "empty": "no_endpoints test/empty:tcp",
		})
	})
}

// drops causes drops for each reason that a mode has: want has the reason for each Service, and the packets that its rule counts.
func (w *world) drops(t *testing.T, n *proxy, want map[string]string) {
	to := map[string]service{
		"far": {name: "far", vip: pair{v4: "10.96.0.21"}, lb: pair{v4: "198.18.3.1"}, ports: webPorts()[:1], externalLocal: true, backends: endpoints(w.remote1)},
		"narrow": {name: "narrow", vip: pair{v4: "10.96.0.22"}, lb: pair{v4: "198.18.3.2"}, ports: webPorts()[:1], ranges: []string{"192.0.2.0/24"},
			backends: endpoints(w.pod1)},
		"empty": {name: "empty", vip: pair{v4: "10.96.0.23"}, ports: webPorts()[:1]},
		"vip":   {name: "vip", vip: pair{v4: "10.96.0.24"}, ports: webPorts()[:1], backends: endpoints(w.pod1)},
	}
	for _, s := range to {
		n.write(t, s)
	}
	n.start(t)
	for name, expected := range want {
		reason, of, _ := strings.Cut(expected, " ")
		before := -1
		poll(t, "the metric to have "+reason, settleTimeout, func() error {
			if before = n.dropped(t, reason, "IPv4"); before < 0 {
				return fmt.Errorf("it has not")
			}
			return nil
		})
		s, addr, port := to[name], to[name].vip.v4, 80
		if s.lb.v4 != "" {
			addr = s.lb.v4
		}
		if name == "vip" {
			port = 81
		}
		if got := w.outside.askFor(silence, backend.TCP, addr, port, 1); got.OK != 0 {
			t.Errorf("%s answered\n%s", name, text(got))
		}
		poll(t, "the metric to count "+reason, settleTimeout, func() error {
			if now := n.dropped(t, reason, "IPv4"); now <= before {
				return fmt.Errorf("%d, and %d before", now, before)
			}
			return nil
		})
		line := regexp.MustCompile(`(?m)^  [1-9][0-9]* +IPv4 +` + reason + ` +` + regexp.QuoteMeta(of) + `$`)
		poll(t, "explain to count them", settleTimeout, func() error {
			out, _ := n.verb("explain", "test/"+name) // its exit status means that something is wrong
			if !line.MatchString(out) {
				return fmt.Errorf("%s: no dropped packets for %s of %s:\n%s", name, reason, of, out)
			}
			return nil
		})
	}
}
