package traffic

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-ipvs/kube-ipvs/e2e/kube/cluster"
)

// TestServiceClaimsTheAPIServer: a tenant's Service has the API server's address as an external IP.
// The agent keeps its API server at all times, over existing connections and over new ones, also
// after a restart with the Service present. The Service answers on its port, and its deletion is
// received.
func TestServiceClaimsTheAPIServer(t *testing.T) {
	t.Parallel()
	for family, addr := range map[string]string{"IPv4": "192.168.0.77", "IPv6": "fd00:192::77"} {
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := openAPI(t, cluster.Options{})
			a.connectBehind(t, w, netip.MustParseAddr(addr))
			a.createNodes(t)
			p := newAgent(t, w, a.kubeconfigFor(t, cluster.Admin))
			p.start(t)
			hears := 0
			keepsHearing := func(when string) {
				t.Helper()
				hears++
				s := a.create(t, service(fmt.Sprintf("heard-%d", hears)), backends[2])
				answersSoon(t, w, s)
				if out := w.node.shell(t, "ip -o addr show dev kube-ipvs0"); strings.Contains(out, addr+"/") {
					t.Errorf("%s: the API server's address is bound:\n%s", when, out)
				}
			}
			keepsHearing("before the claim")
			claim := a.create(t, service("claim", dualStack, func(s *corev1.Service) { s.Spec.ExternalIPs = []string{addr} }), backends[0], backends[2])
			at := netip.AddrPortFrom(netip.MustParseAddr(addr), 80)
			serves := func(when string) {
				t.Helper()
				for _, s := range []*space{w.pod, w.node} {
					err := s.do(func() error {
						_, err := untilAnswer(at, time.Now().Add(settleTimeout))
						return err
					})
					if err != nil {
						t.Errorf("%s: the Service from %s: %v", when, s.name, err)
					}
				}
			}
			for _, step := range []struct {
				when string
				do   func()
			}{
				{"after the claim", func() {}},
				{"after connections were cut", a.relay.reset},
				{"after a restart", func() { p.kill(t); p.start(t) }},
				{"with the address bound by an earlier process", func() {
					p.kill(t)
					w.node.shell(t, "ip addr add "+netip.PrefixFrom(at.Addr(), at.Addr().BitLen()).String()+" dev kube-ipvs0")
					p.start(t)
				}},
				{"after the server was away", func() { a.relay.partition(); time.Sleep(3 * time.Second); a.relay.reset(); a.relay.heal() }},
			} {
				step.do()
				keepsHearing(step.when)
				serves(step.when)
			}
			must(t, a.client.CoreV1().Services(namespace).Delete(t.Context(), claim.Name, metav1.DeleteOptions{}))
			wantGone(t, w, vip(claim))
			keepsHearing("after the deletion")
		})
	}
}

// connectBehind makes the relay on another machine of the node's network, at an address that is no Node's.
func (a *api) connectBehind(t *testing.T, w *world, addr netip.Addr) {
	t.Helper()
	server, err := url.Parse(a.adminConfig(t).Host)
	must(t, err)
	bits := map[bool]string{true: "/24", false: "/64 nodad"}[addr.Is4()]
	w.farm.shell(t, "ip addr add "+addr.String()+bits[:3]+" dev eth0"+bits[3:])
	var l net.Listener
	must(t, w.farm.do(func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(addr.String(), "6443"))
		return err
	}))
	a.relay, a.near, a.tlsName = newRelay(t, l, server.Host), "https://"+l.Addr().String(), server.Hostname()
}
