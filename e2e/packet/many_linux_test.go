package packet

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
	"github.com/kube-ipvs/kube-ipvs/internal/agent"
)

// sharers is how many Services have one load-balancer address together.
const sharers = 500

// sharer is one of them; its port is its own.
func (w *world) sharer(i int) service {
	return service{
		name: fmt.Sprintf("sharer-%d", i), vip: pair{v4: fmt.Sprintf("10.97.%d.%d", i/250, i%250+1)}, lb: pair{v4: "198.18.9.9"},
		ports: []port{{"tcp", "TCP", 1000 + i, 8080}}, backends: endpoints(w.pod1)[:1],
	}
}

// TestManyOnOneLBAddress: the address is bound as long as one Service wants it, and each is served by its own port.
func TestManyOnOneLBAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pod1.serve(t, 8080)
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	for i := range sharers {
		n.write(t, w.sharer(i))
	}
	n.start(t)
	lb := w.sharer(0).lb
	bound := func() bool {
		return strings.Contains(w.node.run(t, "ip", "-o", "addr", "show", "dev", "kube-ipvs0"), " "+lb.v4+"/")
	}
	const deleted = 77
	n.edit(t, func() { n.remove(t, w.sharer(deleted)) })
	var questions []*question
	for i := range sharers {
		want := by(w.pod1)
		if i == deleted {
			want = refused
		}
		questions = append(questions, ask(fmt.Sprint(i), w.outside, lb, 1000+i, want, backend.TCP)...)
	}
	put(t, []any{"Service", "client"}, questions)
	if !bound() {
		t.Fatalf("%s is not bound any more", lb.v4)
	}
	for i := range sharers - 1 {
		if i != deleted {
			n.remove(t, w.sharer(i))
		}
	}
	last := sharers - 1
	n.settle(t, "have one Service left", func(s agent.Status) bool { return s.Services == 1 && s.Failures == 0 })
	put(t, []any{"Service", "client"}, ask("the last", w.outside, lb, 1000+last, by(w.pod1), backend.TCP))
	if !bound() {
		t.Errorf("%s is not bound any more, and a Service wants it", lb.v4)
	}
	n.edit(t, func() { n.remove(t, w.sharer(last)) })
	if bound() {
		t.Errorf("%s is still bound, and no Service wants it", lb.v4)
	}
}

// remove deletes a Service's manifest.
func (n *proxy) remove(t *testing.T, s service) {
	t.Helper()
	if err := os.Remove(filepath.Join(n.manifests, s.name+".yaml")); err != nil {
		t.Fatal(err)
	}
}

// crowd is how many endpoints one Service has.
const crowd = 5000

// crowded is a Service whose endpoints are all addresses of one pod.
func crowded() service {
	s := service{name: "crowded", vip: pair{v4: "10.96.0.70"}, ports: []port{{"tcp", "TCP", 80, 8080}}}
	first := netip.MustParseAddr("10.250.0.1")
	for range crowd {
		s.backends = append(s.backends, endpoint{addr: first.String(), node: otherNode})
		first = first.Next()
	}
	return s
}

// TestManyEndpoints: a Service has 5,000 endpoints, all are used, and one more costs one row.
func TestManyEndpoints(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pod1.shell(t, "ip route add local 10.250.0.0/19 dev lo")
	w.node.route(t, "cni0", "10.250.0.0/19", w.pod1.addr.v4)
	serve(t, w.pod1.space, backend.Config{Name: "crowd", TCP: ":8080"})
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	s := crowded()
	n.write(t, s)
	start := time.Now()
	status := n.start(t)
	t.Logf("ready after %s, apply alone %s", time.Since(start).Round(time.Millisecond), status.Last.Took)
	if got := strings.Count(w.node.run(t, "ipvsadm", "-Sn"), "-a -t 10.96.0.70:80 -r 10.250."); got != crowd {
		t.Errorf("%d destinations, want %d", got, crowd)
	}
	const requests = 200
	answered := w.outside.answering(t, s.vip.v4, requests)
	if len(answered) < requests-2 {
		t.Errorf("%d requests were answered by %d endpoints: round robin goes on to the next", requests, len(answered))
	}
	before := n.shown(t)
	s.backends = append(s.backends, endpoint{addr: "10.250.31.1", node: otherNode})
	start = time.Now()
	after := n.edit(t, func() { n.write(t, s) })
	t.Logf("one more: in the kernel after %s, apply alone %s", time.Since(start).Round(time.Millisecond), after.Last.Took)
	wantWritten(t, before, after, map[string]uint64{"destinations": 1})
}

// answering asks so often, and counts the addresses at which the backend was reached.
func (p *pod) answering(t *testing.T, addr string, n int) map[netip.Addr]int {
	t.Helper()
	out := map[netip.Addr]int{}
	err := p.do(func() error {
		for range n {
			reply, err := once(patience, backend.TCP, netip.MustParseAddrPort(hostPort(addr, 80)), p.source(addr))
			if err != nil {
				return err
			}
			out[reply.Local.Addr()]++
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return out
}
