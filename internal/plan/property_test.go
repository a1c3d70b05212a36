package plan_test

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/plan"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

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
				if model.FamilyOf(b.Addr.Addr()) != model.FamilyOf(f.Key.Addr) || !slices.Contains([]uint16{0, model.DefaultWeight, 3, 5, 7}, b.Weight) {
					t.Errorf("%s: backend %v", f.Key, b)
				}
				if !slices.ContainsFunc(w.sources(f, b.Addr), func(e model.Endpoint) bool { return mayServe(f, e) }) {
					t.Errorf("%s: %v comes from %+v", f.Key, b.Addr, w.sources(f, b.Addr))
				}
			}
		}
	})
}

// mayServe is the least that any rule asks of an endpoint. Under Local that is
// to run on this node.
func mayServe(f model.Frontend, e model.Endpoint) bool {
	return (e.Ready || e.Serving && e.Terminating) && (!f.Local || e.Node == "here")
}

func TestHairpinsAreEndpointsOfThisNode(t *testing.T) {
	eachWorld(t, func(t *testing.T, _ *rand.Rand, w world) {
		for _, f := range w.compile().Frontends {
			if len(f.Hairpin) > 0 && f.Kind != model.KindClusterIP {
				t.Errorf("%s %s has hairpins", f.Kind, f.Key)
			}
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
		w.svc.InternalLocal, w.svc.ExternalLocal = false, false
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

// Silence is for those who would be answered on another node.
func TestSilenceMeansSomewhereElse(t *testing.T) {
	eachWorld(t, func(t *testing.T, _ *rand.Rand, w world) {
		everybody := w.clone()
		everybody.svc.InternalLocal, everybody.svc.ExternalLocal = false, false
		cluster := byKey(everybody.compile())
		for _, f := range w.compile().Frontends {
			want := f.Local && len(f.Backends) == 0 && len(cluster[f.Key].Backends) > 0
			if f.NoLocal != want {
				t.Errorf("%s %s: silent %t, want %t; of the cluster there are %v", f.Kind, f.Key, f.NoLocal, want, cluster[f.Key].Backends)
			}
		}
	})
}

func byKey(p model.ServicePlan) map[model.FrontendKey]model.Frontend {
	out := map[model.FrontendKey]model.Frontend{}
	for _, f := range p.Frontends {
		out[f.Key] = f
	}
	return out
}

// A detour leads to a frontend of the same port that has what the cluster has.
func TestDetoursLeadToTheWholeCluster(t *testing.T) {
	eachWorld(t, func(t *testing.T, _ *rand.Rand, w world) {
		everybody := w.clone()
		everybody.svc.InternalLocal, everybody.svc.ExternalLocal = false, false
		cluster, all := byKey(everybody.compile()), byKey(w.compile())
		for _, f := range all {
			if f.Detour.IsValid() != (f.Kind.External() && (f.Local || f.Forward != model.ForwardNAT)) {
				t.Errorf("%s %s: detour %v", f.Kind, f.Key, f.Detour)
			}
			if !f.Detour.IsValid() {
				continue
			}
			key := model.FrontendKey{Addr: f.Detour.Addr(), Port: f.Detour.Port(), Protocol: f.Key.Protocol}
			to, ok := all[key]
			if !ok || to.Kind.External() || to.PortName != f.PortName || model.FamilyOf(key.Addr) != model.FamilyOf(f.Key.Addr) {
				t.Errorf("%s %s leads to %+v", f.Kind, f.Key, to)
			}
			if diff := cmp.Diff(cluster[f.Key].Backends, to.Backends, values); diff != "" {
				t.Errorf("%s %s leads to other backends (-want +got):\n%s", f.Kind, f.Key, diff)
			}
		}
	})
}

// An address of a machine is not bound, and a note names it. A cluster IP is kept off by this
// machine's own use of it alone.
func TestNothingOfANodeIsBound(t *testing.T) {
	eachWorld(t, func(t *testing.T, _ *rand.Rand, w world) {
		p := w.compile()
		ascending(t, "unbound", p.Unbound, netip.Addr.Compare)
		for _, f := range p.Frontends {
			held := w.opts.Host.Holder(f.Key.Addr) != ""
			if _, onLink := w.opts.Host.Links[f.Key.Addr]; f.Kind == model.KindClusterIP || f.Kind == model.KindDetour {
				held = onLink || slices.Contains(w.opts.Host.Gateways, f.Key.Addr)
			}
			if want := !held && f.Kind != model.KindNodePort; f.Bind != want {
				t.Errorf("%s %s: bound %t, want %t", f.Kind, f.Key, f.Bind, want)
			}
			if held && f.Kind != model.KindNodePort && !slices.Contains(p.Unbound, f.Key.Addr) {
				t.Errorf("%s %s is held, but not named in %v", f.Kind, f.Key, p.Unbound)
			}
		}
	})
}

// changed is other Options, in one or two things.
func changed(r *rand.Rand, o plan.Options) plan.Options {
	for range 1 + r.IntN(2) {
		other := randomWorld(r).opts
		switch r.IntN(8) {
		case 0:
			o.Host.Links = other.Host.Links
		case 1:
			o.Host.Nodes = other.Host.Nodes
		case 2:
			o.Host.Node = other.Host.Node
		case 3:
			o.Host.NodePorts = other.Host.NodePorts
		case 4:
			o.ExternalIPs = other.ExternalIPs
		case 5:
			o.Zone, o.IPv6 = other.Zone, other.IPv6
		case 6:
			o.Host.Weights = other.Host.Weights
		case 7:
			o.Host.Refused, o.Host.NoGUE = other.Host.Refused, other.Host.NoGUE
		}
	}
	return o
}

func TestWhatDoesNotConcernDoesNotChange(t *testing.T) {
	said := map[bool]int{}
	eachWorld(t, func(t *testing.T, r *rand.Rand, w world) {
		want, next := w.compile(), w
		next.opts = changed(r, w.opts)
		concerns := next.opts.Affects(w.opts, w.svc, pointers(w.slices))
		said[concerns]++
		if concerns {
			return
		}
		if diff := cmp.Diff(want, next.compile(), values); diff != "" {
			t.Errorf("the plan is another (-want +got):\n%s", diff)
		}
	})
	if said[true] < 100 || said[false] < 100 {
		t.Errorf("%d yes and %d no: the worlds tell nothing", said[true], said[false])
	}
}
