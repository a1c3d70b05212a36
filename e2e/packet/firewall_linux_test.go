package packet

import (
	"slices"
	"testing"
)

// locked makes a node that lets nothing in and nothing through but what it is told: the neighbours it asks for, and itself.
const locked = `
for ip in iptables ip6tables; do
	$ip-nft -A INPUT -i lo -j ACCEPT
	$ip-nft -P INPUT DROP
	$ip-nft -P FORWARD DROP
done
ip6tables-nft -I INPUT -p ipv6-icmp -j ACCEPT`

// TestPolicyDrop: the node's own firewall lets nothing pass by default. Services work all the same, whichever came first.
func TestPolicyDrop(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		before bool
	}{{"locked before the agent", true}, {"locked while it runs", false}} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.pod1.serve(t, 8080)
			w.remote1.serve(t, 8080)
			spread, local := numberedService(1), numberedService(2)
			spread.backends, local.backends, local.externalLocal = endpoints(w.pod1, w.remote1), endpoints(w.pod1, w.remote1), true
			n := newAgent(t, w.node, "--detect-local-mode", "NodeCIDR")
			n.writeFile(t, "nodes.yaml", w.nodes())
			n.write(t, spread, local)
			if tt.before {
				w.node.shell(t, locked)
			}
			n.start(t)
			if !tt.before {
				w.node.shell(t, locked)
			}
			put(t, []any{"Service", "client"}, w.throughLocked(spread, local))

			// The host hears no answer to anything it asks until the firewall says so.
			w.node.shell(t, `for ip in iptables ip6tables; do $ip-nft -A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT; done`)
			put(t, []any{"Service", "client"}, w.byHost(spread, local))
		})
	}
}

// throughLocked are the questions whose packets come by INPUT and FORWARD, and one that shows the lock.
func (w *world) throughLocked(spread, local service) []*question {
	questions := ask("no Service", w.outside, fabAddr, 8080, dropped)
	for _, frontend := range words[dimFrontend] {
		to, port := spread.target(frontend, fabAddr)
		for _, c := range []*pod{w.pod2, w.outside} {
			questions = slices.Concat(questions, ask("policy Cluster, "+frontend, c, to, port, by(w.pod1, w.remote1), protos...))
		}
		if frontend == "ClusterIP" {
			continue
		}
		to, port = local.target(frontend, fabAddr)
		questions = slices.Concat(questions,
			ask("policy Local, "+frontend, w.pod2, to, port, by(w.pod1, w.remote1).seeing(w.pod2.addr)),
			ask("policy Local, "+frontend, w.outside, to, port, by(w.pod1).seeing(w.outside.addr)),
		)
	}
	return questions
}

func (w *world) byHost(services ...service) []*question {
	var questions []*question
	for _, s := range services {
		for _, frontend := range words[dimFrontend] {
			to, port := s.target(frontend, fabAddr)
			questions = append(questions, ask(s.name+", "+frontend, w.host(), to, port, by(w.pod1, w.remote1))...)
		}
	}
	return questions
}
