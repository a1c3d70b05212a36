package packet

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestNodeAddressComesAndGoes: NodePorts answer on whatever addresses the node has now. Only the
// kernel notifies the agent.
func TestNodeAddressComesAndGoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pod1.serve(t, 8080)
	web := numberedService(1)
	web.backends = endpoints(w.pod1)
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	n.write(t, web)
	n.start(t)
	late := pair{"192.168.77.1", "fd00:192:0:77::1"}
	put(t, []any{"address", "client"}, ask("not yet there", w.outside, late, web.nodePort, dropped))
	for round := range 2 {
		w.node.address(t, "nowhere", late.v4+"/32", late.v6+"/128")
		w.awaitServers(t, late, web.nodePort, true)
		n.quiet(t)
		put(t, []any{"address", "client"}, slices.Concat(
			ask(fmt.Sprint("there, round ", round), w.outside, late, web.nodePort, by(w.pod1), protos...),
			ask(fmt.Sprint("there, round ", round), w.pod2, late, web.nodePort, by(w.pod1), protos...),
		))
		w.node.shell(t, fmt.Sprintf("ip addr del %s/32 dev nowhere; ip addr del %s/128 dev nowhere", late.v4, late.v6))
		w.awaitServers(t, late, web.nodePort, false)
		put(t, []any{"address", "client"}, ask(fmt.Sprint("gone, round ", round), w.outside, late, web.nodePort, dropped))
	}
	put(t, []any{"address", "client"}, ask("there all the time", w.outside, fabAddr, web.nodePort, by(w.pod1), protos...))
}

// awaitServers waits until IPVS serves the port of an address in each protocol and family, or in none.
func (w *world) awaitServers(t *testing.T, addr pair, port int, want bool) {
	t.Helper()
	poll(t, fmt.Sprintf("virtual servers of %v: %t", addr.all(), want), settleTimeout, func() error {
		servers := w.node.run(t, "ipvsadm", "-Sn")
		for _, a := range addr.all() {
			for _, flag := range []string{"-t", "-u", "--sctp-service"} {
				if strings.Contains(servers, fmt.Sprintf("-A %s %s ", flag, hostPort(a, port))) != want {
					return fmt.Errorf("ipvsadm shows\n%s", servers)
				}
			}
		}
		return nil
	})
}
