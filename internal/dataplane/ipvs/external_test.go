package ipvs_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// external is a Service with a cluster IP and one more frontend, as change makes it.
func external(name, vip, addr string, kind model.Kind, change func(*model.Frontend)) model.ServicePlan {
	p := service(name, vip, "10.244.0.1:8080")
	f := p.Frontends[0]
	f.Kind, f.Key.Addr, f.Hairpin = kind, netip.MustParseAddr(addr), nil
	if kind == model.KindNodePort {
		f.Key.Port, f.Bind = 30080, false
	}
	if change != nil {
		change(&f)
	}
	p.Frontends = append(p.Frontends, f)
	return p
}

// local makes a frontend one with a Local policy and a detour to the cluster IP.
func local(f *model.Frontend) {
	f.Local, f.Detour = true, netip.MustParseAddrPort("10.96.0.10:80")
}

// added lists the entries of a kernel but those of the base.
func added(k *kernel) []string {
	var out []string
	for line := range strings.Lines(k.sets.String()) {
		if strings.HasPrefix(line, "add ") && !strings.Contains(line, "NODE-PORT-IPS") {
			out = append(out, strings.TrimSpace(strings.TrimPrefix(line, "add ")))
		}
	}
	return out
}

var clusterEntries = []string{
	"KUBE-CLUSTER-IP 10.96.0.10,tcp:80", "KUBE-IPVS-IPS 10.96.0.10", "KUBE-LOOP-BACK 10.244.0.1,tcp:8080,10.244.0.1",
}

func TestEntriesOfAFrontend(t *testing.T) {
	ranges := func(own bool) func(f *model.Frontend) {
		return func(f *model.Frontend) {
			f.SourceRanges = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.7/32")}
			f.OwnNode = own
		}
	}
	unbound := func(f *model.Frontend) { f.Bind = false }
	silent := func(f *model.Frontend) { local(f); f.Backends, f.NoLocal = nil, true }
	empty := func(f *model.Frontend) { local(f); f.Backends = nil }
	over := func(p model.Protocol, then func(*model.Frontend)) func(*model.Frontend) {
		return func(f *model.Frontend) {
			f.Key.Protocol = p
			if then != nil {
				then(f)
			}
		}
	}
	for name, tt := range map[string]struct {
		addr   string
		kind   model.Kind
		change func(*model.Frontend)
		want   []string
	}{
		"external IP":                                {"203.0.113.1", model.KindExternalIP, nil, []string{"KUBE-EXTERNAL-IP 203.0.113.1,tcp:80", "KUBE-IPVS-IPS 203.0.113.1"}},
		"external IP of a node":                      {"203.0.113.1", model.KindExternalIP, unbound, []string{"KUBE-EXTERNAL-IP 203.0.113.1,tcp:80"}},
		"external IP, Local":                         {"203.0.113.1", model.KindExternalIP, local, []string{"KUBE-DETOUR 203.0.113.1,tcp:80", "KUBE-EXTERNAL-IP-LOCAL 203.0.113.1,tcp:80", "KUBE-IPVS-IPS 203.0.113.1"}},
		"external IP, none here":                     {"203.0.113.1", model.KindExternalIP, silent, []string{"KUBE-DETOUR 203.0.113.1,tcp:80", "KUBE-EXTERNAL-IP-LOCAL 203.0.113.1,tcp:80", "KUBE-IPVS-IPS 203.0.113.1", "KUBE-NO-LOCAL 203.0.113.1,tcp:80"}},
		"external IP, none at all":                   {"203.0.113.1", model.KindExternalIP, empty, []string{"KUBE-EXTERNAL-IP-LOCAL 203.0.113.1,tcp:80", "KUBE-IPVS-IPS 203.0.113.1"}},
		"load balancer":                              {"203.0.113.1", model.KindLoadBalancer, nil, []string{"KUBE-IPVS-IPS 203.0.113.1", "KUBE-LOAD-BALANCER 203.0.113.1,tcp:80"}},
		"load balancer, Local":                       {"203.0.113.1", model.KindLoadBalancer, local, []string{"KUBE-DETOUR 203.0.113.1,tcp:80", "KUBE-IPVS-IPS 203.0.113.1", "KUBE-LOAD-BALANCER 203.0.113.1,tcp:80", "KUBE-LOAD-BALANCER-LOCAL 203.0.113.1,tcp:80"}},
		"load balancer with ranges":                  {"203.0.113.1", model.KindLoadBalancer, ranges(false), []string{"KUBE-IPVS-IPS 203.0.113.1", "KUBE-LOAD-BALANCER 203.0.113.1,tcp:80", "KUBE-LOAD-BALANCER-FW 203.0.113.1,tcp:80", "KUBE-LOAD-BALANCER-SOURCE-CIDR 203.0.113.1,tcp:80,10.0.0.0/8", "KUBE-LOAD-BALANCER-SOURCE-CIDR 203.0.113.1,tcp:80,192.0.2.7"}},
		"ranges with this node":                      {"203.0.113.1", model.KindLoadBalancer, ranges(true), []string{"KUBE-IPVS-IPS 203.0.113.1", "KUBE-LOAD-BALANCER 203.0.113.1,tcp:80", "KUBE-LOAD-BALANCER-FW 203.0.113.1,tcp:80", "KUBE-LOAD-BALANCER-SOURCE-CIDR 203.0.113.1,tcp:80,10.0.0.0/8", "KUBE-LOAD-BALANCER-SOURCE-CIDR 203.0.113.1,tcp:80,192.0.2.7", "KUBE-LOAD-BALANCER-SOURCE-IP 203.0.113.1,tcp:80,203.0.113.1"}},
		"detour beside an address that is not bound": {"10.96.0.10", model.KindDetour, func(f *model.Frontend) { f.Key.Port, f.Bind = 65535, false }, []string{"KUBE-DETOUR-END 10.96.0.10,tcp:65535"}},
		"NodePort TCP":                               {"192.168.0.1", model.KindNodePort, nil, []string{"KUBE-NODE-PORT-TCP 30080"}},
		"NodePort TCP, Local":                        {"192.168.0.1", model.KindNodePort, local, []string{"KUBE-DETOUR 192.168.0.1,tcp:30080", "KUBE-NODE-PORT-LOCAL-TCP 30080", "KUBE-NODE-PORT-TCP 30080"}},
		"NodePort UDP, Local":                        {"192.168.0.1", model.KindNodePort, over(model.UDP, local), []string{"KUBE-DETOUR 192.168.0.1,udp:30080", "KUBE-NODE-PORT-LOCAL-UDP 30080", "KUBE-NODE-PORT-UDP 30080"}},
		"NodePort SCTP":                              {"192.168.0.1", model.KindNodePort, over(model.SCTP, nil), []string{"KUBE-NODE-PORT-SCTP-HASH 192.168.0.1,sctp:30080"}},
		"NodePort SCTP, Local":                       {"192.168.0.1", model.KindNodePort, over(model.SCTP, local), []string{"KUBE-DETOUR 192.168.0.1,sctp:30080", "KUBE-NODE-PORT-LOCAL-SCTP-HASH 192.168.0.1,sctp:30080", "KUBE-NODE-PORT-SCTP-HASH 192.168.0.1,sctp:30080"}},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKernel()
			apply(t, begin(t, k, external("web", "10.96.0.10", tt.addr, tt.kind, tt.change)))
			got := slices.DeleteFunc(added(k), func(e string) bool { return slices.Contains(clusterEntries, e) })
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("entries (-want +got):\n%s", diff)
			}
			k.calls = nil
			if r := apply(t, begin(t, k, external("web", "10.96.0.10", tt.addr, tt.kind, tt.change))); len(r.Stages) != 0 {
				t.Errorf("a restart wrote %+v", r.Stages)
			}
			apply(t, begin(t, k))
			if got := added(k); len(got) != 0 || k.servers.String() != "" {
				t.Errorf("a restart without the Service left %v and\n%s", got, k.servers)
			}
		})
	}
}

// chain is the text of one chain of the kernel.
func (k *kernel) chain(t *testing.T, key rules.ChainKey) []string {
	t.Helper()
	chains, _, err := k.rules.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if chains[key].Rules == "" {
		return nil
	}
	return strings.Split(chains[key].Rules, "\n")
}

func TestDetours(t *testing.T) {
	to4 := rules.ChainKey{Family: rules.IPv4, Table: "nat", Name: "KUBE-DETOUR-TO"}
	rule := "-d 203.0.113.1/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.96.0.10:80"
	k := newKernel()
	m := begin(t, k, external("web", "10.96.0.10", "203.0.113.1", model.KindLoadBalancer, local))
	apply(t, m)
	if diff := cmp.Diff([]string{rule}, k.chain(t, to4)); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}

	t.Run("endpoints do not touch the rules", func(t *testing.T) {
		k.calls = nil
		m.Set(external("web", "10.96.0.10", "203.0.113.1", model.KindLoadBalancer, func(f *model.Frontend) { local(f); f.Backends, f.NoLocal = nil, true }))
		apply(t, m)
		if slices.Contains(k.calls, "write chains") {
			t.Errorf("calls %v", k.calls)
		}
	})
	t.Run("no detour to what another Service holds", func(t *testing.T) {
		older := service("older", "10.96.0.10", "10.244.0.9:8080")
		older.Created = older.Created.AddDate(2020, 0, 0)
		m.Set(older)
		apply(t, m)
		if got := k.chain(t, to4); got != nil {
			t.Errorf("rules %q", got)
		}
		m.Set(gone("older"))
		apply(t, m)
		if diff := cmp.Diff([]string{rule}, k.chain(t, to4)); diff != "" {
			t.Errorf("rules (-want +got):\n%s", diff)
		}
	})
	t.Run("a detour waits for the server it leads to", func(t *testing.T) {
		k := newKernel()
		m := begin(t, k)
		apply(t, m)
		k.watch = func() {
			if k.chain(t, to4) != nil && !strings.Contains(k.servers.String(), "10.96.0.10:80") {
				t.Errorf("clients are redirected to an address without an endpoint:\n%s", k.servers)
			}
		}
		m.Set(external("web", "10.96.0.10", "203.0.113.1", model.KindLoadBalancer, local))
		apply(t, m)
		if diff := cmp.Diff([]string{rule}, k.chain(t, to4)); diff != "" {
			t.Errorf("rules after one pass (-want +got):\n%s", diff)
		}
		m.Set(gone("web"))
		apply(t, m)
	})
	t.Run("SCTP has a chain of its own", func(t *testing.T) {
		k := newKernel()
		p := external("web", "10.96.0.10", "203.0.113.1", model.KindLoadBalancer, local)
		for i := range p.Frontends {
			p.Frontends[i].Key.Protocol = model.SCTP
		}
		apply(t, begin(t, k, p))
		sctp := to4
		sctp.Name = "KUBE-DETOUR-SCTP"
		if len(k.chain(t, sctp)) != 1 || k.chain(t, to4) != nil {
			t.Errorf("rules %q and %q", k.chain(t, sctp), k.chain(t, to4))
		}
	})
	t.Run("policy Cluster", func(t *testing.T) {
		m.Set(external("web", "10.96.0.10", "203.0.113.1", model.KindLoadBalancer, nil))
		apply(t, m)
		if got := k.chain(t, to4); got != nil {
			t.Errorf("rules %q", got)
		}
	})
}

// While an entry that keeps clients out cannot be written, the port stays shut.
func TestNoServerWithoutItsGuards(t *testing.T) {
	p := external("web", "10.96.0.10", "203.0.113.1", model.KindLoadBalancer, func(f *model.Frontend) {
		f.SourceRanges = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	})
	clean := newKernel()
	m := begin(t, clean)
	apply(t, m)
	before := len(clean.calls)
	m.Set(p)
	apply(t, m)
	for n := before + 1; n <= len(clean.calls); n++ {
		if clean.calls[n-1] != "write members" {
			continue
		}
		k := newKernel()
		m := begin(t, k)
		apply(t, m)
		m.Set(p)
		k.failAt = n
		m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
		if s := k.servers.String(); strings.Contains(s, "203.0.113.1") && !strings.Contains(k.sets.String(), "SOURCE-CIDR 203.0.113.1,tcp:80,10.0.0.0/8") {
			t.Errorf("call %d failed, and the port is open to everybody:\n%s%s", n, s, k.sets)
		}
		apply(t, m)
		if diff := cmp.Diff(clean.String(), k.String()); diff != "" {
			t.Errorf("kernel (-clean +got):\n%s", diff)
		}
	}
}

// Ranges come before what makes them count, and go after it.
func TestSourceRangesNeverShutOutTheirOwn(t *testing.T) {
	open := external("web", "10.96.0.10", "203.0.113.1", model.KindLoadBalancer, nil)
	limited := external("web", "10.96.0.10", "203.0.113.1", model.KindLoadBalancer, func(f *model.Frontend) {
		f.SourceRanges = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	})
	k := newKernel()
	m := begin(t, k, open)
	apply(t, m)
	limits := 0
	k.watch = func() {
		sets := k.sets.String()
		if !strings.Contains(sets, "add KUBE-LOAD-BALANCER-FW") {
			return
		}
		limits++
		if !strings.Contains(sets, "add KUBE-LOAD-BALANCER-SOURCE-CIDR") {
			t.Errorf("no client is admitted:\n%s", sets)
		}
	}
	for _, p := range []model.ServicePlan{limited, open, limited, open} {
		m.Set(p)
		apply(t, m)
	}
	if limits == 0 {
		t.Error("there never was a limit")
	}
}

func TestForeignServersOnNodeAddressesStay(t *testing.T) {
	at := func(addr string, port uint16) vserver.ServerChange {
		return vserver.ServerChange{Op: vserver.Add, Key: vserver.ServerKey{Addr: netip.MustParseAddr(addr), Port: port, Protocol: 6}, Server: vserver.Server{Scheduler: "wlc"}}
	}
	k := newKernel()
	mustWrite(t, k.servers.WriteServers(t.Context(), []vserver.ServerChange{
		at("192.168.0.1", 443),  // keepalived's, on an address that NodePorts answer on
		at("192.0.2.1", 30080),  // of another program, on a port that is a NodePort here
		at("192.168.0.2", 6443), // an external IP that is a node's address, on another port
	}))
	m := begin(t, k,
		external("web", "10.96.0.10", "192.168.0.1", model.KindNodePort, nil),
		external("ext", "10.96.0.11", "192.168.0.2", model.KindExternalIP, func(f *model.Frontend) { f.Bind = false }))
	apply(t, m)
	m.Set(gone("web"))
	m.Set(gone("ext"))
	apply(t, m)
	want := "-A -t 192.0.2.1:30080 -s wlc\n-A -t 192.168.0.1:443 -s wlc\n-A -t 192.168.0.2:6443 -s wlc\n"
	if diff := cmp.Diff(want, k.servers.String()); diff != "" {
		t.Errorf("servers (-want +got):\n%s", diff)
	}
}

func TestNodeAddressesFollowTheHost(t *testing.T) {
	k := newKernel()
	on := func(addr string) model.ServicePlan {
		return external("web", "10.96.0.10", addr, model.KindNodePort, nil)
	}
	m := begin(t, k, on("192.168.0.1"))
	apply(t, m)
	moved := host()
	moved.NodePorts = []netip.Addr{netip.MustParseAddr("192.168.0.9")}
	m.SetHost(moved)
	m.Set(on("192.168.0.9"))
	apply(t, m)
	if s := k.String(); strings.Contains(s, "192.168.0.1") || !strings.Contains(s, "192.168.0.9:30080") || !strings.Contains(s, "NODE-PORT-IPS 192.168.0.9") {
		t.Errorf("kernel:\n%s", s)
	}
}

// The entries that mark the server of a NodePort as ours stay until the server is deleted. This
// holds even if the node has lost the address and the Service was not compiled for that yet. So a
// process that dies in between leaves no server that the next one does not recognize.
func TestLostNodeAddressStaysWithItsServers(t *testing.T) {
	k := newKernel()
	m := begin(t, k, external("web", "10.96.0.10", "192.168.0.1", model.KindNodePort, nil))
	apply(t, m)
	moved := host()
	lost := netip.MustParseAddr("192.168.0.1")
	delete(moved.Links, lost)
	moved.NodePorts = slices.DeleteFunc(slices.Clone(moved.NodePorts), func(a netip.Addr) bool { return a == lost })
	m.SetHost(moved)
	m.Apply(t.Context(), dataplane.ApplyOptions{})
	if s := k.sets.String(); !strings.Contains(s, "add KUBE-NODE-PORT-IPS 192.168.0.1\n") {
		t.Errorf("the address of a server in place is forgotten:\n%s", s)
	}
	next := ipvs.New(zap.NewNop(), config(), k.deps())
	next.SetHost(moved)
	if err := next.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	apply(t, next)
	if s := k.String(); strings.Contains(s, "192.168.0.1") {
		t.Errorf("left in the kernel:\n%s", s)
	}
}

func TestHealthCheckPort(t *testing.T) {
	k := newKernel()
	p := service("web", "10.96.0.10")
	p.Health = model.HealthCheck{Port: 30000, IPv4: model.LocalEndpoints{Served: true}}
	m := begin(t, k, p)
	apply(t, m)
	p.Health.Port = 30001
	m.Set(p)
	apply(t, m)
	if got := k.sets.String(); !strings.Contains(got, "add KUBE-HEALTH-CHECK-NODE-PORT 30001\n") || strings.Contains(got, "30000") || strings.Contains(got, "add KUBE-6-HEALTH") {
		t.Errorf("sets:\n%s", got)
	}
	m.Set(gone("web"))
	apply(t, m)
	if got := k.sets.String(); strings.Contains(got, "3000") {
		t.Errorf("sets:\n%s", got)
	}
}

func TestSourcePortsBesideNodePorts(t *testing.T) {
	for name, tt := range map[string]struct {
		nodePorts netfilter.PortRange
		want      string
	}{
		"default":     {netfilter.PortRange{First: 30000, Last: 32767}, "--to-ports 32768-65535"},
		"high":        {netfilter.PortRange{First: 40000, Last: 65535}, "--to-ports 1024-39999"},
		"nothing":     {netfilter.PortRange{}, "-j MASQUERADE --random-fully"},
		"all of them": {netfilter.PortRange{First: 1, Last: 65535}, "-j MASQUERADE --random-fully"},
	} {
		t.Run(name, func(t *testing.T) {
			c, k := config(), newKernel()
			c.Masquerade.NodePorts = tt.nodePorts
			m := ipvs.New(zap.NewNop(), c, k.deps())
			if err := m.Load(t.Context()); err != nil {
				t.Fatal(err)
			}
			apply(t, m)
			got := strings.Join(k.chain(t, rules.ChainKey{Family: rules.IPv6, Table: "nat", Name: "KUBE-POSTROUTING"}), "\n")
			if !strings.Contains(got, tt.want) || strings.Contains(got, "--to-ports") != strings.Contains(tt.want, "--to-ports") {
				t.Errorf("%s\nwant %s", got, tt.want)
			}
		})
	}
}

// randomPlan is one of six Services, with frontends of all kinds on few addresses,
// so that they clash, or is gone.
func randomPlan(rnd *rand.Rand) model.ServicePlan {
	p := randomService(rnd)
	if len(p.Frontends) == 0 {
		return p
	}
	base := p.Frontends[0]
	for range rnd.IntN(4) {
		f := base
		f.Hairpin = nil
		f.Kind = model.KindLoadBalancer + model.Kind(rnd.IntN(3))
		f.Key.Addr = netip.MustParseAddr(fmt.Sprintf("203.0.113.%d", 1+rnd.IntN(2)))
		f.Bind = rnd.IntN(4) > 0
		if f.Kind == model.KindNodePort {
			f.Key.Addr, f.Key.Port, f.Bind = netip.MustParseAddr(fmt.Sprintf("192.168.0.%d", 1+rnd.IntN(2))), uint16(30000+rnd.IntN(2)), false
		}
		f.Key.Protocol = []model.Protocol{model.TCP, model.UDP, model.SCTP}[rnd.IntN(3)]
		if f.Kind == model.KindLoadBalancer && rnd.IntN(2) == 0 {
			f.SourceRanges, f.OwnNode = []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/16", rnd.IntN(3)))}, rnd.IntN(2) == 0
		}
		if rnd.IntN(2) == 0 {
			f.Local, f.Detour = true, netip.AddrPortFrom(base.Key.Addr, base.Key.Port)
			if f.NoLocal = rnd.IntN(2) == 0; f.NoLocal {
				f.Backends = nil
			}
		}
		if !slices.ContainsFunc(p.Frontends, func(o model.Frontend) bool { return o.Key == f.Key }) {
			p.Frontends = append(p.Frontends, f)
		}
	}
	if rnd.IntN(2) == 0 {
		p.Health = model.HealthCheck{Port: uint16(31000 + rnd.IntN(2)), IPv4: model.LocalEndpoints{Served: true}}
	}
	return p
}

// A range that is given twice is one, and goes with the last mention of it.
func TestRangesGivenTwice(t *testing.T) {
	k := newKernel()
	m := begin(t, k)
	limited := func(ranges ...string) {
		t.Helper()
		p := service("web", vip, first)
		f := &p.Frontends[0]
		f.Kind = model.KindLoadBalancer
		for _, r := range ranges {
			f.SourceRanges = append(f.SourceRanges, netip.MustParsePrefix(r))
		}
		m.Set(p)
		apply(t, m)
		_, entries, err := k.sets.List(t.Context(), "KUBE-LOAD-BALANCER-SOURCE-CIDR")
		distinct := slices.Compact(slices.Sorted(slices.Values(ranges)))
		if err != nil || len(entries) != len(distinct) {
			t.Errorf("ranges %v: entries %v, %v", ranges, entries, err)
		}
	}
	limited("10.0.0.0/8", "10.0.0.0/8", "192.0.2.0/24")
	limited("10.0.0.0/8", "192.0.2.0/24")
	limited("192.0.2.0/24")
	limited()
}
