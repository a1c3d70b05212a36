package packet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
	"github.com/kube-ipvs/kube-ipvs/e2e/transcript"
)

// wayReport is the report of trace on the connections to one address.
type wayReport struct {
	Served      bool
	CarriedBy   string
	Endpoints   int
	Lost        int
	Connections []struct {
		Client, Backend string
		Stations        []struct {
			Station, Text string
			Links         []string
		}
		Why []string
	}
}

// trace runs the verb on the node, calls a function that sends packets meanwhile, and ends the verb
// with an interrupt.
func (n *proxy) trace(t *testing.T, target, output string, meanwhile func()) string {
	t.Helper()
	said := &transcript.Transcript{}
	var out bytes.Buffer
	cmd := exec.Command(program(), append([]string{"trace", target, "--for", "1m", "--packets", "10000", "-o", output}, n.runDir()...)...)
	cmd.Stdout, cmd.Stderr = &out, said
	if err := n.do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	poll(t, "trace to look", settleTimeout, func() error {
		if !strings.Contains(said.String(), "watching") {
			return errors.New(said.String())
		}
		return nil
	})
	meanwhile()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("trace %s: %v\n%s", target, err, said)
	}
	return out.String()
}

func readTrace(t *testing.T, text string) wayReport {
	t.Helper()
	var got wayReport
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return got
}

// meets has the node find its pod's addresses, which may take it a second try: a trace would show that.
func (w *world) meets(t *testing.T, p *pod) {
	t.Helper()
	for _, family := range families {
		poll(t, fmt.Sprintf("the node to reach %s over IPv%d", p.name, family), settleTimeout, func() error {
			if got := w.host().askFor(patience, backend.TCP, p.addr.of(family), 8080, 1); got.Backends[p.name] != 1 {
				return errors.New(text(got))
			}
			return nil
		})
	}
}

// TestTrace: real connections by every kind of way, and the stations that each reached.
func TestTrace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pod1.serve(t, 8080)
	web := numberedService(1)
	web.backends = endpoints(w.pod1)
	silent := numberedService(2)
	silent.backends = endpoints(w.pod3) // which does not listen
	empty := service{name: "empty", vip: pair{"10.96.0.40", "fd00:96::40"}, ports: webPorts()}
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	n.write(t, web, silent, empty)
	n.start(t)
	w.meets(t, w.pod1)
	const whole, onlyHost = "arrived chosen left answered returned", "chosen left answered"
	for _, tt := range []struct {
		name     string
		from     *pod
		to       pair
		port     int
		proto    backend.Proto
		stations string
		says     string // in some station's text, or as a reason
	}{
		{"pod to ClusterIP", w.pod2, web.vip, 80, backend.TCP, whole, "with its source kept"},
		{"pod to ClusterIP, UDP", w.pod2, web.vip, 80, backend.UDP, whole, "with its source kept"},
		{"outside to NodePort", w.outside, fabAddr, web.nodePort, backend.TCP, whole, "with its source rewritten to"},
		{"outside to NodePort, UDP", w.outside, fabAddr, web.nodePort, backend.UDP, whole, "with its source rewritten to"},
		{"the node itself", w.host(), web.vip, 80, backend.TCP, onlyHost, "dialled by this machine"},
		{"no process listens", w.pod2, silent.vip, 80, backend.TCP, whole, "no process listens there"},
		{"without endpoints", w.outside, empty.vip, 80, backend.TCP, "arrived refused", "no endpoint takes new connections"},
	} {
		for _, family := range families {
			addr := netip.MustParseAddrPort(hostPort(tt.to.of(family), tt.port)).String()
			text := n.trace(t, addr+"/"+string(tt.proto), "json", func() { tt.from.askFor(patience, tt.proto, tt.to.of(family), tt.port, 2) })
			got := readTrace(t, text)
			if got.Lost != 0 || len(got.Connections) != 2 {
				t.Errorf("%s, IPv%d: %d connections, %d packets lost; want 2 and none\n%s", tt.name, family, len(got.Connections), got.Lost, text)
				continue
			}
			for _, c := range got.Connections {
				var names []string
				for _, s := range c.Stations {
					names = append(names, s.Station)
				}
				if strings.Join(names, " ") != tt.stations || !strings.Contains(text, tt.says) {
					t.Errorf("%s, IPv%d: stations %v, want %s, and %q\n%s", tt.name, family, names, tt.stations, tt.says, text)
				}
				if whole := tt.stations != "arrived refused"; whole != (c.Why == nil) {
					t.Errorf("%s, IPv%d: reasons %q", tt.name, family, c.Why)
				}
			}
		}
	}
	for name, ask := range map[string]func(){
		hostPort(fabAddr.v4, web.nodePort): func() { w.outside.ask(backend.TCP, fabAddr.v4, web.nodePort, 1) },
		hostPort(empty.vip.v4, 80):         func() { w.pod2.ask(backend.TCP, empty.vip.v4, 80, 1) },
	} {
		t.Logf("trace %s\n%s", name, n.trace(t, name, "text", ask))
	}
	// A rule of another program is named as the place where the path ends.
	w.node.shell(t, "iptables-nft -I FORWARD -s "+w.pod1.addr.v4+" -p tcp -j DROP")
	got := readTrace(t, n.trace(t, hostPort(web.vip.v4, 80), "json", func() { w.pod2.askFor(silence, backend.TCP, web.vip.v4, 80, 1) }))
	t.Logf("with a rule that drops: %+v", got)
	if len(got.Connections) != 1 || len(got.Connections[0].Why) == 0 || !strings.Contains(got.Connections[0].Why[0], "FORWARD") {
		t.Errorf("%+v: no word of FORWARD", got)
	}
}

// TestIPTablesTrace: without IPVS the agent lists the endpoints, and what they send and get is followed, too.
func TestIPTablesTrace(t *testing.T) {
	t.Parallel()
	w := buildWorld(t)
	w.pod1.serve(t, 8080)
	web := numberedService(1)
	web.backends = endpoints(w.pod1)
	n := newAgent(t, w.node, "--cluster-cidr", clusters, "--proxy-mode", "iptables")
	n.write(t, web)
	n.start(t)
	w.meets(t, w.pod1)
	for _, tt := range []struct {
		name string
		from *pod
		to   pair
		port int
	}{{"pod to ClusterIP", w.pod2, web.vip, 80}, {"outside to NodePort", w.outside, fabAddr, web.nodePort}} {
		for _, family := range families {
			text := n.trace(t, hostPort(tt.to.of(family), tt.port), "json", func() { tt.from.askFor(patience, backend.TCP, tt.to.of(family), tt.port, 1) })
			got := readTrace(t, text)
			if got.Served || got.Endpoints != 1 || got.CarriedBy != "iptables" || len(got.Connections) != 1 || len(got.Connections[0].Stations) != 5 || got.Connections[0].Why != nil {
				t.Errorf("%s, IPv%d: want one connection of iptables mode that arrived, went to an endpoint, was answered and returned\n%s", tt.name, family, text)
				continue
			}
			if want := netip.MustParseAddrPort(hostPort(w.pod1.addr.of(family), 8080)).String(); got.Connections[0].Backend != want {
				t.Errorf("%s, IPv%d: %s was chosen, want %s\n%s", tt.name, family, got.Connections[0].Backend, want, text)
			}
		}
	}
}

// TestCheckNames: each fault of a node is named in the first three lines, by the real kernel.
func TestCheckNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pod1.serve(t, 8080)
	web := numberedService(1)
	web.backends = endpoints(w.pod1)
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	n.write(t, web)
	n.start(t)
	before := n.look(t, "nft")
	out, err := n.verb("check")
	if err != nil {
		t.Errorf("a node that carries Services is not fit: %v", err)
	}
	t.Logf("check\n%s", out)
	var told struct {
		Fit   bool
		Items []struct{ Name, State string }
	}
	if text, err := n.verb("check", "-o", "json"); err != nil || json.Unmarshal([]byte(text), &told) != nil || !told.Fit || len(told.Items) < 20 {
		t.Errorf("error %v, fit %t, %d items in\n%s", err, told.Fit, len(told.Items), text)
	}
	names := []string{"virtual servers of others", "sockets on node ports", "iptables backends", "connection tracking in use", "node port range"}
	for _, name := range names {
		if first := head(out); strings.Contains(first, name) {
			t.Errorf("%s is complained about on a node that is well:\n%s", name, first)
		}
	}
	for _, tt := range []struct{ name, script string }{
		{"virtual servers of others", "ipvsadm -A -t 203.0.113.1:8443 -s rr"},
		{"iptables backends", "iptables-legacy -A INPUT -j ACCEPT"},
		{"node port range", "echo 20000 40000 > /proc/sys/net/ipv4/ip_local_port_range"},
	} {
		w.node.shell(t, tt.script)
		wantNamed(t, n, tt.name)
	}
	serve(t, w.node.space, backend.Config{Name: "daemon", TCP: ":" + strconv.Itoa(web.nodePort)})
	wantNamed(t, n, "sockets on node ports")
	w.node.shell(t, "ipvsadm -D -t 203.0.113.1:8443 && iptables-legacy -F INPUT")
	if after := n.look(t, "nft"); strings.Join(after["servers"], "\n") != strings.Join(before["servers"], "\n") {
		t.Errorf("check left servers behind:\n%v", after["servers"])
	}
}

// head has the first three lines.
func head(out string) string {
	first, _, _ := strings.Cut(out, "\n\n")
	return first
}

func wantNamed(t *testing.T, n *proxy, name string) {
	t.Helper()
	out, err := n.verb("check")
	if first := head(out); err != nil || !strings.Contains(first, name) || strings.Count(first, "\n") > 2 {
		t.Errorf("%v; %s is not in the first three lines:\n%s", err, name, out)
	}
}
