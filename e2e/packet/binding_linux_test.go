package packet

import (
	"slices"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
)

// routed are the flags by which the cluster IPs of these tests are local by a route.
var routed = []string{"--vip-binding", "route", "--service-cidrs", "10.96.0.0/16,fd00:96::/108"}

// unused is an address of the ranges that no Service has.
var unused = pair{"10.96.200.1", "fd00:96::c801"}

// TestRoutedRange: if a route makes all cluster IPs local, a Service answers as on a bound address.
// Other addresses of the range never answer, even if a daemon of the host listens on all addresses.
// The binding changes in place.
func TestRoutedRange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pod1.serve(t, 8080)
	w.remote1.serve(t, 8080)
	serve(t, w.node.space, backend.Config{Name: "daemon", TCP: ":22", UDP: ":22"})
	web, here, detour := numberedService(1), numberedService(2), numberedService(4)
	web.backends, here.backends = endpoints(w.pod1, w.remote1), endpoints(w.pod1)
	detour.backends, detour.internalLocal, detour.externalLocal = endpoints(w.pod1, w.remote1), true, true
	n := newAgent(t, w.node, append([]string{"--cluster-cidr", clusters}, routed...)...)
	n.writeFile(t, "nodes.yaml", w.nodes())
	n.write(t, web, here, detour)
	n.start(t)
	w.checkBinding(t, true, web)
	w.checkRanges(t, "routed", true, web, here, detour)

	for _, binding := range []string{"address", "route"} {
		if _, err := n.stop(t); err != nil {
			t.Fatalf("stop the agent: %v", err)
		}
		n.start(t, "--vip-binding", binding)
		w.checkBinding(t, binding == "route", web)
		w.checkRanges(t, "changed to "+binding, binding == "route", web, here, detour)
	}
}

// checkBinding requires the addresses of a Service to be local in the right way.
func (w *world) checkBinding(t *testing.T, routed bool, web service) {
	t.Helper()
	bound := w.node.run(t, "ip", "-o", "addr", "show", "dev", "kube-ipvs0")
	for addr, want := range map[string]bool{
		web.vip.v4: !routed, web.vip.v6: !routed, web.external.v4: true, web.external.v6: true, web.lb.v4: true, web.lb.v6: true,
	} {
		if strings.Contains(bound, " "+addr+"/") != want {
			t.Errorf("%s bound: want %t\n%s", addr, want, bound)
		}
	}
	for _, family := range []string{"-4", "-6"} {
		if routes := w.node.run(t, "ip", family, "route", "show", "table", "local", "proto", "73"); (routes != "") != routed {
			t.Errorf("local routes, family %s: want some: %t\n%s", family, routed, routes)
		}
	}
}

// checkRanges asks Services, and what is none.
func (w *world) checkRanges(t *testing.T, about string, routed bool, web, here, detour service) {
	t.Helper()
	var questions []*question
	for _, c := range []*pod{w.pod2, w.visitor, w.outside, w.host()} {
		questions = slices.Concat(questions,
			ask("Service by cluster IP", c, web.vip, 80, by(w.pod1, w.remote1)),
			ask("Service by external IP", c, web.external, 80, by(w.pod1, w.remote1)),
			ask("Service by load-balancer IP", c, here.lb, 80, by(w.pod1)),
			ask("Service with a detour", c, detour.vip, 80, by(w.pod1)),
			ask("daemon by cluster IP", c, web.vip, 22, refused),
			ask("daemon by external IP", c, web.external, 22, refused),
			ask("NodePort by cluster IP", c, web.vip, web.nodePort, refused),
		)
		if routed {
			questions = slices.Concat(questions,
				ask("daemon by an address of no Service", c, unused, 22, refused),
				ask("Service's port by an address of no Service", c, unused, 80, refused),
				ask("NodePort by an address of no Service", c, unused, web.nodePort, refused),
			)
		}
	}
	questions = slices.Concat(questions,
		ask("source of the host, here", w.host(), here.vip, 80, by(w.pod1).seeing(cniAddr)),
		ask("source of the host, elsewhere", w.host(), web.vip, 80, by(w.pod1, w.remote1).seeing(cniAddr, fabAddr)),
		ask("source of a pod", w.pod2, here.vip, 80, by(w.pod1).seeing(w.pod2.addr)),
		ask("source of the endpoint itself", w.pod1, here.vip, 80, by(w.pod1).seeing(cniAddr)),
	)
	put(t, []any{about, "client"}, questions)
	w.pings(t, web.vip, web.external)
	for _, c := range []*pod{w.pod2, w.outside, w.host()} {
		for _, to := range unused.all() {
			if out, err := c.try("ping", "-n", "-c1", "-W2", to); err == nil {
				t.Errorf("%s: an echo from %s, which no Service has, to %s:\n%s", about, to, c.name, out)
			}
		}
	}
}
