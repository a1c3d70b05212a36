package plan_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/plan"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/build"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

// world is one random input. Names, addresses and ports come from small pools,
// so that duplicates, ties and mismatches are frequent.
type world struct {
	opts   plan.Options
	svc    *model.Service
	slices []model.Slice
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func coin(r *rand.Rand) bool { return r.IntN(2) == 0 }

func randomWorld(r *rand.Rand) world {
	w := world{opts: here, svc: build.Service("web")}
	if r.IntN(4) == 0 {
		w.svc = build.Service("kubernetes")
	}
	w.opts.IPv6 = r.IntN(4) > 0
	w.opts.Zone = pick(r, "z1", "z2", "")
	w.opts.Host = randomHost(r)
	w.svc.Policy = randomPolicy(r)
	w.svc.InternalLocal, w.svc.ExternalLocal = coin(r), coin(r)
	w.svc.ClusterIPs = some(r, "10.96.0.1", "fd00:96::1", "10.96.0.2", "127.0.0.1")
	w.svc.SourceRanges = pick(r, nil, nets("192.0.2.0/24"), nets("203.0.113.0/24", "2001:db8::/64"), nets("0.0.0.0/0", "fd00::/8"))
	w.svc.HealthCheckNodePort = pick[uint16](r, 0, 32000)
	randomExternals(r, &w)
	for range r.IntN(4) {
		w.svc.Ports = append(w.svc.Ports, model.ServicePort{Name: pick(r, "", "a", "b"), Protocol: pick(r, model.TCP, model.UDP),
			Port: pick[uint16](r, 0, 1, 2, 3, 30001, 65535), NodePort: pick[uint16](r, 0, 0, 30001, 30002, 65534)})
	}
	for i := range r.IntN(5) {
		w.slices = append(w.slices, randomSlice(r, w.svc.ID.Name, fmt.Sprint("s", i)))
	}
	return w
}

// some draws each of the addresses with a good chance.
func some(r *rand.Rand, from ...string) []netip.Addr {
	var out []netip.Addr
	for _, a := range from {
		if r.IntN(3) > 0 {
			out = append(out, addr(a))
		}
	}
	return out
}

// outsiders are the addresses of the world outside the cluster. Node ports, node
// addresses and the Service's external addresses are all drawn from them.
var outsiders = []string{"192.0.2.10", "203.0.113.1", "203.0.113.2", "2001:db8::10", "2001:db8:1::1", "10.96.0.1"}

func randomHost(r *rand.Rand) model.Host {
	h := model.Host{Links: map[netip.Addr]string{}, Nodes: map[netip.Addr]string{}}
	if coin(r) {
		for _, a := range some(r, outsiders...) {
			h.Links[a] = "eth0"
		}
	}
	if coin(r) {
		h.Node.Addresses = some(r, outsiders...)
		h.Nodes[addr(pick(r, outsiders...))] = "far"
	}
	h.NodePorts = some(r, outsiders...)
	if coin(r) {
		h.Weights = map[string]model.NodeWeight{pick(r, "here", "far"): pick(r, model.NodeWeight{Weight: 7}, model.NodeWeight{}, model.NodeWeight{Bad: "heavy"})}
	}
	for range r.IntN(3) {
		if h.Failing == nil {
			h.Failing = map[netip.AddrPort]string{}
		}
		h.Failing[netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(r.IntN(10))}), uint16(8000+r.IntN(2)))] = "silence"
	}
	if coin(r) {
		h.NoGUE = "not here"
		h.Refused = map[scheduler.Spec]string{scheduler.MustParse(pick(r, "sh", "wlc")): "not there"}
	}
	return h
}

// randomPolicy is what annotations ask for; mostly nothing.
func randomPolicy(r *rand.Rand) *model.Policy {
	if coin(r) {
		return nil
	}
	return &model.Policy{
		Scheduler: pick(r, scheduler.Spec{}, scheduler.MustParse("sh"), scheduler.MustParse("wlc")), OnePacket: coin(r),
		Weight: pick(r, nil, new(uint16(5))), SlowStart: pick(r, 0, time.Minute),
		Forward: pick(r, model.ForwardNAT, model.ForwardDirect, model.ForwardTunnel), GUE: pick[uint16](r, 0, 5555),
	}
}

func pointers(list []model.Slice) (out []*model.Slice) {
	for i := range list {
		out = append(out, &list[i])
	}
	return out
}

func randomExternals(r *rand.Rand, w *world) {
	w.opts.ExternalIPs.Off = r.IntN(8) == 0
	w.opts.ExternalIPs.Allowed = pick(r, nil, nil, nets("203.0.113.0/24"))
	w.svc.ExternalIPs = some(r, append([]string{"127.0.0.1", "203.0.113.1"}, outsiders...)...)
	for _, a := range some(r, append([]string{"fe80::1", "203.0.113.2"}, outsiders...)...) {
		w.svc.Ingress = append(w.svc.Ingress, model.Ingress{Addr: a, Proxy: r.IntN(4) == 0})
	}
}

// randomSlice is a slice of a Service in namespace default, or of another one.
func randomSlice(r *rand.Rand, of, name string) model.Slice {
	s := build.Slice(pick(r, of, of, of, "other"), name, build.Family(pick(r, model.IPv4, model.IPv6)))
	s.Weight = pick(r, nil, nil, new(uint16(3)))
	for _, port := range []string{"", "a", "b"} {
		if coin(r) {
			s.Ports = append(s.Ports, model.SlicePort{Name: port, Protocol: pick(r, model.TCP, model.UDP), Port: uint16(8000 + r.IntN(2))})
		}
	}
	for range r.IntN(8) {
		s.Endpoints = append(s.Endpoints, randomEndpoint(r, s.Family))
	}
	return s
}

func randomEndpoint(r *rand.Rand, f model.Family) model.Endpoint {
	ip := netip.AddrFrom4([4]byte{10, 0, 0, byte(r.IntN(10))})
	if f == model.IPv6 {
		ip = netip.MustParseAddr(fmt.Sprintf("fd00::%d", 1+r.IntN(9)))
	}
	if r.IntN(20) == 0 {
		ip = pick(r, addr("::1"), addr("10.0.0.1"), addr("fd00::1"))
	}
	e := model.Endpoint{Addr: ip, Node: pick(r, "here", "far", ""), Ready: coin(r), Serving: coin(r), Terminating: coin(r)}
	e.Hints = &model.Hints{}
	if r.IntN(4) > 0 {
		e.Hints.Zones = []string{pick(r, "z1", "z2")}
	}
	if r.IntN(4) > 0 {
		e.Hints.Nodes = []string{pick(r, "here", "far")}
	}
	return e
}

// clone copies everything that a plan could change or depend on the order of.
func (w world) clone() world {
	svc := *w.svc
	svc.ClusterIPs, svc.Ports = slices.Clone(svc.ClusterIPs), slices.Clone(svc.Ports)
	svc.ExternalIPs, svc.Ingress = slices.Clone(svc.ExternalIPs), slices.Clone(svc.Ingress)
	svc.SourceRanges = slices.Clone(svc.SourceRanges)
	w.svc, w.slices = &svc, slices.Clone(w.slices)
	for i := range w.slices {
		w.slices[i].Ports = slices.Clone(w.slices[i].Ports)
		w.slices[i].Endpoints = slices.Clone(w.slices[i].Endpoints)
	}
	return w
}

// shuffled is the same world told in another order.
func (w world) shuffled(r *rand.Rand) world {
	w = w.clone()
	shuffle(r, w.svc.ClusterIPs)
	shuffle(r, w.svc.Ports)
	shuffle(r, w.svc.ExternalIPs)
	shuffle(r, w.svc.Ingress)
	shuffle(r, w.slices)
	for _, s := range w.slices {
		shuffle(r, s.Ports)
		shuffle(r, s.Endpoints)
	}
	return w
}

func shuffle[T any](r *rand.Rand, s []T) {
	r.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
}

func (w world) compile() model.ServicePlan {
	return plan.New(w.opts).Compile(w.svc.ID, w.svc, w.slices)
}

// eachWorld runs the body on many worlds; the name of a failure is its seed.
func eachWorld(t *testing.T, body func(t *testing.T, r *rand.Rand, w world)) {
	t.Helper()
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		body(t, r, randomWorld(r))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
