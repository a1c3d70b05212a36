package packet

import (
	"net/netip"
	"sync"
	"testing"
)

// Requests of each client, protocol and family; and the range of NodePorts, from which they all come.
const (
	masqueraded   = 150
	firstNodePort = 30000
	lastNodePort  = 32767
)

// TestSNATAvoidsNodePorts: a source port that is also a NodePort would make the answer look like a request for that Service. The
// clients take theirs from that range on purpose, and the backend never sees one.
func TestSNATAvoidsNodePorts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pod1.serve(t, 8080)
	w.remote1.serve(t, 8080)
	web := numberedService(1)
	web.backends = endpoints(w.pod1, w.remote1)
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	n.write(t, web)
	n.start(t)
	table := newTable("client", "asked", "answers", "source ports seen", "of these NodePorts")
	for _, c := range []*pod{w.outside, w.host(), w.pod2} {
		c.sysctl(t, "ipv4/ip_local_port_range", "30000 32767")
		for _, q := range ask("", c, web.external, 80, outcome{}, protos...) {
			ports, failed := q.sourcePorts(masqueraded)
			bad := 0
			for port := range ports {
				if port >= firstNodePort && port <= lastNodePort {
					bad++
				}
			}
			table.row(c.name, string(q.proto)+" "+q.to, masqueraded-len(failed), len(ports), bad)
			if bad > 0 {
				t.Errorf("%s by %s to %s: %d of %d source ports are NodePorts", c.name, q.proto, q.to, bad, len(ports))
			}
			if len(failed) > 0 {
				t.Errorf("%s by %s to %s: %d of %d requests failed, the first: %v", c.name, q.proto, q.to, len(failed), masqueraded, failed[0])
			}
		}
	}
	t.Logf("source ports\n%s", table)
}

// sourcePorts asks so often, several at a time, and returns the ports that the backend saw.
func (q *question) sourcePorts(n int) (ports map[uint16]int, failed []error) {
	ports = map[uint16]int{}
	to, source := netip.MustParseAddrPort(hostPort(q.to, q.port)), q.client.source(q.to)
	var mu sync.Mutex
	var running sync.WaitGroup
	for worker := range abreast {
		running.Go(func() {
			_ = q.client.do(func() error {
				for i := worker; i < n; i += abreast {
					reply, err := once(patience, q.proto, to, source)
					mu.Lock()
					if err != nil {
						failed = append(failed, err)
					} else {
						ports[reply.Client.Port()]++
					}
					mu.Unlock()
				}
				return nil
			})
		})
	}
	running.Wait()
	return ports, failed
}
