package plan_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

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
	w.opts.IPv6 = r.IntN(4) > 0
	w.opts.Zone = pick(r, "z1", "z2", "")
	w.svc.InternalLocal = coin(r)
	for _, ip := range []string{"10.96.0.1", "fd00:96::1", "127.0.0.1"} {
		if r.IntN(4) > 0 {
			w.svc.ClusterIPs = append(w.svc.ClusterIPs, addr(ip))
		}
	}
	for range r.IntN(4) {
		w.svc.Ports = append(w.svc.Ports, model.ServicePort{Name: pick(r, "", "a", "b"), Protocol: pick(r, model.TCP, model.UDP), Port: uint16(r.IntN(4))})
	}
	for i := range r.IntN(5) {
		w.slices = append(w.slices, randomSlice(r, fmt.Sprint("s", i)))
	}
	return w
}

func randomSlice(r *rand.Rand, name string) model.Slice {
	s := build.Slice(pick(r, "web", "web", "web", "other"), name, build.Family(pick(r, model.IPv4, model.IPv6)))
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
	if r.IntN(4) > 0 {
		e.ZoneHints = []string{pick(r, "z1", "z2")}
	}
	if r.IntN(4) > 0 {
		e.NodeHints = []string{pick(r, "here", "far")}
	}
	return e
}

// clone copies everything that a plan could change or depend on the order of.
func (w world) clone() world {
	svc := *w.svc
	svc.ClusterIPs, svc.Ports = slices.Clone(svc.ClusterIPs), slices.Clone(svc.Ports)
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

var values = cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}, scheduler.Spec{})

func TestOrderOfTheInputNeverShows(t *testing.T) {
	eachWorld(t, func(t *testing.T, r *rand.Rand, w world) {
		want := w.compile()
		for range 3 {
			if diff := cmp.Diff(want, w.shuffled(r).compile(), values); diff != "" {
				t.Errorf("another order, another plan (-want +got):\n%s", diff)
			}
		}
	})
}

func TestInputIsNeverChanged(t *testing.T) {
	eachWorld(t, func(t *testing.T, _ *rand.Rand, w world) {
		w.svc.Problems = []string{"z", "a"}
		before := w.clone()
		before.svc.Problems = []string{"z", "a"}
		w.compile()
		if diff := cmp.Diff(before.svc, w.svc, values); diff != "" {
			t.Errorf("service (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(before.slices, w.slices, values); diff != "" {
			t.Errorf("slices (-want +got):\n%s", diff)
		}
	})
}

func TestPlansAreSortedAndUnique(t *testing.T) {
	eachWorld(t, func(t *testing.T, _ *rand.Rand, w world) {
		p := w.compile()
		if (len(p.Frontends) == 0) != (p.Skipped != "") {
			t.Errorf("%d frontends with the reason %q", len(p.Frontends), p.Skipped)
		}
		ascending(t, "frontends", p.Frontends, func(a, b model.Frontend) int { return a.Key.Compare(b.Key) })
		for _, f := range p.Frontends {
			ascending(t, "backends", f.Backends, func(a, b model.Backend) int { return a.Addr.Compare(b.Addr) })
			ascending(t, "hairpins", f.Hairpin, netip.AddrPort.Compare)
		}
	})
}

func ascending[T any](t *testing.T, what string, all []T, compare func(a, b T) int) {
	t.Helper()
	for i := 1; i < len(all); i++ {
		if compare(all[i-1], all[i]) >= 0 {
			t.Errorf("%s: %v stands before %v", what, all[i-1], all[i])
		}
	}
}

// source is the endpoints that could stand behind an address of a frontend.
func (w world) sources(f model.Frontend, a netip.AddrPort) []model.Endpoint {
	var out []model.Endpoint
	for _, s := range w.slices {
		port := model.SlicePort{Name: f.PortName, Protocol: f.Key.Protocol, Port: a.Port()}
		if s.Service != w.svc.ID || s.Family != model.FamilyOf(f.Key.Addr) || !slices.Contains(s.Ports, port) {
			continue
		}
		for _, e := range s.Endpoints {
			if e.Addr == a.Addr() {
				out = append(out, e)
			}
		}
	}
	return out
}

func TestBackendsAreEndpointsThatServe(t *testing.T) {
	eachWorld(t, func(t *testing.T, _ *rand.Rand, w world) {
		for _, f := range w.compile().Frontends {
			for _, b := range f.Backends {
				if model.FamilyOf(b.Addr.Addr()) != model.FamilyOf(f.Key.Addr) || b.Weight != model.DefaultWeight {
					t.Errorf("%s: backend %v", f.Key, b)
				}
				if !slices.ContainsFunc(w.sources(f, b.Addr), w.mayServe) {
					t.Errorf("%s: %v comes from %+v", f.Key, b.Addr, w.sources(f, b.Addr))
				}
			}
		}
	})
}

// mayServe is the least that any rule asks of an endpoint.
func (w world) mayServe(e model.Endpoint) bool {
	return (e.Ready || e.Serving && e.Terminating) && (!w.svc.InternalLocal || e.Node == "here")
}

func TestHairpinsAreEndpointsOfThisNode(t *testing.T) {
	eachWorld(t, func(t *testing.T, _ *rand.Rand, w world) {
		for _, f := range w.compile().Frontends {
			for _, a := range f.Hairpin {
				if !slices.ContainsFunc(w.sources(f, a), func(e model.Endpoint) bool { return e.Node == "here" }) {
					t.Errorf("%s: %v comes from %+v", f.Key, a, w.sources(f, a))
				}
			}
		}
	})
}

// Wherever a usable endpoint exists, policy Cluster finds one: no combination
// of hints and conditions leaves a Service dark.
func TestClusterPolicyIsNeverDark(t *testing.T) {
	eachWorld(t, func(t *testing.T, _ *rand.Rand, w world) {
		w.svc.InternalLocal = false
		for i := range w.slices {
			for j := range w.slices[i].Endpoints {
				w.slices[i].Endpoints[j].Ready = true
			}
		}
		for _, f := range w.compile().Frontends {
			if len(f.Backends) == 0 && len(f.Hairpin) > 0 {
				t.Errorf("%s: no backends although %v are ready", f.Key, f.Hairpin)
			}
		}
	})
}
