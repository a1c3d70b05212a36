package ipvs_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/migrate"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link/linktest"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// forwarded is a plan with one external IP, bound, that is forwarded in some way.
func forwarded(vip string, way model.Forward) model.ServicePlan {
	p := service("web", "10.96.0.10", "10.244.0.1:80", "10.244.1.1:80")
	f := p.Frontends[0]
	f.Key.Addr, f.Kind, f.Forward, f.Hairpin = netip.MustParseAddr(vip), model.KindExternalIP, way, nil
	if f.Key.Addr.Is6() {
		f.Backends = []model.Backend{{Addr: netip.MustParseAddrPort("[fd00::1]:80"), Weight: 1}}
	}
	p.Frontends = append(p.Frontends, f)
	return p
}

// directState prints what there is of an address from which backends answer themselves.
func directState(t *testing.T, k *kernel, vip string) string {
	t.Helper()
	a := netip.MustParseAddr(vip)
	var out []string
	found, err := k.links.ListDetached(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if complete, there := found[a]; there {
		out = append(out, fmt.Sprintf("detached=%t", complete))
	}
	for _, set := range []string{"KUBE-DIRECT-IPS", "KUBE-6-DIRECT-IPS"} {
		_, entries, err := k.sets.List(t.Context(), set)
		if err != nil {
			continue // it does not exist while it is not needed
		}
		for _, e := range entries {
			if e == ipset.IP(a) {
				out = append(out, "marked")
			}
		}
	}
	chains, jumps, err := k.rules.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for key := range chains {
		if key.Table == "mangle" && key.Name == "KUBE-DIRECT" && key.Family == model.FamilyOf(a) {
			out = append(out, "rules")
		}
	}
	for key := range jumps {
		if key.Hook == "FORWARD" && key.Target == "KUBE-DIRECT-MSS" && key.Family == model.FamilyOf(a) {
			out = append(out, "jump")
		}
	}
	return strings.Join(out, " ")
}

func methods(t *testing.T, k *kernel, vip string) string {
	t.Helper()
	server := vserver.ServerKey{Addr: netip.MustParseAddr(vip), Port: 80, Protocol: 6}
	found, err := k.servers.ListDestinations(t.Context(), server)
	if err != nil {
		t.Fatal(err)
	}
	ways := map[uint8]int{}
	for _, d := range found {
		ways[d.Forward]++
	}
	return fmt.Sprint(ways)
}

// TestDirectReturn goes with one address from nat to a tunnel and back, through a restart,
// and away.
func TestDirectReturn(t *testing.T) {
	const vip = "203.0.113.10"
	k := newKernel()
	m := begin(t, k, forwarded(vip, model.ForwardNAT))
	expect := func(when, state, ways string) {
		t.Helper()
		if diff := cmp.Diff(state, directState(t, k, vip)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
		if got := methods(t, k, vip); got != ways {
			t.Errorf("%s: destinations by method %s, want %s", when, got, ways)
		}
	}
	apply(t, m)
	expect("nat", "", "map[0:2]")

	m.Set(forwarded(vip, model.ForwardTunnel))
	r := apply(t, m)
	expect("tunnel", "detached=true marked rules jump", "map[2:2]")
	for _, s := range r.Stages {
		if s.Stage == "destinations" && (s.Adds+s.Deletes != 0 || s.Updates != 2) {
			t.Errorf("another method for two destinations: %+v, want it changed in place", s.Outcome)
		}
	}
	if got := k.masqueraded(t, vip); got {
		t.Error("clients of a tunnel are masqueraded")
	}

	gue := forwarded(vip, model.ForwardTunnel)
	gue.Frontends[1].GUE = 5555
	m.Set(gue)
	apply(t, m)
	expect("GUE", "detached=true marked rules jump", "map[2:2]")
	if got := k.servers.String(); strings.Count(got, " --tun-type gue --tun-port 5555 --tun-nocsum\n") != 2 {
		t.Errorf("servers, with tunnels by GUE wanted:\n%s", got)
	}
	m.Set(forwarded(vip, model.ForwardTunnel))
	apply(t, m)

	k.links.LoseAddress(netip.MustParseAddr(vip))
	m.AddressLost(netip.MustParseAddr(vip))
	apply(t, m)
	expect("bound again", "detached=true marked rules jump", "map[2:2]")

	m.Set(forwarded(vip, model.ForwardNAT))
	apply(t, m)
	expect("nat again: connections that are there go on", "detached=true marked rules jump", "map[0:2]")
	if got := k.masqueraded(t, vip); !got {
		t.Error("clients are not masqueraded")
	}

	m = begin(t, k, forwarded(vip, model.ForwardNAT))
	if r := apply(t, m); r.Total().Written() != 0 {
		t.Errorf("a new process wrote %d rows", r.Total().Written())
	}
	expect("after a restart", "detached=true marked rules jump", "map[0:2]")

	m.Set(gone("web"))
	apply(t, m)
	expect("gone", "", "map[]")

	m.Set(forwarded(vip, model.ForwardTunnel))
	apply(t, m)
	m.Clear()
	apply(t, m)
	expect("cleaned up", "", "map[]")
}

// A Service that comes after the kernel was read finds its address detached, too.
func TestDetachedBeforeItsService(t *testing.T) {
	const vip = "203.0.113.10"
	k := newKernel()
	apply(t, begin(t, k, forwarded(vip, model.ForwardTunnel)))
	m := begin(t, k)
	m.Apply(t.Context(), dataplane.ApplyOptions{KeepOrphans: true})
	m.Set(forwarded(vip, model.ForwardNAT))
	apply(t, m)
	if got := directState(t, k, vip); got != "detached=true marked rules jump" {
		t.Errorf("the address is %q", got)
	}
}

// An address whose ports were captured until it could be bound is bound and detached for a moment.
// A process that reads the kernel then must not take it for one of direct return.
func TestCapturedBeforeItWasBound(t *testing.T) {
	const vip = "203.0.113.10"
	captured := forwarded(vip, model.ForwardNAT)
	captured.Frontends[1].Bind, captured.Frontends[1].Capture = false, true
	for _, tt := range []struct {
		name string
		read func(*kernel, *ipvs.Mode) *ipvs.Mode
	}{
		{"the same process", func(_ *kernel, m *ipvs.Mode) *ipvs.Mode {
			round(t, m)
			return m
		}},
		{"the next process", func(k *kernel, _ *ipvs.Mode) *ipvs.Mode { return begin(t, k, forwarded(vip, model.ForwardNAT)) }},
	} {
		k := newKernel()
		m := begin(t, k, captured)
		apply(t, m)
		if got := directState(t, k, vip); got != "detached=true" {
			t.Errorf("%s: captured, the address is %q", tt.name, got)
		}
		m.Set(forwarded(vip, model.ForwardNAT))
		k.links.FailNth(linktest.WriteDetached, 1, link.ErrBusy)
		m.Apply(t.Context(), dataplane.ApplyOptions{})
		found, err := k.links.List(t.Context())
		if _, bound := found[netip.MustParseAddr(vip)]; err != nil || !bound || directState(t, k, vip) == "" {
			t.Fatalf("%s: bound %t (%v), the address is %q: this shows nothing", tt.name, bound, err, directState(t, k, vip))
		}
		apply(t, tt.read(k, m))
		if got := directState(t, k, vip); got != "" {
			t.Errorf("%s: the address is %q", tt.name, got)
		}
	}
}

// IPv6 does not check whether a source address is local.
func TestDirectReturnOverIPv6(t *testing.T) {
	const vip = "2001:db8::10"
	k := newKernel()
	apply(t, begin(t, k, forwarded(vip, model.ForwardTunnel)))
	if got := directState(t, k, vip); got != "marked rules jump" {
		t.Errorf("the address is %q", got)
	}
	if got := methods(t, k, vip); got != "map[2:1]" {
		t.Errorf("destinations by method %s", got)
	}
}

// An address that another program attached again is detached by the next audit.
func TestDetachedDrift(t *testing.T) {
	const vip = "203.0.113.10"
	k := newKernel()
	m := begin(t, k, forwarded(vip, model.ForwardTunnel))
	apply(t, m)
	if errs := k.links.WriteDetached(t.Context(), []link.Change{{Op: link.Delete, Addr: netip.MustParseAddr(vip)}}); errs != nil {
		t.Fatal(errs)
	}
	if round(t, m) == 0 {
		t.Error("an audit finds nothing")
	}
	apply(t, m)
	if got := directState(t, k, vip); got != "detached=true marked rules jump" {
		t.Errorf("the address is %q", got)
	}
}

// A kube-proxy in ipvs mode knows nothing of it: the address is bound like any other, and
// destinations are masqueraded.
func TestHandOverOfDirectReturn(t *testing.T) {
	const vip = "203.0.113.10"
	k := newKernel()
	apply(t, begin(t, k, forwarded(vip, model.ForwardTunnel)))
	if err := handOver(t, k, migrate.TargetIPVS); err != nil {
		t.Fatal(err)
	}
	if got := directState(t, k, vip); got != "" {
		t.Errorf("left: %s", got)
	}
	if got := methods(t, k, vip); got != "map[0:2]" {
		t.Errorf("destinations by method %s", got)
	}
	found, err := k.links.List(t.Context())
	if _, bound := found[netip.MustParseAddr(vip)]; err != nil || !bound {
		t.Errorf("the address is not bound: %v", err)
	}
}

// masqueraded reports whether the rules masquerade clients of an external IP.
func (k *kernel) masqueraded(t *testing.T, vip string) bool {
	t.Helper()
	_, entries, err := k.sets.List(t.Context(), "KUBE-EXTERNAL-IP")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Addr == netip.MustParseAddr(vip) {
			return true
		}
	}
	return false
}
