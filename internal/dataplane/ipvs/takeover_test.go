package ipvs_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/migrate"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

// tables are the nftables of a node.
type tables struct {
	*kernel
	list map[nftables.Key]struct{}
}

func (n tables) List(context.Context) (map[nftables.Key]struct{}, error) {
	if err := n.note("list nftables"); err != nil {
		return nil, err
	}
	out := map[nftables.Key]struct{}{}
	for k := range n.list {
		out[k] = struct{}{}
	}
	return out, nil
}

func (n tables) Delete(_ context.Context, keys []nftables.Key) []error {
	if err := n.note("write nftables"); err != nil {
		return many(len(keys), err)
	}
	for _, k := range keys {
		delete(n.list, k)
	}
	return nil
}

// iptablesMode is what kube-proxy's iptables mode has for one Service.
const iptablesMode = `*nat
:KUBE-SERVICES - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-SVC-AAAAAAAAAAAAAAAA - [0:0]
:KUBE-SEP-AAAAAAAAAAAAAAAA - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-AAAAAAAAAAAAAAAA
-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
-A KUBE-SVC-AAAAAAAAAAAAAAAA -j KUBE-SEP-AAAAAAAAAAAAAAAA
-A KUBE-SEP-AAAAAAAAAAAAAAAA -p tcp -m tcp -j DNAT --to-destination 10.244.0.1:8080
COMMIT
*filter
:KUBE-SERVICES - [0:0]
:KUBE-PROXY-FIREWALL - [0:0]
:KUBE-FORWARD - [0:0]
-A INPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A INPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL
COMMIT
`

// carriesByRules reports whether kube-proxy's rules still take packets to the Service.
func (k *kernel) carriesByRules() bool {
	text := k.rules.Save(rules.IPv4)
	return strings.Contains(text, "--dport 80 -j KUBE-SVC-") && strings.Contains(text, "-j DNAT --to-destination 10.244.0.1:8080")
}

// inPlace reports whether all of our rows carry the Service, except the dispatch.
func (k *kernel) inPlace() bool {
	return strings.Contains(k.servers.String(), "10.244.0.1:8080") && strings.Contains(k.links.String(), vip+"/32")
}

// The Service is carried at every moment.
func TestRulesOfIPTablesModeCarryUntilOursDo(t *testing.T) {
	k := newKernel()
	if err := k.rules.Load(rules.IPv4, iptablesMode); err != nil {
		t.Fatal(err)
	}
	m := begin(t, k, draining(first))
	if !m.CarriesServices() {
		t.Error("nothing is served, it says")
	}
	k.watch = func() {
		if !k.carriesByRules() && !k.inPlace() {
			t.Errorf("the Service is not carried before call %d:\n%s", len(k.calls), k)
		}
	}
	apply(t, m)
	k.watch = nil
	if !k.inPlace() || k.carriesByRules() {
		t.Errorf("at the end:\n%s", k)
	}
	for _, name := range []string{"KUBE-SVC-", "KUBE-SEP-", "KUBE-NODEPORTS", "filter:KUBE-SERVICES"} {
		if strings.Contains(k.rules.String(), name) {
			t.Errorf("%s is left:\n%s", name, k.rules)
		}
	}
}

// The dispatch is only taken over when all of our rows are in place, regardless of other changes; a
// row that is always refused does not delay that for ever.
func TestTakeoverWaitsForFailedRows(t *testing.T) {
	for _, refused := range []string{"write servers", "write members", "write addresses", "write destinations", "write jumps"} {
		t.Run(refused, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKernel()
				if err := k.rules.Load(rules.IPv4, iptablesMode); err != nil {
					t.Fatal(err)
				}
				m := begin(t, k, draining(first))
				k.refuse = refused
				for n := range 20 { // of a busy cluster, in which something changes all the time
					m.Set(service("other", "10.96.0.11", []string{first, second}[n%2]))
					m.Apply(t.Context(), dataplane.ApplyOptions{Retry: n%2 == 1})
					time.Sleep(5 * time.Millisecond)
					if !k.carriesByRules() {
						t.Fatalf("the Service is not carried after %d passes", n)
					}
				}
				k.refuse = ""
				m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
				if !k.inPlace() || k.carriesByRules() {
					t.Errorf("after the retry:\n%s", k)
				}
			})
		})
	}
}

func TestTakeoverDoesNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKernel()
		if err := k.rules.Load(rules.IPv4, iptablesMode); err != nil {
			t.Fatal(err)
		}
		m := begin(t, k, draining(first), service("other", "10.96.0.11", second))
		k.servers.FailRow(vserver.ServerKey{Addr: netip.MustParseAddr("10.96.0.11"), Port: 80, Protocol: vserver.ProtocolTCP}, errPlanned)
		for range 15 {
			m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
			time.Sleep(time.Second)
		}
		if !k.inPlace() || k.carriesByRules() {
			t.Errorf("one row is refused for good:\n%s", k)
		}
	})
}

// Input that cannot be read may describe Services that the rules carry.
func TestTakeoverWaitsForAllInput(t *testing.T) {
	k := newKernel()
	if err := k.rules.Load(rules.IPv4, iptablesMode); err != nil {
		t.Fatal(err)
	}
	m := begin(t, k)
	for range 10 {
		m.Apply(t.Context(), dataplane.ApplyOptions{KeepOrphans: true, Retry: true})
	}
	if !k.carriesByRules() {
		t.Fatal("the Service is not carried")
	}
	m.Set(draining(first))
	apply(t, m)
	if !k.inPlace() || k.carriesByRules() {
		t.Errorf("when it can be read:\n%s", k)
	}
}

// While the rules that carry cannot be replaced, what they lead to stays.
func TestTakeoverKeepsWhatTheDispatchRefersTo(t *testing.T) {
	k := newKernel()
	if err := k.rules.Load(rules.IPv4, iptablesMode); err != nil {
		t.Fatal(err)
	}
	dispatch := rules.ChainKey{Family: rules.IPv4, Table: "nat", Name: "KUBE-SERVICES"}
	k.rules.Plan.FailChains = map[rules.ChainKey]error{dispatch: rules.ErrBusy}
	m := begin(t, k, draining(first))
	for range 10 {
		m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true})
		if !k.carriesByRules() {
			t.Fatalf("the Service is not carried:\n%s", k.rules)
		}
	}
	if r := m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true}); r.Total().Failed != 1 {
		t.Errorf("%d rows failed, want the dispatch alone: %v", r.Total().Failed, r.Total().Err())
	}
	k.rules.Plan.FailChains = nil
	apply(t, m)
	if !k.inPlace() || k.carriesByRules() || strings.Contains(k.rules.String(), "KUBE-SVC-") {
		t.Errorf("when it can be replaced:\n%s", k.rules)
	}
}

// The host dials a bound address from that address, which must not leave the node while rules of
// another program translate the packet.
func TestTakeoverMasqueradesVIPs(t *testing.T) {
	const rule = "--match-set KUBE-IPVS-IPS src -m addrtype --src-type LOCAL -j MASQUERADE"
	k := newKernel()
	if err := k.rules.Load(rules.IPv4, iptablesMode); err != nil {
		t.Fatal(err)
	}
	m := begin(t, k, draining(first))
	seen := false
	k.watch = func() {
		bound, masqueraded := strings.Contains(k.links.String(), vip+"/32"), strings.Contains(k.rules.Save(rules.IPv4), rule)
		if bound && k.carriesByRules() && !masqueraded {
			t.Errorf("bound and not masqueraded before call %d", len(k.calls))
		}
		seen = seen || masqueraded
	}
	apply(t, m)
	k.watch = nil
	if !seen || strings.Contains(k.rules.String(), rule) {
		t.Errorf("the rule was seen: %v; at the end:\n%s", seen, k.rules)
	}
}

// Two programs that write the same chains undo each other's work, and the log names the other one.
func TestARivalIsNamedOnce(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	k := newKernel()
	m := ipvs.New(zap.New(core), config(), k.deps())
	m.SetHost(host())
	m.Set(draining(first))
	if err := m.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	apply(t, m)
	for range 3 {
		if err := k.rules.Load(rules.IPv4, iptablesMode); err != nil {
			t.Fatal(err)
		}
		round(t, m)
	}
	if n := logs.FilterMessageSnippet("stop it").Len(); n != 1 {
		t.Errorf("told %d times: %v", n, logs.All())
	}
}

// A clean-up has nothing to put in their place.
func TestCleanupOfOtherModes(t *testing.T) {
	k := newKernel()
	if err := k.rules.Load(rules.IPv4, iptablesMode); err != nil {
		t.Fatal(err)
	}
	nft := tables{k, map[nftables.Key]struct{}{{Family: "ip", Name: "kube-proxy"}: {}}}
	deps := k.deps()
	deps.Tables = nft
	m := ipvs.New(zaptest.NewLogger(t), config(), deps)
	if err := dataplane.Sweep(t.Context(), m, func(dataplane.Result) {}); err != nil {
		t.Error(err)
	}
	if text := k.rules.String(); strings.Contains(text, "KUBE-") || len(nft.list) > 0 {
		t.Errorf("tables %v, and rules:\n%s", nft.list, text)
	}
}

// TestCleanupNamesWhatIsLeft checks that a cleanup that the kernel refuses in part reports the refused rows, and leaves the device by which
// the next cleanup knows the rest.
func TestCleanupNamesWhatIsLeft(t *testing.T) {
	k := newKernel()
	apply(t, begin(t, k, web))
	k.refuse = "write servers"
	m := ipvs.New(zaptest.NewLogger(t), config(), k.deps())
	err := dataplane.Sweep(t.Context(), m, func(dataplane.Result) {})
	if err == nil || !strings.Contains(err.Error(), "could not be removed: 1 servers") || slices.Contains(k.calls, "remove link") {
		t.Errorf("error %v after %v", err, k.calls)
	}
}

func TestTablesOfNFTablesModeGoLast(t *testing.T) {
	k := newKernel()
	nft := tables{k, map[nftables.Key]struct{}{
		{Family: "ip", Name: "kube-proxy"}: {}, {Family: "ip6", Name: "kube-proxy"}: {},
		{Family: "ip", Name: "filter"}: {}, {Family: "inet", Name: "kube-proxy"}: {},
	}}
	deps := k.deps()
	deps.Tables = nft
	m := ipvs.New(zaptest.NewLogger(t), config(), deps)
	m.SetHost(host())
	m.Set(draining(first))
	if err := m.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !m.CarriesServices() {
		t.Error("nothing is served, it says")
	}
	k.calls = nil
	apply(t, m)
	if w := writes(k.calls); w[len(w)-1] != "write nftables" || slices.Index(w, "write nftables") != len(w)-1 {
		t.Errorf("order of writes: %v", w)
	}
	want := map[nftables.Key]struct{}{{Family: "ip", Name: "filter"}: {}, {Family: "inet", Name: "kube-proxy"}: {}}
	if diff := cmp.Diff(want, nft.list); diff != "" {
		t.Errorf("tables (-want +got):\n%s", diff)
	}
}

// handOver cleans up for a successor.
func handOver(t *testing.T, k *kernel, to migrate.Target) error {
	t.Helper()
	m := ipvs.New(zaptest.NewLogger(t), config(), k.deps())
	m.SetHost(host())
	return dataplane.Sweep(t.Context(), m.HandOver(to), func(dataplane.Result) {})
}

// A kube-proxy in ipvs mode finds everything it knows, and nothing that it does not.
func TestHandOverToIPVSMode(t *testing.T) {
	k := newKernel()
	apply(t, begin(t, k, draining(first, second), dual))
	before := k.servers.String() + k.links.String()
	if err := handOver(t, k, migrate.TargetIPVS); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, k.servers.String()+k.links.String()); diff != "" {
		t.Errorf("servers and addresses (-before +after):\n%s", diff)
	}
	text := k.String()
	for _, ours := range []string{"DETOUR", "NO-LOCAL", "NODE-PORT-IPS", "KUBE-IPVS-ACCEPT", "mangle"} {
		if strings.Contains(text, ours) {
			t.Errorf("%s is left:\n%s", ours, text)
		}
	}
	for _, theirs := range []string{
		"KUBE-CLUSTER-IP 10.96.0.10,tcp:80", "-m addrtype --dst-type LOCAL -j KUBE-NODE-PORT",
		"--match-set KUBE-CLUSTER-IP dst,dst -j RETURN", "--match-set KUBE-6-CLUSTER-IP dst,dst -j ACCEPT", "-j MASQUERADE",
	} {
		if !strings.Contains(text, theirs) {
			t.Errorf("%s is gone:\n%s", theirs, text)
		}
	}
	calls := len(writes(k.calls))
	if err := handOver(t, k, migrate.TargetIPVS); err != nil || len(writes(k.calls)) != calls {
		t.Errorf("the second time: %v, calls %v", err, k.calls[calls:])
	}
}

// One in iptables mode has begun before, and keeps its own.
func TestHandOverToIPTablesMode(t *testing.T) {
	k := newKernel()
	apply(t, begin(t, k, draining(first)))
	before := k.String()
	if err := handOver(t, k, migrate.TargetIPTables); err == nil || !strings.Contains(err.Error(), "start it first") {
		t.Errorf("while no other proxy carries: %v", err)
	}
	if diff := cmp.Diff(before, k.String()); diff != "" {
		t.Errorf("it was refused and changed (-before +after):\n%s", diff)
	}
	if err := k.rules.Load(rules.IPv4, iptablesMode); err != nil {
		t.Fatal(err)
	}
	k.watch = func() {
		if !k.carriesByRules() {
			t.Errorf("the Service is not carried before call %d", len(k.calls))
		}
	}
	if err := handOver(t, k, migrate.TargetIPTables); err != nil {
		t.Fatal(err)
	}
	if k.servers.String() != "" || strings.Contains(k.links.String(), vip) || strings.Contains(k.String(), "IPVS") ||
		strings.Contains(k.rules.Save(rules.IPv4), "kube-proxy firewall rules") {
		t.Errorf("left:\n%s", k)
	}
	if text := k.rules.Save(rules.IPv4); !strings.Contains(text, `-m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL`) {
		t.Errorf("a jump of the successor is gone:\n%s", text)
	}
}

// Iptables mode of this agent has no rule in nat that shows it while no Service has an endpoint.
// The remains of IPVS are removed all the same, and its chains stay.
func TestHandOverToOurIPTablesMode(t *testing.T) {
	k := newKernel()
	apply(t, begin(t, k, draining()))
	const bare = `*nat
:KUBE-SERVICES - [0:0]
:KUBE-POSTROUTING - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
COMMIT
*filter
:KUBE-FORWARD - [0:0]
:KUBE-PROXY-FIREWALL - [0:0]
COMMIT
`
	for _, f := range []rules.Family{rules.IPv4, rules.IPv6} {
		if err := k.rules.Load(f, bare); err != nil {
			t.Fatal(err)
		}
	}
	if err := handOver(t, k, migrate.TargetOurs); err != nil {
		t.Fatal(err)
	}
	if k.servers.String() != "" || strings.Contains(k.links.String(), vip) || strings.Contains(k.String(), "IPVS") {
		t.Errorf("left:\n%s", k)
	}
	if text := k.rules.Save(rules.IPv4); !strings.Contains(text, "-j KUBE-SERVICES") {
		t.Errorf("a jump of the successor is gone:\n%s", text)
	}
}

func TestHandOverToNFTablesMode(t *testing.T) {
	k := newKernel()
	apply(t, begin(t, k, draining(first)))
	nft := tables{k, map[nftables.Key]struct{}{{Family: "ip", Name: "kube-proxy"}: {}}}
	deps := k.deps()
	deps.Tables = tables{k, map[nftables.Key]struct{}{{Family: "ip6", Name: "kube-proxy"}: {}}}
	before := k.String()
	sweep := func() error {
		m := ipvs.New(zaptest.NewLogger(t), config(), deps)
		return dataplane.Sweep(t.Context(), m.HandOver(migrate.TargetNFTables), func(dataplane.Result) {})
	}
	if err := sweep(); err == nil || !strings.Contains(err.Error(), "over IPv4 on this node yet") || k.String() != before {
		t.Errorf("while no proxy carries IPv4: %v", err)
	}
	deps.Tables = nft
	if err := sweep(); err != nil {
		t.Fatal(err)
	}
	if len(nft.list) != 1 || strings.Contains(k.String(), "KUBE") {
		t.Errorf("tables %v, left:\n%s", nft.list, k)
	}
}

func TestParseSuccessor(t *testing.T) {
	for _, ok := range []string{"", "ipvs", "iptables", "nftables"} {
		if s, err := migrate.ParseTarget(ok); err != nil || string(s) != ok {
			t.Errorf("%q: %v, %v", ok, s, err)
		}
	}
	if _, err := migrate.ParseTarget("kernelspace"); err == nil || errors.Unwrap(err) != nil {
		t.Errorf("kernelspace: %v", err)
	}
}
