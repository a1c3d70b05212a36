package packet

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
)

// directVIP is an external IP from which backends answer themselves. No network routes to it.
var directVIP = pair{"198.18.0.77", "2001:db8:77::77"}

// direct is a cluster in which the outside has a link to each node. It sends by node-a, and node-b has the other to answer by.
//
//	outside eth0 ── ext0 node-a fab0 ── fab0 node-b ext1 ── eth1 outside
type direct struct {
	*cluster
	web service
}

// ways are the annotations of a Service about forwarding.
var ways = map[string]annotations{
	"dr": {"forward": "dr"}, "tunnel": {"forward": "tunnel"}, "gue": {"forward": "tunnel", "tunnel": "gue:" + guePort},
}

// guePort is where pods take tunnels by GUE.
const guePort = "5555"

// newDirect has both web pods serve on port 8080, by a Service that forwards in some way.
func newDirect(t *testing.T, way string, backends ...func(*cluster) *pod) *direct {
	t.Helper()
	d := &direct{cluster: newCluster(t, "--cluster-cidr", clusters)}
	ours, theirs := pair{"198.51.100.1", "2001:db8:2::1"}, pair{"198.51.100.9", "2001:db8:2::9"}
	d.b.neighbour(t, d.outside.space, "ext1", "eth1", ours, theirs)
	d.b.reach(t, "ext1", pair{d.outside.addr.v4 + "/32", d.outside.addr.v6 + "/128"}, theirs)
	for _, link := range []string{"all", "eth0", "eth1"} {
		d.outside.sysctl(t, "ipv4/conf/"+link+"/rp_filter", "0")
	}
	d.web = service{
		name: "web", vip: pair{"10.96.0.20", "fd00:96::20"}, external: directVIP, annotations: ways[way],
		ports: []port{{"tcp", "TCP", 8080, 8080}, {"udp", "UDP", 8080, 8080}},
	}
	for _, of := range backends {
		p := of(d.cluster)
		p.copier(t)
		serve(t, p.space, backend.Config{Name: p.name, UDP: ":8080"})
		if way == "dr" {
			p.ownsDirectly(t)
		} else {
			p.ownsByTunnel(t, way)
		}
		d.web.backends = append(d.web.backends, endpoints(p)...)
	}
	return d
}

func webA(c *cluster) *pod { return c.webA }
func webB(c *cluster) *pod { return c.webB }

// ownsByTunnel gives a pod the address behind the ends of tunnels, by what the init container of the example does.
func (p *pod) ownsByTunnel(t *testing.T, way string) {
	t.Helper()
	gue := ""
	if way == "gue" {
		gue = guePort
		p.run(t, "modprobe", "fou") // for the whole machine, which a pod has no right to do
	}
	p.run(t, "env", "VIPS="+strings.Join(directVIP.all(), " "), "GUE="+gue, "sh", "-ec", exampleScript(t))
}

// exampleScript is the script of manifests/dsr-backend.yaml.
func exampleScript(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../manifests/dsr-backend.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, deployment, _ := strings.Cut(string(text), "\n---\n")
	var d appsv1.Deployment
	if err := yaml.UnmarshalStrict([]byte(deployment), &d); err != nil {
		t.Fatal(err)
	}
	return d.Spec.Template.Spec.InitContainers[0].Args[0]
}

// ownsDirectly gives a pod the address, of which its neighbours learn nothing.
func (p *pod) ownsDirectly(t *testing.T) {
	t.Helper()
	p.sysctl(t, "ipv4/conf/all/arp_ignore", "1")
	p.sysctl(t, "ipv4/conf/all/arp_announce", "2")
	p.address(t, "lo", directVIP.v4+"/32", directVIP.v6+"/128")
}

// copier answers each request of a connection, a number and a count of bytes, with the addresses of
// both ends and that many bytes.
func (p *pod) copier(t *testing.T) {
	t.Helper()
	var l net.Listener
	p.must(t, p.do(func() (err error) {
		l, err = net.Listen("tcp", ":8080")
		return err
	}))
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // the test has ended
			}
			go p.copy(c)
		}
	}()
}

func (p *pod) copy(c net.Conn) {
	defer c.Close()
	for {
		var n uint32
		if binary.Read(c, binary.BigEndian, &n) != nil {
			return
		}
		if _, err := io.CopyN(io.Discard, c, int64(n)); err != nil {
			return
		}
		client := c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
		if _, err := fmt.Fprintf(c, "%s %s\n%s", p.name, client, make([]byte, n)); err != nil {
			return
		}
	}
}

// transfer is a connection that carries bytes both ways.
type transfer struct {
	net.Conn
	in *bufio.Reader
}

// connect opens one to the Service's port, from the pod's address.
func (p *pod) connect(t *testing.T, addr string) transfer {
	t.Helper()
	var conn net.Conn
	err := p.do(func() (err error) {
		d := net.Dialer{Timeout: patience}
		if from := p.source(addr); from.IsValid() {
			d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
		}
		conn, err = d.Dial("tcp", hostPort(addr, 8080))
		return err
	})
	if err != nil {
		t.Fatalf("%s connects to %s: %v", p.name, addr, err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return transfer{conn, bufio.NewReader(conn)}
}

// transferTimeout bounds the transfer of a megabyte under emulation.
const transferTimeout = time.Minute

// carry sends and receives so many bytes, and tells who answered and whom they saw.
func (c transfer) carry(t *testing.T, n int) (name, client string) {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(transferTimeout)); err != nil {
		t.Fatal(err)
	}
	err := binary.Write(c, binary.BigEndian, uint32(n))
	if err == nil {
		_, err = c.Write(make([]byte, n))
	}
	var line string
	if err == nil {
		line, err = c.in.ReadString('\n')
	}
	if err == nil {
		_, err = io.CopyN(io.Discard, c.in, int64(n))
	}
	if err != nil {
		t.Fatalf("carry %d bytes to %s and back: %v", n, c.RemoteAddr(), err)
	}
	name, client, _ = strings.Cut(strings.TrimSpace(line), " ")
	return name, client
}

// segment is the largest that is sent.
func (c transfer) segment(t *testing.T) int {
	t.Helper()
	raw, err := c.Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	if err := errors.Join(raw.Control(func(fd uintptr) { size, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG) }), err); err != nil {
		t.Fatal(err)
	}
	return size
}

// sent is what has left a node by a link, in bytes.
func (n *node) sent(t *testing.T, link string) uint64 {
	t.Helper()
	return n.link(t, link).Attrs().Statistics.TxBytes
}

// answers counts the packets of answers that a virtual server has seen, once it has counted that
// many bytes of requests: the kernel sums its counters every two seconds.
func (n *node) answers(t *testing.T, proto, addr string, in int) (count int) {
	t.Helper()
	poll(t, "the counters of "+addr, settleTimeout, func() error {
		out := n.run(t, "ipvsadm", "-Ln", "--stats", "--exact")
		for line := range strings.Lines(out) {
			f := strings.Fields(line) // Prot LocalAddress:Port Conns InPkts OutPkts InBytes OutBytes
			if len(f) != 7 || f[0] != proto || f[1] != hostPort(addr, 8080) {
				continue
			}
			bytes, err := strconv.Atoi(f[5])
			count, _ = strconv.Atoi(f[4])
			if err == nil && bytes >= in {
				return nil
			}
		}
		return fmt.Errorf("less than %d bytes counted:\n%s", in, out)
	})
	return count
}

const megabyte = 1 << 20

// TestDirectReturnByTunnel: the pod of another node answers the client without node-a, large packets fit into the tunnel, and the
// client is seen.
func TestDirectReturnByTunnel(t *testing.T) {
	for _, tt := range []struct {
		way     string
		headers map[int]int // size of the tunnel's headers
	}{{"tunnel", map[int]int{4: 20, 6: 40}}, {"gue", map[int]int{4: 20 + 8 + 4, 6: 40 + 8 + 4}}} {
		t.Run(tt.way, func(t *testing.T) {
			t.Parallel()
			newDirect(t, tt.way, webB).bypasses(t, tt.headers)
		})
	}
}

func (d *direct) bypasses(t *testing.T, headers map[int]int) {
	d.start(t, d.web)
	table := newTable("family", "answers seen by node-a", "bytes to the client by node-a", "by node-b", "segment")
	for _, family := range families {
		vip, room := directVIP.of(family), 1500-headers[family]-map[int]int{4: 40, 6: 60}[family]
		byA, byB := d.a.sent(t, "ext0"), d.b.sent(t, "ext1")
		c := d.outside.connect(t, vip)
		name, client := c.carry(t, megabyte)
		byA, byB = d.a.sent(t, "ext0")-byA, d.b.sent(t, "ext1")-byB
		seen, segment := d.a.answers(t, "TCP", vip, megabyte), c.segment(t)
		table.row(family, seen, byA, byB, segment)
		if name != "web-b" || client != d.outside.addr.of(family) {
			t.Errorf("IPv%d: %s answered and saw %s, want web-b and %s", family, name, client, d.outside.addr.of(family))
		}
		if seen != 0 || byA > megabyte/10 || byB < megabyte {
			t.Errorf("IPv%d: the server saw %d packets of answers, node-a sent %d bytes to the client and node-b %d", family, seen, byA, byB)
		}
		if segment > room {
			t.Errorf("IPv%d: segments of %d bytes, and a tunnel has room for %d", family, segment, room)
		}
		if got := d.outside.ask(backend.UDP, vip, 8080, 3); got.Backends["web-b"] != 3 || got.Clients[netip.MustParseAddr(d.outside.addr.of(family))] != 3 {
			t.Errorf("IPv%d: datagrams\n%s", family, text(got))
		}
		if seen := d.a.answers(t, "UDP", vip, 3*29); seen != 0 {
			t.Errorf("IPv%d: the server saw %d datagrams of answers", family, seen)
		}
	}
	t.Logf("a megabyte each way\n%s", table)
}

// TestDirectReturnOnTheDirector: pods of the node that takes the packets answer through it, like the others, and clients of a
// node, its host included, are served as ever.
func TestDirectReturnOnTheDirector(t *testing.T) {
	t.Parallel()
	d := newDirect(t, "tunnel", webA, webB)
	d.start(t, d.web)
	for _, family := range families {
		vip := directVIP.of(family)
		for _, c := range []*pod{d.outside, d.askerA, d.askerB, d.a.host(), d.b.host()} {
			got := map[string]int{}
			for range 4 {
				name, _ := c.connect(t, vip).carry(t, 4096)
				got[name]++
			}
			if got["web-a"] != 2 || got["web-b"] != 2 {
				t.Errorf("IPv%d: %s was answered by %v, want two answers by each pod", family, c.name, got)
			}
		}
		if _, err := d.outside.try("ping", "-n", "-c1", "-W10", vip); err != nil {
			t.Errorf("IPv%d: the address does not answer ping: %v", family, err)
		}
		if got := d.outside.askFor(silence, backend.TCP, vip, 8081, 1); got.Failed[backend.Refused] != 1 {
			t.Errorf("IPv%d: a port of no Service is not refused\n%s", family, text(got))
		}
	}
}

// TestDirectReturnOnOneLink puts packets on the link of the pod as they are. The pod's answers come by the node, which is its
// router, with the address that the pod gave them.
func TestDirectReturnOnOneLink(t *testing.T) {
	t.Parallel()
	d := newDirect(t, "dr", webA)
	d.start(t, d.web)
	for _, family := range families {
		vip := directVIP.of(family)
		name, client := d.outside.connect(t, vip).carry(t, megabyte)
		if name != "web-a" || client != d.outside.addr.of(family) {
			t.Errorf("IPv%d: %s answered and saw %s", family, name, client)
		}
	}
	if methods := d.a.run(t, "ipvsadm", "-Ln"); strings.Count(methods, " Route ") != 4 {
		t.Errorf("ipvsadm shows, where four destinations are wanted that are not translated:\n%s", methods)
	}
}

// TestDirectReturnTellsOfTheTunnel: a client that sends datagrams that do not fit, and forbids fragments, learns how large they may be.
func TestDirectReturnTellsOfTheTunnel(t *testing.T) {
	for way, header := range map[string]int{"tunnel": 0, "gue": 8 + 4} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			newDirect(t, way, webB).tellsOfTheTunnel(t, header)
		})
	}
}

// tellsOfTheTunnel requires the MTU that a tunnel leaves whose packets have another header beside that of IP.
func (d *direct) tellsOfTheTunnel(t *testing.T, header int) {
	d.start(t, d.web)
	for _, tt := range []struct {
		family, size, want         int
		level, discover, do, known int
	}{
		{4, 1500 - 28, 1480 - header, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO, unix.IP_MTU},
		{6, 1500 - 48, 1460 - header, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO, unix.IPV6_MTU},
	} {
		to := netip.MustParseAddrPort(hostPort(directVIP.of(tt.family), 8080))
		fd := d.outside.datagrams(t, netip.AddrPortFrom(d.outside.source(to.Addr().String()), 0))
		t.Cleanup(func() { _ = unix.Close(fd) })
		d.outside.must(t, unix.Connect(fd, sockaddr(to)))
		d.outside.must(t, unix.SetsockoptInt(fd, tt.level, tt.discover, tt.do))
		poll(t, fmt.Sprintf("the outside to learn the MTU over IPv%d", tt.family), patience, func() error {
			_, written := unix.Write(fd, make([]byte, tt.size)) // fails once it is known
			mtu, err := unix.GetsockoptInt(fd, tt.level, tt.known)
			if err == nil && mtu != tt.want {
				err = errors.Join(fmt.Errorf("MTU %d, want %d", mtu, tt.want), written)
			}
			return err
		})
	}
}

// TestDirectReturnEnds takes the annotation from a Service that serves: connections go on as they began, and new ones come back
// by node-a.
func TestDirectReturnEnds(t *testing.T) {
	t.Parallel()
	d := newDirect(t, "tunnel", webB)
	d.start(t, d.web)
	old := map[int]transfer{}
	for _, family := range families {
		old[family] = d.outside.connect(t, directVIP.of(family))
		old[family].carry(t, 4096)
	}
	d.web.annotations = nil
	for _, n := range []*proxy{d.agentA, d.agentB} {
		n.edit(t, func() { n.write(t, d.web) })
	}
	for _, family := range families {
		vip := directVIP.of(family)
		if name, client := old[family].carry(t, megabyte); name != "web-b" || client != d.outside.addr.of(family) {
			t.Errorf("IPv%d: on the old connection %s answers and sees %s", family, name, client)
		}
		if seen := d.a.answers(t, "TCP", vip, megabyte); seen != 0 {
			t.Errorf("IPv%d: of the old connection the server saw %d packets of answers", family, seen)
		}
		name, client := d.outside.connect(t, vip).carry(t, megabyte)
		if name != "web-b" || client != fabAddr.of(family) {
			t.Errorf("IPv%d: on a new connection %s answers and sees %s, want web-b and %s", family, name, client, fabAddr.of(family))
		}
		if d.a.answers(t, "TCP", vip, 2*megabyte) == 0 {
			t.Errorf("IPv%d: of a new connection the server saw no answer", family)
		}
	}
	d.web.annotations = ways["tunnel"]
	for _, n := range []*proxy{d.agentA, d.agentB} {
		n.edit(t, func() { n.write(t, d.web) })
	}
	for _, family := range families {
		if _, client := d.outside.connect(t, directVIP.of(family)).carry(t, 4096); client != d.outside.addr.of(family) {
			t.Errorf("IPv%d: by a tunnel again the pod sees %s", family, client)
		}
	}
}
