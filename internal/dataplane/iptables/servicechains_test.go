package iptables_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/build"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/golden"
)

// TestNamesAreKubeProxys compares names of chains with values that follow from kube-proxy's
// rule: base32 of SHA-256 over the name of the Service port and the protocol.
func TestNamesAreKubeProxys(t *testing.T) {
	named := func(id, port string, p model.Protocol, target string) model.ServicePlan {
		svc := build.Service(id, build.IPs("10.96.0.10"), build.PortOver(p, port, 443), nodePort(30443),
			balancer("203.0.113.1"), externalLocal(), ranges("192.0.2.0/24"))
		at := netip.MustParseAddrPort(target)
		return compile(svc, build.Slice(id, "a", build.TargetOver(p, port, at.Port()), build.Endpoints(build.Ready(at.Addr().String(), "here"))))
	}
	for _, tt := range []struct {
		plan     model.ServicePlan
		hash     string
		endpoint string
	}{
		{named("ns1/svc1", "p80", model.TCP, "10.180.0.1:80"), "XPGD46QRK7WJZT7O", "SXIVWICOYRO3J4NJ"},
		{named("default/kubernetes", "https", model.TCP, "10.180.0.1:80"), "NPX46M4PTMTKRN6Y", ""},
		{named("kube-system/kube-dns", "dns", model.UDP, "10.180.0.1:80"), "TCOU7JCQXEZGVUNU", ""},
		{named("ns1/svc1", "", model.TCP, "10.180.0.1:80"), "AQI2S6QIMU7PVVRP", ""},
	} {
		t.Run(tt.plan.Frontends[0].Name(), func(t *testing.T) {
			text := clean(t, config(), tt.plan).Save(rules.IPv4)
			for _, prefix := range []string{"SVC", "SVL", "FW", "EXT"} {
				if want := ":KUBE-" + prefix + "-" + tt.hash + " "; !strings.Contains(text, want) {
					t.Errorf("no chain %q:\n%s", want, text)
				}
			}
			if !strings.Contains(text, ":KUBE-SEP-"+tt.endpoint) {
				t.Errorf("no chain of endpoint %s:\n%s", tt.endpoint, text)
			}
		})
	}
}

// serviceChains are the chains of Services in a kernel.
func serviceChains(t *testing.T, k *kernel) []string {
	t.Helper()
	var out []string
	for _, name := range sortedKeys(k.canonical(t)) {
		if strings.Contains(name, "KUBE-SVC-") || strings.Contains(name, "KUBE-SEP-") {
			out = append(out, name)
		}
	}
	return out
}

// fromFile is the plan of a Service in a manifest.
func fromFile(p model.ServicePlan) model.ServicePlan {
	p.ID.Origin = model.FromFile
	p.Frontends = slices.Clone(p.Frontends)
	for i := range p.Frontends {
		p.Frontends[i].Service = p.ID
	}
	return p
}

// Two Services of one name on different addresses do not fight over chains.
func TestServicesOfTwoSourcesHaveTheirOwnChains(t *testing.T) {
	kube, file := service("web", "10.96.0.10", "10.244.0.1"), fromFile(service("web", "10.96.0.20", "10.244.0.2"))
	both := config()
	both.Both = true
	alone := serviceChains(t, clean(t, config(), kube))
	if diff := cmp.Diff(alone, serviceChains(t, clean(t, both, kube))); diff != "" {
		t.Errorf("the Service of Kubernetes is called otherwise (-alone +both):\n%s", diff)
	}
	k := clean(t, both, kube, file)
	if got := serviceChains(t, k); len(got) != 4 {
		t.Errorf("chains %v, want two each", got)
	}
	for ip, to := range map[string]string{"10.96.0.10": "10.244.0.1:8080", "10.96.0.20": "10.244.0.2:8080"} {
		if got := k.reaches(t, rules.IPv4, ip); !slices.Equal(got, []string{to}) {
			t.Errorf("%s leads to %v, want %s", ip, got, to)
		}
	}
	if text := k.Save(rules.IPv4); strings.Contains(text, "file/") {
		t.Errorf("rules name a source:\n%s", text)
	}
}

// reaches lists where the dispatch of a cluster IP leads, by DNAT.
func (k *kernel) reaches(t *testing.T, f rules.Family, ip string) []string {
	t.Helper()
	var out []string
	var follow func(chain string)
	follow = func(chain string) {
		for _, rule := range k.chain(t, f, "nat", chain) {
			target := strings.Join(rules.Targets(rule), "")
			switch {
			case target == "DNAT":
				out = append(out, rule[strings.LastIndex(rule, " ")+1:])
			case strings.HasPrefix(target, "KUBE-S"):
				follow(target)
			}
		}
	}
	for _, rule := range k.chain(t, f, "nat", "KUBE-SERVICES") {
		if strings.HasPrefix(rule, "-d "+ip+"/") {
			follow(strings.Join(rules.Targets(rule), ""))
		}
	}
	return slices.Sorted(slices.Values(out))
}

// dual has endpoints of both families, two here and one elsewhere.
func dual(name, port string) []model.Slice {
	var out []model.Slice
	for _, pods := range []string{"10.244", "fd00:244"} {
		addr := func(i int) string {
			if strings.Contains(pods, ":") {
				return fmt.Sprintf("%s::%d", pods, i)
			}
			return fmt.Sprintf("%s.0.%d", pods, i)
		}
		out = append(out, build.Slice(name, name+pods, build.Target(port, 8080),
			build.Endpoints(build.Ready(addr(1), "here"), build.Ready(addr(2), "here"), build.Ready(addr(3), "far"))))
	}
	return out
}

// everyKind is a Service of each kind, over both families.
func everyKind() []model.ServicePlan {
	health := func(s *model.Service) { s.HealthCheckNodePort = 32000 }
	return []model.ServicePlan{
		compile(build.Service("plain", build.IPs("10.96.0.1", "fd00:96::1"), build.Port("http", 80)), dual("plain", "http")...),
		compile(build.Service("nodes", build.IPs("10.96.0.2", "fd00:96::2"), build.Port("", 80), nodePort(30080), externalLocal()), dual("nodes", "")...),
		compile(build.Service("lb", build.IPs("10.96.0.3", "fd00:96::3"), build.Port("https", 443), nodePort(30443),
			balancer("203.0.113.1", "203.0.113.2", "2001:db8::1"), ranges("192.0.2.0/24", "192.168.0.0/24", "2001:db8:9::/48")), dual("lb", "https")...),
		compile(build.Service("ext", build.IPs("10.96.0.4", "fd00:96::4"), build.Port("", 80), externalIPs("203.0.113.9", "2001:db8::9")), dual("ext", "")...),
		compile(build.Service("empty", build.IPs("10.96.0.5", "fd00:96::5"), build.Port("", 80), nodePort(30005),
			balancer("203.0.113.5", "2001:db8::5"))),
		compile(build.Service("sticky", build.IPs("10.96.0.6", "fd00:96::6"), build.Port("", 80), build.Affinity(3*time.Hour),
			balancer("203.0.113.6", "2001:db8::6"), externalLocal(), health), dual("sticky", "")...),
	}
}

func TestRulesOfEveryKind(t *testing.T) {
	k := clean(t, config(), everyKind()...)
	golden.Check(t, "rules4.txt", k.Save(rules.IPv4))
	golden.Check(t, "rules6.txt", k.Save(rules.IPv6))
}

func TestTextEqualsTheKernel(t *testing.T) {
	k := newKernel()
	m := begin(t, k, everyKind()...)
	apply(t, m)
	var b strings.Builder
	if err := m.WriteRows(&b, "rules"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(ownLines(k.String()), ownLines(b.String())); diff != "" {
		t.Errorf("rules (-kernel +plan):\n%s", diff)
	}
	if err := m.WriteRows(&b, "servers"); err == nil {
		t.Error("a mode without IPVS printed its servers")
	}
}

// ownLines drops what is the kernel's own, built-in chains, and puts the others, whose
// rules keep their order, in one order.
func ownLines(text string) []string {
	lines := slices.DeleteFunc(strings.Split(text, "\n"), func(l string) bool {
		return l == "" || strings.HasPrefix(l, ":") && !strings.Contains(l, "KUBE-")
	})
	for begin, i := 0, 0; i <= len(lines); i++ {
		if i == len(lines) || !strings.HasPrefix(lines[i], "-A ") {
			slices.SortStableFunc(lines[begin:i], func(a, b string) int {
				return strings.Compare(strings.Fields(a)[1], strings.Fields(b)[1])
			})
			begin = i + 1
		}
	}
	return lines
}

// A probability applies to the remaining packets: every endpoint is equally likely, and one of them
// always gets the packet.
func TestEveryEndpointIsAsLikely(t *testing.T) {
	for n := 1; n <= 100; n++ {
		var addrs []string
		for i := range n {
			addrs = append(addrs, fmt.Sprintf("10.244.%d.1", i))
		}
		k := clean(t, config(), service("web", "10.96.0.10", addrs...))
		pool := slices.IndexFunc(serviceChains(t, k), func(c string) bool { return strings.Contains(c, "KUBE-SVC-") })
		name := strings.Fields(serviceChains(t, k)[pool])[2]
		left := 1.0
		lines := slices.DeleteFunc(k.chain(t, rules.IPv4, "nat", name), func(l string) bool { return strings.HasSuffix(l, "KUBE-MARK-MASQ") })
		if len(lines) != n {
			t.Fatalf("%d rules for %d endpoints", len(lines), n)
		}
		for i, line := range lines {
			chance := 1.0
			_, text, some := strings.Cut(line, "--mode random --probability ")
			if some {
				if _, err := fmt.Sscan(text, &chance); err != nil {
					t.Fatal(err)
				}
			}
			if last := i == n-1; some == last {
				t.Errorf("rule %d of %d: %s", i+1, n, line)
			}
			if got, want := left*chance, 1/float64(n); got < want-1e-8 || got > want+1e-8 {
				t.Errorf("endpoint %d of %d is taken by %.9f of all, want %.9f", i+1, n, got, want)
			}
			left *= 1 - chance
		}
	}
}
