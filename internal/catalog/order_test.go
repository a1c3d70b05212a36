package catalog_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/plan"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/build"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

var planValues = cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}, scheduler.Spec{})

// version is an object as it was at some time: one of three is set, or none of them
// where it was gone.
type version struct {
	service *model.Service
	slice   *model.Slice
	node    *model.Node
}

// told is what was said of each object last, by its kind and name.
type told map[string]version

// deliver sends it to a Sink.
func deliver(sink source.Sink, key string, v version) {
	kind, name := key[:2], key[3:]
	switch {
	case v.service != nil:
		sink.SetService(*v.service)
	case v.slice != nil:
		sink.SetSlice(*v.slice)
	case v.node != nil:
		sink.SetNode(model.FromKube, *v.node)
	case kind == "se":
		sink.DeleteService(build.ID(name))
	case kind == "sl":
		sink.DeleteSlice(sliceID(name))
	case kind == "no":
		sink.DeleteNode(model.FromKube, name)
	}
}

// follower compiles the Services that a catalog reports as changed, as the agent does.
type follower struct {
	catalog *catalog.Catalog
	host    model.Host
	plans   map[model.ServiceID]model.ServicePlan
}

func newFollower() *follower {
	return &follower{catalog: catalog.New(zap.NewNop(), "n1", model.FromKube), plans: map[model.ServiceID]model.ServicePlan{}}
}

func (f *follower) options() plan.Options {
	return plan.Options{Node: "n1", Zone: f.host.Node.Zone, IPv4: true, IPv6: true, Host: f.host}
}

func (f *follower) take() {
	b := f.catalog.Take()
	if b.NodeChanged {
		before := f.options()
		f.host.Node, f.host.Nodes, f.host.Weights = b.Node, b.Nodes, b.Weights
		now := f.options()
		f.compile(f.catalog.Matching(func(s *model.Service, behind []*model.Slice) bool { return now.Affects(before, s, behind) }))
	}
	f.compile(b.Services)
}

func (f *follower) compile(list []catalog.Input) {
	compiler := plan.New(f.options())
	for _, in := range list {
		if in.Service == nil {
			delete(f.plans, in.ID)
			continue
		}
		f.plans[in.ID] = compiler.Compile(in.ID, in.Service, in.Slices)
	}
}

// fresh is what a process that is told nothing but the last words would have.
func (t told) fresh() map[model.ServiceID]model.ServicePlan {
	f := newFollower()
	for _, key := range slices.Sorted(maps.Keys(t)) {
		deliver(f.catalog, key, t[key])
	}
	f.take()
	return f.plans
}

// event is one call of a source.
type event struct {
	key string
	version
}

// histories draws what becomes of each object: some versions, a deletion now and then, in
// the end the last word. Names, labels and addresses come from small pools.
func histories(r *rand.Rand) map[string][]version {
	out := map[string][]version{}
	draw := func(key string, one func() version) {
		for range r.IntN(4) {
			if r.IntN(4) == 0 {
				out[key] = append(out[key], version{})
			}
			out[key] = append(out[key], one())
		}
		switch r.IntN(5) {
		case 0:
			out[key] = append(out[key], version{}) // gone, if it ever was
		default:
			out[key] = append(out[key], one())
		}
	}
	for i := range 4 {
		draw(fmt.Sprint("se/s", i), func() version { return version{service: drawService(r, i)} })
	}
	for i := range 7 {
		draw(fmt.Sprint("sl/e", i), func() version { return version{slice: drawSlice(r, i)} })
	}
	for i := range 3 {
		draw(fmt.Sprint("no/n", i), func() version { return version{node: drawNode(r, i)} })
	}
	return out
}

func drawService(r *rand.Rand, i int) *model.Service {
	s := build.Service(fmt.Sprint("s", i), build.IPs(fmt.Sprintf("10.96.0.%d", i+1)), build.Port("http", uint16(80+r.IntN(2))))
	s.InternalLocal = r.IntN(3) == 0
	if r.IntN(3) == 0 {
		s.ExternalIPs = []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(r.IntN(4))})}
	}
	return s
}

func drawSlice(r *rand.Rand, i int) *model.Slice {
	s := build.Slice(fmt.Sprint("s", r.IntN(5)), fmt.Sprint("e", i), build.Target("http", 8080)) // s4 never comes
	for range r.IntN(5) {
		e := build.Ready(fmt.Sprintf("10.244.0.%d", r.IntN(8)), fmt.Sprint("n", r.IntN(3)))
		e.Ready, e.Terminating = r.IntN(3) > 0, r.IntN(4) == 0
		if r.IntN(3) == 0 {
			e = build.ForZones(e, fmt.Sprint("z", r.IntN(2)))
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	if r.IntN(8) == 0 {
		s.Service = model.ServiceID{} // the label is gone
	}
	return &s
}

func drawNode(r *rand.Rand, i int) *model.Node {
	n := &model.Node{Name: fmt.Sprint("n", i), Zone: fmt.Sprint("z", r.IntN(2)), Addresses: addresses(fmt.Sprintf("192.0.2.%d", r.IntN(4)))}
	if r.IntN(2) == 0 {
		n.Weight = new(uint16(r.IntN(3)))
	}
	return n
}

// mixed is all of it in some order that keeps that of each object, with things said
// twice, and with deletions of what never came.
func mixed(r *rand.Rand, all map[string][]version) (out []event) {
	rest := maps.Clone(all)
	maps.DeleteFunc(rest, func(_ string, list []version) bool { return len(list) == 0 })
	for len(rest) > 0 {
		keys := slices.Sorted(maps.Keys(rest))
		key := keys[r.IntN(len(keys))]
		e := event{key, rest[key][0]}
		if rest[key] = rest[key][1:]; len(rest[key]) == 0 {
			delete(rest, key)
		}
		for range 1 + r.IntN(2) {
			out = append(out, e)
		}
		if r.IntN(6) == 0 {
			out = append(out, event{key: []string{"se/never", "sl/never", "no/never"}[r.IntN(3)]})
		}
	}
	return out
}

// The result depends only on the last event of each object, for any order of events and any times
// at which batches are taken. A state in between only shows the events so far. A Node of ours that
// went is still gone by, so that ours stays.
func TestOrderOfEventsNeverShows(t *testing.T) {
	seeds := 300
	if testing.Short() {
		seeds = 100
	}
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, 7))
		all := histories(r)
		all["no/n1"] = slices.DeleteFunc(all["no/n1"], func(v version) bool { return v.node == nil })
		var first map[model.ServiceID]model.ServicePlan
		for range 4 {
			f, last := newFollower(), told{}
			for i, e := range mixed(r, all) {
				last[e.key] = e.version
				deliver(f.catalog, e.key, e.version)
				if r.IntN(4) > 0 {
					continue
				}
				f.take()
				if diff := cmp.Diff(last.fresh(), f.plans, planValues); diff != "" {
					t.Fatalf("seed %d, event %d, %+v: not what was said until then (-said +compiled):\n%s", seed, i, e, diff)
				}
			}
			f.take()
			if first == nil {
				first = f.plans
			}
			if diff := cmp.Diff(first, f.plans, planValues); diff != "" {
				t.Fatalf("seed %d: another order, another end (-one +other):\n%s", seed, diff)
			}
		}
	}
	t.Logf("seeds 0 to %d", seeds-1)
}

// backends are those of the only port of a Service.
func (f *follower) backends(name string) (out []string) {
	for _, fe := range f.plans[build.ID(name)].Frontends {
		for _, b := range fe.Backends {
			out = append(out, b.Addr.Addr().String())
		}
	}
	return out
}

// An endpoint that moves between two slices is never lost where it comes before it goes, as the
// controller of EndpointSlices has it. If it is removed first, only this endpoint is missing until
// it is added again; if no batch is taken in between, it is never missing.
func TestEndpointMovesBetweenSlices(t *testing.T) {
	of := func(name string, list ...string) event {
		s := slice(name, "web", list...)
		s.Ports = []model.SlicePort{{Name: "http", Protocol: model.TCP, Port: 8080}}
		return event{"sl/" + name, version{slice: &s}}
	}
	const a, b, c = "10.244.0.1", "10.244.0.2", "10.244.0.3"
	gone := event{key: "sl/x"}
	for _, tt := range []struct {
		name   string
		events []event
		want   [][]string // after each
	}{
		{"comes first", []event{of("y", b, c), of("x", a)}, [][]string{{a, b, c}, {a, b, c}}},
		{"goes first", []event{of("x", a), of("y", b, c)}, [][]string{{a, c}, {a, b, c}}},
		{"in both for ever", []event{of("y", b, c), of("y", b, c)}, [][]string{{a, b, c}, {a, b, c}}},
		{"the slice goes after", []event{of("y", a, b, c), gone}, [][]string{{a, b, c}, {a, b, c}}},
		{"the slice goes before", []event{gone, of("y", a, b, c)}, [][]string{{c}, {a, b, c}}},
		{"a new slice", []event{of("z", a, b), gone}, [][]string{{a, b, c}, {a, b, c}}},
		{"there and back", []event{of("y", b, c), of("x", a), of("x", a, b), of("y", c)}, [][]string{{a, b, c}, {a, b, c}, {a, b, c}, {a, b, c}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			looking, late := newFollower(), newFollower()
			web := build.Service("web", build.IPs("10.96.0.1"), build.Port("http", 80))
			for _, f := range []*follower{looking, late} {
				f.catalog.SetService(*web)
				for _, e := range []event{of("x", a, b), of("y", c)} {
					deliver(f.catalog, e.key, e.version)
				}
				f.take()
			}
			for i, e := range tt.events {
				deliver(looking.catalog, e.key, e.version)
				deliver(late.catalog, e.key, e.version)
				looking.take()
				if diff := cmp.Diff(tt.want[i], looking.backends("web")); diff != "" {
					t.Errorf("after event %d (-want +got):\n%s", i, diff)
				}
			}
			late.take()
			if diff := cmp.Diff(tt.want[len(tt.want)-1], late.backends("web")); diff != "" {
				t.Errorf("who looks once (-want +got):\n%s", diff)
			}
		})
	}
}

// Endpoints that move between slices in any number of Services at once never go missing, as long as
// each is added before it is removed.
func TestMovesNeverLoseWhatStays(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 9))
		f, stays := newFollower(), map[string][]string{}
		come, leave := map[string][]version{}, map[string][]version{}
		for i := range 3 {
			name := fmt.Sprint("s", i)
			f.catalog.SetService(*build.Service(name, build.IPs(fmt.Sprintf("10.96.0.%d", i+1)), build.Port("http", 80)))
			before, after := drawShares(r, i), drawShares(r, i)
			for k := range before {
				both := slices.Compact(slices.Sorted(slices.Values(slices.Concat(before[k], after[k]))))
				key := fmt.Sprintf("sl/%s-%d", name, k)
				deliver(f.catalog, key, share(name, k, before[k]))
				come[key], leave[key] = []version{share(name, k, both)}, []version{share(name, k, after[k])}
			}
			was, will := slices.Concat(before[:]...), slices.Concat(after[:]...)
			stays[name] = slices.DeleteFunc(was, func(a string) bool { return !slices.Contains(will, a) })
		}
		f.take()
		for _, phase := range []map[string][]version{come, leave} {
			for _, e := range mixed(r, phase) {
				deliver(f.catalog, e.key, e.version)
				f.take()
				for name, want := range stays {
					have := f.backends(name)
					if i := slices.IndexFunc(want, func(a string) bool { return !slices.Contains(have, a) }); i >= 0 {
						t.Fatalf("seed %d: %s of %s is lost at %+v", seed, want[i], name, e)
					}
				}
			}
		}
	}
}

// drawShares are the addresses of three slices of a Service; one may be in several.
func drawShares(r *rand.Rand, service int) (out [3][]string) {
	for k := range out {
		for range r.IntN(5) {
			out[k] = append(out[k], fmt.Sprintf("10.244.%d.%d", service, r.IntN(9)))
		}
	}
	return out
}

func share(service string, k int, addrs []string) version {
	s := slice(fmt.Sprintf("%s-%d", service, k), service, addrs...)
	s.Ports = []model.SlicePort{{Name: "http", Protocol: model.TCP, Port: 8080}}
	return version{slice: &s}
}
