package packet

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
)

// TestLocalhostNodePorts: with the keyword localhost the host reaches NodePorts on its loopback
// addresses, over TCP and UDP and in both families, by the policy for clients from outside. The kernel
// gets no row and no sysctl for that.
func TestLocalhostNodePorts(t *testing.T) {
	t.Parallel()
	localhostNodePorts(t, newWorld(t), refused, "--cluster-cidr", clusters)
}

// TestLocalhostNodePortsInIPTables: iptables mode has them by the same relay. A rule that drops packets
// to a NodePort without local endpoints matches loopback, too.
func TestLocalhostNodePortsInIPTables(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		localhostNodePorts(t, iptablesWorld(t), dropped, inIPTables(kind, "--detect-local-mode", "NodeCIDR")...)
	})
}

func localhostNodePorts(t *testing.T, w *world, elsewhere outcome, flags ...string) {
	w.pod1.serve(t, 8080)
	w.remote1.serve(t, 8080)
	localhost := pair{"127.0.0.1", "::1"}
	spread, local, far, none, taken := numberedService(1), numberedService(2), numberedService(3), numberedService(4), numberedService(5)
	for _, s := range []*service{&spread, &local, &taken} {
		s.backends = endpoints(w.pod1, w.remote1)
	}
	far.backends = endpoints(w.remote1)
	local.externalLocal, far.externalLocal = true, true
	daemon := &pod{name: "daemon"}
	var end []func()
	for _, addr := range localhost.all() {
		at := hostPort(addr, taken.nodePort)
		end = append(end, open(t, w.node.space, backend.Config{Name: daemon.name, TCP: at, UDP: at}))
	}
	n := newAgent(t, w.node, append(flags, "--nodeport-addresses", "primary,localhost")...)
	n.writeFile(t, "nodes.yaml", w.nodes())
	n.write(t, spread, local, far, none, taken)
	n.start(t)
	// Ports open after the kernel has what is behind them.
	wait := func(s service) {
		t.Helper()
		for _, addr := range localhost.all() {
			for _, proto := range []backend.Proto{backend.TCP, backend.UDP} {
				poll(t, fmt.Sprintf("%s %s", proto, hostPort(addr, s.nodePort)), settleTimeout, func() error {
					if got := w.host().askFor(silence, proto, addr, s.nodePort, 1); got.Backends[w.pod1.name]+got.Backends[w.remote1.name] == 0 {
						return fmt.Errorf("%s", text(got))
					}
					return nil
				})
			}
		}
	}
	wait(spread)
	wait(local)
	columns := []any{"node port", "client"}
	both := by(w.pod1, w.remote1)
	put(t, columns, slices.Concat(
		ask("policy Cluster", w.host(), localhost, spread.nodePort, both),
		ask("policy Local", w.host(), localhost, local.nodePort, by(w.pod1)),
		ask("policy Local, endpoints elsewhere", w.host(), localhost, far.nodePort, elsewhere),
		ask("no endpoints", w.host(), localhost, none.nodePort, refused),
		ask("taken by a daemon", w.host(), localhost, taken.nodePort, by(daemon)),
		ask("at the node's address", w.host(), fabAddr, taken.nodePort, both),
		ask("at the node's address", w.outside, fabAddr, taken.nodePort, both),
	))
	if out, err := n.verb("explain", hostPort(localhost.v4, taken.nodePort)+"/tcp"); !strings.Contains(out, "address already in use") {
		t.Errorf("explain does not name the taken port: %v\n%s", err, out)
	}
	if out := w.node.run(t, "cat", "/proc/sys/net/ipv4/conf/all/route_localnet"); strings.TrimSpace(out) != "0" {
		t.Errorf("route_localnet is %s", out)
	}

	spread.internalLocal, local.externalLocal, none.backends = true, false, endpoints(w.pod1)
	n.edit(t, func() { n.write(t, spread, local, far, none, taken) })
	for _, stop := range end {
		stop()
	}
	wait(none)
	wait(taken)
	put(t, columns, slices.Concat(
		ask("internal policy Local", w.host(), localhost, spread.nodePort, both),
		ask("policy Cluster again", w.host(), localhost, local.nodePort, both),
		ask("endpoints", w.host(), localhost, none.nodePort, by(w.pod1)),
		ask("no longer taken", w.host(), localhost, taken.nodePort, both),
	))
}
