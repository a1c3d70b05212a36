package packet

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
)

// broken is a situation in which something does not work, and what is to name its cause.
type broken struct {
	name string
	// arrange brings it about beside an agent that carries web, and returns what undoes it, if it has to be undone.
	arrange func(t *testing.T, b *bench)
	// ask is the verb with its arguments, and the words that its first three lines must have, in any order.
	ask  string
	says []string
}

// bench is where situations are made.
type bench struct {
	*proxy
	w   *world
	web service
}

// keep sets a sysctl again and again, for the agent does, too, in each audit.
func (b *bench) keep(t *testing.T, name, value string) {
	t.Helper()
	b.sysctl(t, name, value)
	ctx, ended := t.Context(), make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			_ = b.do(func() error { return os.WriteFile(filepath.Join("/proc/sys/net", name), []byte(value), 0) }) // as it did before
			time.Sleep(200 * time.Millisecond)
		}
	}()
	t.Cleanup(func() { <-ended })
}

// put writes another web, which the agent has soon.
func (b *bench) put(t *testing.T, change func(*service)) {
	t.Helper()
	s := b.web
	change(&s)
	b.write(t, s)
}

// ask runs a verb and returns what it prints. /sys is that of the node, not that of the machine
// that runs the tests.
func (b *bench) ask(args string) string {
	out, _ := b.try("unshare", append([]string{"-m", "sh", "-ec", `mount -t sysfs sysfs /sys && exec "$0" "$@"`, program()}, append(strings.Fields(args), b.flags...)...)...)
	return out // the exit status is that of what is found
}

// situations are all of them. Each has a world of its own, because the damage stays.
var situations = []broken{
	{"no endpoints", func(t *testing.T, b *bench) { b.put(t, func(s *service) { s.backends = nil }) }, "explain test/web", []string{"no endpoints"}},
	{"none is ready", func(t *testing.T, b *bench) {
		b.put(t, func(s *service) {
			for i := range s.backends {
				s.backends[i].unready = true
			}
		})
	}, "explain test/web", []string{"ready"}},
	{"external policy Local and no endpoint here", func(t *testing.T, b *bench) {
		b.put(t, func(s *service) { s.externalLocal, s.nodePort, s.backends = true, 30080, endpoints(b.w.remote1) })
	}, "explain test/web", []string{"externalTrafficPolicy", "Local"}},
	{"internal policy Local and no endpoint here", func(t *testing.T, b *bench) {
		b.put(t, func(s *service) { s.internalLocal, s.backends = true, endpoints(b.w.remote1) })
	}, "explain 10.96.0.20:80", []string{"internalTrafficPolicy", "Local"}},
	{"refused by source range", func(t *testing.T, b *bench) {
		b.put(t, func(s *service) { s.lb, s.ranges = pair{v4: "198.51.100.20"}, []string{"203.0.113.0/24"} })
	}, "explain 198.51.100.20:80 --from 192.0.2.200", []string{"loadBalancerSourceRanges", "192.0.2.200"}},
	{"another Service has the address", func(t *testing.T, b *bench) {
		b.put(t, func(s *service) { s.external = pair{v4: "198.51.100.10"} })
		b.write(t, service{name: "zoo", vip: pair{v4: "10.96.0.40"}, external: pair{v4: "198.51.100.10"}, ports: webPorts(), backends: endpoints(b.w.pod1)})
	}, "explain test/zoo", []string{"198.51.100.10", "test/web"}},
	{"a scheduler that does not exist", func(t *testing.T, b *bench) {
		b.put(t, func(s *service) { s.annotations = annotations{"scheduler": "fastest"} })
	}, "explain test/web", []string{"scheduler", "fastest"}},
	{"an endpoint that drains", func(t *testing.T, b *bench) {
		b.w.visitor.holdAt(t, backend.TCP, b.web.vip.v4, b.w.pod1)
		b.put(t, func(s *service) {
			s.annotations, s.backends = annotations{"drain": "1h"}, endpoints(b.w.pod2, b.w.remote1)
		})
	}, "explain " + "10.244.0.1:8080", []string{"drain"}},
	{"a chain was flushed while no agent ran", func(t *testing.T, b *bench) {
		b.kill(t)
		b.run(t, "iptables-nft", "-t", "nat", "-F", "KUBE-SERVICES")
	}, "explain test/web", []string{"no agent"}},
	{"the same, by diff", func(t *testing.T, b *bench) {
		b.kill(t)
		b.run(t, "iptables-nft", "-t", "nat", "-F", "KUBE-SERVICES")
	}, "diff", []string{"KUBE-SERVICES"}},
	{"a server of another program on the address", func(t *testing.T, b *bench) {
		b.run(t, "ipvsadm", "-A", "-t", "192.0.2.99:443", "-s", "rr")
	}, "explain 192.0.2.99:443", []string{"foreign virtual server", "no Service"}},
	{"a destination was deleted by hand", func(t *testing.T, b *bench) {
		b.again(t, "ipvsadm -d -t "+b.web.vip.v4+":80 -r "+b8080(1))
	}, "explain test/web", []string{b8080(1), "kernel"}},
	{"an address was taken away while no agent ran", func(t *testing.T, b *bench) {
		b.kill(t)
		b.run(t, "ip", "address", "delete", b.web.vip.v4+"/32", "dev", "kube-ipvs0")
	}, "explain 10.96.0.20:80", []string{"no agent"}},
	{"a program listens on the NodePort", func(t *testing.T, b *bench) {
		b.put(t, func(s *service) { s.nodePort = 30080 })
		var l net.Listener
		b.must(t, b.do(func() (err error) {
			l, err = net.Listen("tcp", ":30080")
			return err
		}))
		t.Cleanup(func() { _ = l.Close() })
	}, "check", []string{"30080"}},
	{"a strict reverse path filter", func(t *testing.T, b *bench) {
		for _, name := range []string{"up0", "up1"} { // a VLAN counts as a link that leads off the machine
			b.run(t, "ip", "link", "add", "link", "ext0", "name", name, "type", "vlan", "id", name[2:]+"5")
		}
		b.sysctl(t, "ipv4/conf/all/rp_filter", "1")
	}, "check", []string{"reverse path filter", "strict"}},
	{"no forwarding", func(t *testing.T, b *bench) { b.keep(t, "ipv4/ip_forward", "0") }, "check", []string{"ip_forward"}},
	{"rules of the other iptables", func(t *testing.T, b *bench) {
		b.run(t, "iptables-legacy", "-t", "nat", "-N", "OTHER") // those of our names go by themselves
		b.run(t, "iptables-legacy", "-t", "nat", "-A", "OTHER", "-j", "RETURN")
	}, "check", []string{"legacy"}},
	{"a Service of another proxy", func(t *testing.T, b *bench) {
		b.put(t, func(s *service) { s.labels = map[string]string{"service.kubernetes.io/service-proxy-name": "cilium"} })
	}, "explain test/web", []string{"service-proxy-name", "cilium"}},
	{"an address of no Service", func(*testing.T, *bench) {}, "explain 10.96.0.99:80", []string{"10.96.0.99"}},
	{"a port that the Service does not have", func(*testing.T, *bench) {}, "explain 10.96.0.20:81", []string{"81"}},
	{"an address of the node", func(t *testing.T, b *bench) {
		b.put(t, func(s *service) { s.external = pair{v4: extAddr.v4} })
	}, "explain test/web", []string{extAddr.v4, "address of this node"}},
	{"weight 0 everywhere", func(t *testing.T, b *bench) {
		b.put(t, func(s *service) { s.annotations = annotations{"weight": "0"} })
	}, "explain test/web", []string{"weight", "0"}},
	{"an annotation that says nothing", func(t *testing.T, b *bench) {
		b.put(t, func(s *service) { s.annotations = annotations{"skip": "yes"} })
	}, "explain test/web", []string{"kube-ipvs.io/skip", "yes"}},
	{"a Service that is to be skipped", func(t *testing.T, b *bench) {
		b.put(t, func(s *service) { s.annotations = annotations{"skip": "true"} })
	}, "explain test/web", []string{"kube-ipvs.io/skip"}},
}

// b8080 is port 8080 of a pod of this node.
func b8080(number int) string { return podAddr(0, number).v4 + ":8080" }

// TestBroken breaks something on purpose and asks why it does not work: the first three lines name the cause.
func TestBroken(t *testing.T) {
	answers := make([]string, len(situations))
	t.Cleanup(func() {
		table := newTable("situation", "asked", "answered by")
		for i, tt := range situations {
			table.row(tt.name, tt.ask, answers[i])
		}
		t.Logf("%d situations\n%s", len(situations), table)
	})
	for i, tt := range situations {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			b := &bench{w: w, proxy: newAgent(t, w.node, "--cluster-cidr", clusters, "--drain", "1s"), web: w.web(t)}
			b.writeFile(t, "nodes.yaml", w.nodes())
			b.write(t, b.web)
			b.start(t)
			tt.arrange(t, b)
			poll(t, tt.ask+" to name the cause in its first lines", settleTimeout, func() error {
				out := b.ask(tt.ask)
				lines := strings.SplitAfterN(out, "\n", 4)
				first := strings.Join(lines[:min(3, len(lines))], "")
				for _, word := range tt.says {
					if !strings.Contains(first, word) {
						return fmt.Errorf("not a word of %q:\n%s", word, out)
					}
				}
				answers[i] = strings.TrimSpace(lines[0])
				return nil
			})
		})
	}
}
