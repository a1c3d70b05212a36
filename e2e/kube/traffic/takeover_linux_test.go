package traffic

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-ipvs/kube-ipvs/e2e/kube/cluster"
	"github.com/kube-ipvs/kube-ipvs/internal/agent"
)

// The network outside, on a link of its own.
const (
	outsideGateway = "192.168.9.1"
	outsideAddr    = "192.168.9.2"
)

// takeover is a node on which kube-proxy and kube-ipvs follow each other, with 1,000 Services and clients of some of them.
type takeover struct {
	*world
	outside            *space
	api                *api
	kubeconfig         string
	web, local, sticky *corev1.Service

	bare  []string // the node before the first proxy
	run   string   // of kube-ipvs
	asked int      // how many clients there were
}

// TestTakeover puts kube-ipvs into the place of the real kube-proxy, and that back into its own, in each of kube-proxy's modes.
func TestTakeover(t *testing.T) {
	if os.Getenv("KUBE_IPVS_E2E_TAKEOVER") == "" {
		t.Skip("starts kube-proxy ten times, which takes ten minutes and more where it is emulated: make stress WHAT=takeover runs it")
	}
	n := newTakeover(t)
	for _, round := range []struct {
		mode string
		run  func(*testing.T)
	}{{"ipvs", n.ipvs}, {"iptables", n.iptables}, {"nftables", n.nftables}} {
		if !t.Run(round.mode, round.run) {
			t.Fatal("the rounds after this one would begin with what it left")
		}
	}
}

func newTakeover(t *testing.T) *takeover {
	t.Helper()
	w := newWorld(t)
	n := &takeover{world: w, outside: newSpace(t, "outside"), run: t.TempDir()}
	wire(t, w.node, "out0", n.outside, "eth0")
	n.outside.ip(t, slices.Concat(leaf(), []string{"addr add " + outsideAddr + "/24 dev eth0", "route add default via " + outsideGateway})...)
	w.node.ip(t, "link set out0 up", "addr add "+outsideGateway+"/24 dev out0")
	w.node.shell(t, "echo 0 >/proc/sys/net/ipv4/conf/out0/rp_filter\n"+neighbours)
	n.api = newAPI(t, w, cluster.Options{})
	n.kubeconfig = n.api.kubeconfigFor(t, cluster.Admin)
	n.api.createNodes(t)
	web, local := service("web", dualStack), service("local", externalLocal)
	n.web = n.api.balanced(t, web, "198.18.255.1", backends...)
	n.local = n.api.balanced(t, local, "198.18.255.2", backends[:2]...)
	n.sticky = n.api.create(t, service("sticky", sticky), backends...)
	start := time.Now()
	n.api.createKinds(t, many)
	figure(t, fmt.Sprintf("%d Services and slices created after", many), time.Since(start))
	n.bare = w.node.snapshot(t)
	return n
}

// ask starts clients of all kinds.
func (n *takeover) ask(t *testing.T) *clients {
	t.Helper()
	cs := newClients(n.asked)
	n.asked++
	web := map[string]netip.AddrPort{
		"ClusterIP":    vip(n.web),
		"NodePort":     netip.AddrPortFrom(netip.MustParseAddr(nodeAddr), uint16(n.web.Spec.Ports[0].NodePort)),
		"LoadBalancer": ingress(n.web),
	}
	for _, from := range []*space{n.pod, n.node, n.outside} {
		for _, what := range []string{"ClusterIP", "NodePort", "LoadBalancer"} {
			cs.add(t, from, what, web[what])
		}
	}
	cs.add(t, n.pod, "ClusterIP of IPv6", netip.AddrPortFrom(netip.MustParseAddr(n.web.Spec.ClusterIPs[1]), 80))
	cs.add(t, n.pod, "ClusterIP with affinity", vip(n.sticky))
	cs.add(t, n.outside, "LoadBalancer, Local", ingress(n.local))
	t.Cleanup(cs.stop)
	return cs
}

// ingress is the load balancer's address.
func ingress(s *corev1.Service) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(s.Status.LoadBalancer.Ingress[0].IP), uint16(s.Spec.Ports[0].Port))
}

// newAgent gives the node a kube-ipvs with kube-proxy's file.
func (n *takeover) newAgent(t *testing.T, mode string) *proxy {
	t.Helper()
	p := newProgram(t, n.world, os.Getenv("KUBE_IPVS_BIN"), n.run, "--config", proxyConfig(t, n.kubeconfig, mode), "--hostname-override", thisNode,
		"--run-dir", n.run, "--proxy-mode", "ipvs")
	t.Cleanup(func() { p.keepOutput(t, "kube-ipvs-after-"+mode+".log") })
	return p
}

// takeOver starts kube-ipvs and waits until all is in the kernel.
func (n *takeover) takeOver(t *testing.T, p *proxy) {
	t.Helper()
	start := time.Now()
	p.launch(t)
	s := p.settle(t, "be ready", 3*settleTimeout, func(s agent.Status) bool { return s.Ready && s.Failures == 0 && s.Services >= many })
	figure(t, "kube-ipvs ready after, having written", fmt.Sprint(time.Since(start).Round(time.Millisecond), " ", s.Written))
}

// cleanUp runs the verb.
func (n *takeover) cleanUp(t *testing.T, flags ...string) {
	t.Helper()
	start := time.Now()
	out := n.node.shell(t, strings.Join(append([]string{os.Getenv("KUBE_IPVS_BIN"), "cleanup", "--run-dir", n.run}, flags...), " "))
	figure(t, strings.TrimSpace("kube-ipvs cleanup "+strings.Join(flags, " ")), time.Since(start))
	t.Logf("kube-ipvs cleanup %s:\n%s", strings.Join(flags, " "), out)
}

// ipvs: no desired row is ever deleted, so no client notices.
func (n *takeover) ipvs(t *testing.T) {
	old := newPredecessor(t, n.world, n.kubeconfig, "ipvs")
	p := n.newAgent(t, "ipvs")
	n.seedSets(t)
	figure(t, "kube-proxy written after, first", old.start(t))
	sysctls := n.node.sysctls(t)
	n.prime(t)
	cs := n.ask(t)
	watch := n.node.watch(t)

	n.baseline(t, cs, old)

	cs.begin()
	old.stop(t)
	n.takeOver(t, p)
	cs.lossless(t, n.node, "kube-proxy to kube-ipvs")

	cs.begin()
	p.terminate(t)
	n.cleanUp(t, "--for=ipvs")
	figure(t, "kube-proxy written after", old.start(t))
	cs.lossless(t, n.node, "kube-ipvs to kube-proxy")
	watch.check(t)
	cs.stop()
	n.end(t, old, sysctls)
}

// baseline is what kube-proxy does to clients when it follows itself.
func (n *takeover) baseline(t *testing.T, cs *clients, old *predecessor) {
	t.Helper()
	cs.begin()
	if os.Getenv("KUBE_IPVS_E2E_BASELINE") == "" {
		cs.lossless(t, n.node, "kube-proxy alone")
		return
	}
	old.stop(t)
	figure(t, "kube-proxy written after", old.start(t))
	cs.lossless(t, n.node, "kube-proxy to kube-proxy")
}

// iptables: connections that are established stay where connection tracking has them, new ones go to the one or the other.
func (n *takeover) iptables(t *testing.T) {
	old, sysctls := n.fromRules(t, "iptables")
	cs := n.ask(t)
	cs.begin()
	figure(t, "kube-proxy written after", old.start(t))
	cs.lossless(t, n.node, "kube-ipvs to kube-proxy")
	cs.begin()
	n.cleanUp(t, "--for=iptables")
	if r := cs.end(t, "kube-ipvs cleaned up"); r.failed > 0 {
		t.Errorf("clean-up beside kube-proxy:\n%s", strings.Join(r.failures, "\n"))
	}
	cs.stop()
	figure(t, "long connections over IPVS, cut by that", fmt.Sprintf("%d of %d", cs.cut(), longEach*len(cs.all)))
	n.end(t, old, sysctls)
}

// nftables: kube-proxy itself removes IPVS when it starts in this mode, seconds before it writes
// its own rules. Failures until then are caused by kube-proxy, and counted; no later request may
// fail.
func (n *takeover) nftables(t *testing.T) {
	old, sysctls := n.fromRules(t, "nftables")
	cs := n.ask(t)
	cs.begin()
	figure(t, "kube-proxy written after", old.start(t))
	cs.end(t, "kube-ipvs to kube-proxy, its gap")
	cs.stop()
	cs = n.ask(t)
	cs.begin()
	n.cleanUp(t, "--for=nftables")
	cs.lossless(t, n.node, "kube-ipvs cleaned up")
	cs.stop()
	n.end(t, old, sysctls)
}

// fromRules has kube-ipvs take over from a mode of kube-proxy that lives in rules alone, and ends it.
func (n *takeover) fromRules(t *testing.T, mode string) (old *predecessor, sysctls []string) {
	t.Helper()
	old = newPredecessor(t, n.world, n.kubeconfig, mode)
	p := n.newAgent(t, mode)
	figure(t, "kube-proxy written after, first", old.start(t))
	sysctls = n.node.sysctls(t)
	cs := n.ask(t)
	n.baseline(t, cs, old)
	cs.begin()
	old.stop(t)
	n.takeOver(t, p)
	cs.lossless(t, n.node, "kube-proxy to kube-ipvs")
	n.node.wantNothingOfOldModes(t)
	cs.stop()
	p.terminate(t)
	return old, sysctls
}

// end stops kube-proxy, cleans up after it, and wants the node as it was.
func (n *takeover) end(t *testing.T, old *predecessor, sysctls []string) {
	t.Helper()
	old.stop(t)
	n.cleanUp(t)
	same(t, "the node after everything", n.bare, n.node.snapshot(t))
	same(t, "sysctls after everything, as kube-proxy left them", sysctls, n.node.sysctls(t))
}

// seedSets makes the two large sets as a kube-proxy before left them. kube-proxy starts a process for each entry that it adds: emulated, a
// thousand Services would take it three minutes.
func (n *takeover) seedSets(t *testing.T) {
	t.Helper()
	all, err := n.api.client.CoreV1().Services("").List(t.Context(), metav1.ListOptions{})
	must(t, err)
	var sets strings.Builder
	for prefix, family := range map[string]string{"KUBE": "inet", "KUBE-6": "inet6"} {
		fmt.Fprintf(&sets, "create %[1]s-CLUSTER-IP hash:ip,port family %[2]s hashsize 1024 maxelem 65536\ncreate %[1]s-IPVS-IPS hash:ip family %[2]s hashsize 1024 maxelem 65536\n", prefix, family)
	}
	for _, s := range all.Items {
		for _, ip := range s.Spec.ClusterIPs {
			prefix := "KUBE"
			if strings.Contains(ip, ":") {
				prefix = "KUBE-6"
			}
			fmt.Fprintf(&sets, "add %s-IPVS-IPS %s\n", prefix, ip)
			for _, port := range s.Spec.Ports {
				fmt.Fprintf(&sets, "add %s-CLUSTER-IP %s,%s:%d\n", prefix, ip, strings.ToLower(string(port.Protocol)), port.Port)
			}
		}
	}
	file := filepath.Join(t.TempDir(), "sets")
	must(t, os.WriteFile(file, []byte(sets.String()), 0o644))
	n.node.shell(t, "ipset restore -file "+file)
}

// prime sends the beginning of a connection to each virtual server, so that its counter shows
// whether it was ever created again.
func (n *takeover) prime(t *testing.T) {
	t.Helper()
	addrs := n.serverAddrs(t)
	err := n.pod.do(func() error {
		for _, a := range addrs {
			if err := knock(a); err != nil {
				return fmt.Errorf("knock at %v: %w", a, err)
			}
		}
		return nil
	})
	must(t, err)
}

// knock sends a SYN and waits for nothing.
func knock(a netip.AddrPort) error {
	family, to := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())})
	if a.Addr().Is4() {
		family, to = unix.AF_INET, &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, to); err != nil && err != unix.EINPROGRESS {
		return err
	}
	return nil
}

// serverAddrs are those of TCP.
func (n *takeover) serverAddrs(t *testing.T) []netip.AddrPort {
	t.Helper()
	var out []netip.AddrPort
	for line := range strings.Lines(n.node.shell(t, "ipvsadm -Sn")) {
		if fields := strings.Fields(line); fields[0] == "-A" && fields[1] == "-t" {
			a, err := netip.ParseAddrPort(fields[2])
			must(t, err)
			out = append(out, a)
		}
	}
	return out
}
