package catalog_test

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap/zaptest"

	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

func newCatalog(t testing.TB, origins ...model.Origin) *catalog.Catalog {
	return catalog.New(zaptest.NewLogger(t), "n1", origins...)
}

func id(name string) model.ServiceID {
	return model.ServiceID{Origin: model.FromKube, Namespace: "default", Name: name}
}

func service(name string, ports ...uint16) model.Service {
	s := model.Service{ID: id(name), Type: "ClusterIP"}
	for _, p := range ports {
		s.Ports = append(s.Ports, model.ServicePort{Protocol: model.TCP, Port: p})
	}
	return s
}

func sliceID(name string) model.SliceID {
	return model.SliceID{Origin: model.FromKube, Namespace: "default", Name: name}
}

func slice(name, service string, addrs ...string) model.Slice {
	s := model.Slice{ID: sliceID(name), Family: model.IPv4}
	if service != "" {
		s.Service = id(service)
	}
	for _, a := range addrs {
		s.Endpoints = append(s.Endpoints, model.Endpoint{Addr: netip.MustParseAddr(a), Ready: true})
	}
	return s
}

// show prints a batch, a line for each service.
func show(b catalog.Batch) string {
	var out strings.Builder
	for _, in := range b.Services {
		fmt.Fprintf(&out, "%s", in.ID)
		if in.Service == nil {
			out.WriteString(" gone")
		} else {
			fmt.Fprintf(&out, " ports=%d", len(in.Service.Ports))
		}
		for _, s := range in.Slices {
			fmt.Fprintf(&out, " %s", s.ID.Name)
			for _, e := range s.Endpoints {
				fmt.Fprintf(&out, ",%s", e.Addr)
			}
		}
		out.WriteString("\n")
	}
	return out.String()
}

func TestDirtyServices(t *testing.T) {
	tests := []struct {
		name string
		// before happens, and is taken, ahead of the change.
		before, change func(c *catalog.Catalog)
		want           string
	}{
		{"new service", nil, func(c *catalog.Catalog) { c.SetService(service("a", 80)) }, "default/a ports=1\n"},
		{"slice before service",
			func(c *catalog.Catalog) { c.SetSlice(slice("a-1", "a", "10.0.0.1")) },
			func(c *catalog.Catalog) { c.SetService(service("a", 80)) },
			"default/a ports=1 a-1,10.0.0.1\n"},
		{"slice after service",
			func(c *catalog.Catalog) { c.SetService(service("a", 80)) },
			func(c *catalog.Catalog) { c.SetSlice(slice("a-1", "a", "10.0.0.1")) },
			"default/a ports=1 a-1,10.0.0.1\n"},
		{"slice of an unknown Service", nil, func(c *catalog.Catalog) { c.SetSlice(slice("a-1", "a", "10.0.0.1")) }, ""},
		{"slice without a service", nil, func(c *catalog.Catalog) { c.SetSlice(slice("a-1", "")) }, ""},
		{"slices sorted, services sorted", nil,
			func(c *catalog.Catalog) {
				c.SetSlice(slice("s2", "b"))
				c.SetSlice(slice("s1", "b"))
				c.SetService(service("b"))
				c.SetService(service("a"))
			}, "default/a ports=0\ndefault/b ports=0 s1 s2\n"},
		{"same service again",
			func(c *catalog.Catalog) { c.SetService(service("a", 80)) },
			func(c *catalog.Catalog) { c.SetService(service("a", 80)) }, ""},
		{"other service with that name",
			func(c *catalog.Catalog) { c.SetService(service("a", 80)) },
			func(c *catalog.Catalog) { c.SetService(service("a", 80, 81)) }, "default/a ports=2\n"},
		{"same slice again",
			func(c *catalog.Catalog) { c.SetService(service("a")); c.SetSlice(slice("s", "a", "10.0.0.1")) },
			func(c *catalog.Catalog) { c.SetSlice(slice("s", "a", "10.0.0.1")) }, ""},
		{"slice changed",
			func(c *catalog.Catalog) { c.SetService(service("a")); c.SetSlice(slice("s", "a", "10.0.0.1")) },
			func(c *catalog.Catalog) { c.SetSlice(slice("s", "a", "10.0.0.2")) }, "default/a ports=0 s,10.0.0.2\n"},
		{"slice moved",
			func(c *catalog.Catalog) {
				c.SetService(service("a"))
				c.SetService(service("b"))
				c.SetSlice(slice("s", "a", "10.0.0.1"))
			},
			func(c *catalog.Catalog) { c.SetSlice(slice("s", "b", "10.0.0.1")) },
			"default/a ports=0\ndefault/b ports=0 s,10.0.0.1\n"},
		{"slice lost its service",
			func(c *catalog.Catalog) { c.SetService(service("a")); c.SetSlice(slice("s", "a")) },
			func(c *catalog.Catalog) { c.SetSlice(slice("s", "")) }, "default/a ports=0\n"},
		{"slice deleted",
			func(c *catalog.Catalog) { c.SetService(service("a")); c.SetSlice(slice("s", "a")) },
			func(c *catalog.Catalog) { c.DeleteSlice(sliceID("s")) }, "default/a ports=0\n"},
		{"service deleted",
			func(c *catalog.Catalog) { c.SetService(service("a")); c.SetSlice(slice("s", "a")) },
			func(c *catalog.Catalog) { c.DeleteService(id("a")) }, "default/a gone\n"},
		{"service back with its slices",
			func(c *catalog.Catalog) {
				c.SetService(service("a"))
				c.SetSlice(slice("s", "a"))
				c.DeleteService(id("a"))
			},
			func(c *catalog.Catalog) { c.SetService(service("a")) }, "default/a ports=0 s\n"},
		{"unknown deleted", nil,
			func(c *catalog.Catalog) { c.DeleteService(id("a")); c.DeleteSlice(sliceID("s")) }, ""},
		{"many changes are one", nil,
			func(c *catalog.Catalog) {
				c.SetService(service("a", 1))
				c.SetService(service("a", 1, 2))
				c.DeleteService(id("a"))
				c.SetService(service("a", 1, 2, 3))
			}, "default/a ports=3\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newCatalog(t, model.FromKube)
			if tt.before != nil {
				tt.before(c)
				c.Take()
				drain(c)
			}
			tt.change(c)
			if woken(c) != (tt.want != "") {
				t.Errorf("woken: %t", tt.want == "")
			}
			if diff := cmp.Diff(tt.want, show(c.Take())); diff != "" {
				t.Errorf("batch (-want +got):\n%s", diff)
			}
			if left := show(c.Take()); left != "" {
				t.Errorf("second take is not empty:\n%s", left)
			}
		})
	}
}

// woken reports whether a wake is pending, and consumes it.
func woken(c *catalog.Catalog) bool {
	select {
	case <-c.Wake():
		return true
	default:
		return false
	}
}

func drain(c *catalog.Catalog) { woken(c) }

func TestOriginsDoNotMix(t *testing.T) {
	c := newCatalog(t, model.FromKube, model.FromFile)
	fromFile := service("a", 80)
	fromFile.ID.Origin = model.FromFile
	c.SetService(service("a", 1, 2))
	c.SetService(fromFile)
	c.SetSlice(slice("s", "a", "10.0.0.1"))
	want := "default/a ports=2 s,10.0.0.1\ndefault/a ports=1\n"
	if diff := cmp.Diff(want, show(c.Take())); diff != "" {
		t.Errorf("batch (-want +got):\n%s", diff)
	}
}

func TestStates(t *testing.T) {
	type states map[model.Origin]source.State
	tests := []struct {
		name             string
		states           states
		synced, complete bool
	}{
		{"no source is in sync", states{}, false, false},
		{"one of two", states{model.FromKube: source.Complete}, false, false},
		{"both partial", states{model.FromKube: source.Partial, model.FromFile: source.Partial}, true, false},
		{"one partial", states{model.FromKube: source.Complete, model.FromFile: source.Partial}, true, false},
		{"both complete", states{model.FromKube: source.Complete, model.FromFile: source.Complete}, true, true},
		{"one starting again", states{model.FromKube: source.Complete, model.FromFile: source.Starting}, false, false},
		{"a stranger counts for nothing", states{"other": source.Complete}, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newCatalog(t, model.FromKube, model.FromFile)
			for origin, state := range tt.states {
				c.SetState(origin, state)
			}
			b := c.Take()
			if b.Synced != tt.synced || b.Complete != tt.complete {
				t.Errorf("synced %t complete %t, want %t %t", b.Synced, b.Complete, tt.synced, tt.complete)
			}
		})
	}
}

func TestStateChangeWakes(t *testing.T) {
	c := newCatalog(t, model.FromKube)
	for i, step := range []struct {
		state source.State
		want  bool
	}{{source.Starting, false}, {source.Partial, true}, {source.Partial, false}, {source.Complete, true}} {
		c.SetState(model.FromKube, step.state)
		if got := woken(c); got != step.want {
			t.Errorf("step %d, %s: woken %t, want %t", i, step.state, got, step.want)
		}
	}
}

func TestNode(t *testing.T) {
	c := newCatalog(t, model.FromKube)
	c.SetService(service("a"))
	take := func() string {
		b := c.Take()
		return fmt.Sprintf("have=%t changed=%t zone=%q dirty=%d", b.Node.Name != "", b.NodeChanged, b.Node.Zone, len(b.Services))
	}
	steps := []struct {
		name string
		do   func()
		want string
	}{
		{"nothing known", func() {}, `have=false changed=false zone="" dirty=1`},
		{"another node", func() { c.SetNode(model.FromKube, model.Node{Name: "n2", Zone: "a"}) }, `have=false changed=false zone="" dirty=0`},
		{"ours, no zone", func() { c.SetNode(model.FromKube, model.Node{Name: "n1"}) }, `have=true changed=true zone="" dirty=0`},
		{"same again", func() { c.SetNode(model.FromKube, model.Node{Name: "n1"}) }, `have=true changed=false zone="" dirty=0`},
		{"a zone", func() { c.SetNode(model.FromKube, model.Node{Name: "n1", Zone: "a"}) }, `have=true changed=true zone="a" dirty=0`},
		{"a lesser origin", func() { c.SetNode(model.FromFile, model.Node{Name: "n1", Zone: "b"}) }, `have=true changed=false zone="a" dirty=0`},
		{"that of the API is deleted, the machine is not", func() { c.DeleteNode(model.FromKube, "n1") }, `have=true changed=false zone="a" dirty=0`},
		{"another node goes", func() { c.DeleteNode(model.FromFile, "n2") }, `have=true changed=false zone="a" dirty=0`},
		{"it registers again", func() { c.SetNode(model.FromKube, model.Node{Name: "n1", Zone: "c"}) }, `have=true changed=true zone="c" dirty=0`},
		{"the lesser one goes", func() { c.DeleteNode(model.FromFile, "n1") }, `have=true changed=false zone="c" dirty=0`},
	}
	for _, s := range steps {
		s.do()
		if got := take(); got != s.want {
			t.Errorf("%s: %s, want %s", s.name, got, s.want)
		}
	}
}

func TestNodeOfAManifestGoes(t *testing.T) {
	c := newCatalog(t, model.FromFile)
	c.SetNode(model.FromFile, model.Node{Name: "n1", Zone: "a"})
	c.Take()
	c.DeleteNode(model.FromFile, "n1")
	if b := c.Take(); b.Node.Name != "" || !b.NodeChanged {
		t.Errorf("batch %+v", b)
	}
}

func addresses(list ...string) (out []netip.Addr) {
	for _, a := range list {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

func TestAddressesOfAllNodes(t *testing.T) {
	c := newCatalog(t, model.FromKube)
	c.SetService(service("a"))
	set := func(name string, addrs ...string) func() {
		return func() { c.SetNode(model.FromKube, model.Node{Name: name, Addresses: addresses(addrs...)}) }
	}
	steps := []struct {
		name    string
		do      func()
		want    map[string]string
		changed bool
	}{
		{"none", func() {}, map[string]string{}, false},
		{"another node", set("n2", "192.0.2.2", "2001:db8::2"), map[string]string{"192.0.2.2": "n2", "2001:db8::2": "n2"}, true},
		{"the same again", set("n2", "192.0.2.2", "2001:db8::2"), map[string]string{"192.0.2.2": "n2", "2001:db8::2": "n2"}, false},
		{"ours counts too", set("n1", "192.0.2.1"), map[string]string{"192.0.2.1": "n1", "192.0.2.2": "n2", "2001:db8::2": "n2"}, true},
		{"two claim one", set("n0", "192.0.2.1", "192.0.2.2"), map[string]string{"192.0.2.1": "n0", "192.0.2.2": "n0", "2001:db8::2": "n2"}, true},
		{"one lets go", set("n0"), map[string]string{"192.0.2.1": "n1", "192.0.2.2": "n2", "2001:db8::2": "n2"}, true},
		{"one without addresses", set("n3"), map[string]string{"192.0.2.1": "n1", "192.0.2.2": "n2", "2001:db8::2": "n2"}, false},
		{"it is the last that has it", set("n4", "192.0.2.2"), map[string]string{"192.0.2.1": "n1", "192.0.2.2": "n2", "2001:db8::2": "n2"}, false},
		{"a node goes", func() { c.DeleteNode(model.FromKube, "n2") }, map[string]string{"192.0.2.1": "n1", "192.0.2.2": "n4"}, true},
		{"another origin tells it too", func() {
			c.SetNode(model.FromFile, model.Node{Name: "n4", Addresses: addresses("192.0.2.4")})
		}, map[string]string{"192.0.2.1": "n1", "192.0.2.2": "n4", "192.0.2.4": "n4"}, true},
	}
	c.Take()
	for _, s := range steps {
		s.do()
		b := c.Take()
		got := map[string]string{}
		for a, name := range b.Nodes {
			got[a.String()] = name
		}
		if diff := cmp.Diff(s.want, got); diff != "" || b.NodeChanged != s.changed || len(b.Services) != 0 {
			t.Errorf("%s: changed %t, want %t, %d dirty services; addresses (-want +got):\n%s", s.name, b.NodeChanged, s.changed, len(b.Services), diff)
		}
	}
}

// TestOwnNodeKeepsItsAddressesWhileItIsDeleted checks that the addresses and the weight of this machine stay known while its
// Node object is missing, so that no Service takes one of the addresses.
func TestOwnNodeKeepsItsAddressesWhileItIsDeleted(t *testing.T) {
	c := newCatalog(t, model.FromKube)
	c.SetNode(model.FromKube, model.Node{Name: "n1", Addresses: addresses("192.0.2.1"), Weight: new(uint16(3))})
	c.Take()
	c.DeleteNode(model.FromKube, "n1")
	b := c.Take()
	if diff := cmp.Diff(map[string]model.NodeWeight{"n1": {Weight: 3}}, b.Weights); diff != "" || b.Nodes[netip.MustParseAddr("192.0.2.1")] != "n1" || b.NodeChanged {
		t.Errorf("changed %t, want false; addresses %v; weights (-want +got):\n%s", b.NodeChanged, b.Nodes, diff)
	}
}

// The addresses in a batch never change after Take, regardless of later events.
func TestAddressesInABatchDoNotChange(t *testing.T) {
	c := newCatalog(t, model.FromKube)
	c.SetNode(model.FromKube, model.Node{Name: "n2", Addresses: addresses("192.0.2.2")})
	before := c.Take().Nodes
	drain(c)
	c.SetNode(model.FromKube, model.Node{Name: "n2", Addresses: addresses("192.0.2.3")})
	if !woken(c) {
		t.Error("another address did not wake the loop")
	}
	c.SetNode(model.FromKube, model.Node{Name: "n2", Zone: "a", Addresses: addresses("192.0.2.3")})
	after := c.Take().Nodes
	if len(before) != 1 || before[netip.MustParseAddr("192.0.2.2")] != "n2" || len(after) != 1 || after[netip.MustParseAddr("192.0.2.3")] != "n2" {
		t.Errorf("before %v, after %v", before, after)
	}
	drain(c)
	c.SetNode(model.FromKube, model.Node{Name: "n2", Zone: "b", Addresses: addresses("192.0.2.3")})
	if woken(c) {
		t.Error("a zone of another node woke us")
	}
}

func TestMatching(t *testing.T) {
	c := newCatalog(t, model.FromKube)
	for _, name := range []string{"c", "a", "b"} {
		c.SetService(service(name, 80))
	}
	c.SetService(service("d"))
	c.SetSlice(slice("s", "a", "10.0.0.1"))
	c.Take()
	c.SetService(service("b", 80, 81))
	got := c.Matching(func(s *model.Service, _ []*model.Slice) bool { return len(s.Ports) > 0 })
	want := "default/a ports=1 s,10.0.0.1\ndefault/b ports=2\ndefault/c ports=1\n"
	if diff := cmp.Diff(want, show(catalog.Batch{Services: got})); diff != "" {
		t.Errorf("services (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff("default/b ports=2\n", show(c.Take())); diff != "" {
		t.Errorf("asking changed what is dirty (-want +got):\n%s", diff)
	}
}

// TestConcurrentWriters: the writes of many writers in parallel with a reader add
// up to what they told last.
func TestConcurrentWriters(t *testing.T) {
	c := newCatalog(t, model.FromKube)
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for n := range 200 {
				name := fmt.Sprintf("s%d-%d", w, n%10)
				c.SetSlice(slice(name, name, fmt.Sprintf("10.0.%d.%d", w, n)))
				c.SetService(service(name, uint16(n+1)))
				c.SetNode(model.FromKube, model.Node{Name: "n1", Zone: fmt.Sprint(n % 2)})
			}
		})
	}
	done := make(chan struct{})
	go func() { writers.Wait(); close(done) }()
	last := map[model.ServiceID]uint16{}
	keep := func() {
		for _, in := range c.Take().Services {
			last[in.ID] = in.Service.Ports[0].Port
		}
	}
	for running := true; running; {
		select {
		case <-c.Wake():
		case <-done:
			running = false
		}
		keep()
	}
	if len(last) != 40 {
		t.Fatalf("%d services, want 40", len(last))
	}
	for id, port := range last {
		if port <= 190 {
			t.Errorf("%s: last seen with port %d, not one of the last ten", id, port)
		}
	}
}

// BenchmarkChange: one slice of one service changes and is taken. The time must
// not follow the number of services.
func BenchmarkChange(b *testing.B) {
	for _, n := range []int{100, 10_000, 100_000} {
		b.Run(fmt.Sprintf("services=%d", n), func(b *testing.B) {
			c := newCatalog(b, model.FromKube)
			for i := range n {
				c.SetService(service(fmt.Sprint(i), 80))
				c.SetSlice(slice(fmt.Sprint(i), fmt.Sprint(i), "10.0.0.1"))
			}
			c.Take()
			two := []model.Slice{slice("7", "7", "10.0.0.2"), slice("7", "7", "10.0.0.3")}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				c.SetSlice(two[i%2])
				if got := len(c.Take().Services); got != 1 {
					b.Fatalf("%d services in the batch, want 1", got)
				}
			}
		})
	}
}
