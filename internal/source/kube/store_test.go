package kube

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// names is a Sink that keeps the names of Services.
type names struct {
	source.Sink
	have  map[string]bool
	state source.State
}

func (n *names) SetService(s model.Service)                  { n.have[s.ID.Name] = true }
func (n *names) DeleteService(id model.ServiceID)            { delete(n.have, id.Name) }
func (n *names) SetState(_ model.Origin, state source.State) { n.state = state }

func serviceStore(t *testing.T) (*store, *names, func(name string) *converted) {
	t.Helper()
	s := New(zap.NewNop(), Of(fake.NewClientset()), Options{Node: "here"})
	k := s.services(metav1.NamespaceAll)
	s.begin([]kind{k})
	out := &names{have: map[string]bool{}}
	return newStore(&k, s, out), out, func(name string) *converted {
		c, err := k.convert(svc(name))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
}

func svc(name string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: strings.Clone("ns"), Name: name, ResourceVersion: "7"}}
}

// A new list deletes what it lacks, and nothing else does.
func TestReplace(t *testing.T) {
	s, out, svc := serviceStore(t)
	mustBe := func(step string, err error, want ...string) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		if len(out.have) != len(want) || len(s.names) != len(want) {
			t.Errorf("%s: %v, want %v", step, out.have, want)
		}
		for _, w := range want {
			if !out.have[w] {
				t.Errorf("%s: %s is not there", step, w)
			}
		}
	}
	mustBe("first list", s.Replace([]any{svc("a"), svc("b")}, "1"), "a", "b")
	if out.state != source.Complete {
		t.Errorf("state %s", out.state)
	}
	mustBe("addition", s.Add(svc("c")), "a", "b", "c")
	mustBe("resync", s.Resync(), "a", "b", "c")
	mustBe("list without one", s.Replace([]any{svc("b"), svc("c")}, "3"), "b", "c")
	mustBe("deletion", s.Delete(svc("b")), "c")
	mustBe("deletion of what is not there", s.Delete(svc("x")), "c")
	// By the law, a complete list is the truth, and an empty one is complete.
	mustBe("empty list", s.Replace(nil, "4"))
}

// Objects that arrive before the first list is complete are delivered, and taken back if the
// complete list lacks them. Later lists are delivered as a whole.
func TestArrive(t *testing.T) {
	s, out, svc := serviceStore(t)
	s.arrive(svc("a"))
	s.arrive(svc("b"))
	if len(out.have) != 2 || out.state != source.Starting {
		t.Errorf("before the list: %v, state %s", out.have, out.state)
	}
	if err := s.Replace([]any{svc("b"), svc("c")}, "1"); err != nil {
		t.Fatal(err)
	}
	s.arrive(svc("d"))
	if len(out.have) != 2 || !out.have["b"] || !out.have["c"] || out.state != source.Complete {
		t.Errorf("with the list: %v, state %s", out.have, out.state)
	}
}

// Nodes are what everything else waits for, and what was told is never taken back.
func TestTell(t *testing.T) {
	for _, tt := range []struct {
		kinds []string
		want  []source.State
	}{
		{[]string{"nodes", "services", "endpointslices"}, []source.State{source.Listing, source.Listing, source.Complete}},
		{[]string{"services", "nodes", "endpointslices"}, []source.State{source.Starting, source.Listing, source.Complete}},
		{[]string{"services", "endpointslices", "nodes"}, []source.State{source.Starting, source.Starting, source.Complete}},
	} {
		s, out := New(zap.NewNop(), Of(fake.NewClientset()), Options{Node: "here"}), &names{}
		s.begin(s.watched())
		for i, kind := range tt.kinds {
			s.synced(kind)
			s.report(out)
			if out.state != tt.want[i] {
				t.Errorf("%v: state %s after %s, want %s", tt.kinds, out.state, kind, tt.want[i])
			}
		}
	}
}

func TestStrangeObjects(t *testing.T) {
	s, out, svc := serviceStore(t)
	if err := s.Replace([]any{svc("a")}, "1"); err != nil {
		t.Fatal(err)
	}
	for name, obj := range map[string]any{"no object": 7, "not converted": &corev1.Service{}, "a bookmark": &converted{}} {
		if s.Add(obj) == nil || s.Update(obj) == nil || s.Delete(obj) == nil || s.Replace([]any{svc("b"), obj}, "2") == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if len(out.have) != 1 || !out.have["a"] {
		t.Errorf("have %v, want a alone", out.have)
	}
}

// A list is read whole or not at all, and taken apart on the way.
func TestConvertList(t *testing.T) {
	s := New(zap.NewNop(), Of(fake.NewClientset()), Options{Node: "here"})
	k := s.services(metav1.NamespaceAll)
	in := &corev1.ServiceList{ListMeta: metav1.ListMeta{ResourceVersion: "9", Continue: "more"}, Items: []corev1.Service{*svc("a"), *svc("b")}}
	got, err := k.convertList(in)
	if err != nil || got.ResourceVersion != "9" || got.Continue != "more" || len(got.Items) != 2 {
		t.Fatalf("list %+v, %v", got, err)
	}
	if c := got.Items[1].(*converted); c.name() != (cache.ObjectName{Namespace: "ns", Name: "b"}) || c.meta.ResourceVersion != "7" {
		t.Errorf("item %+v", c)
	}
	if in.Items[0].Name != "" {
		t.Error("the list keeps its objects")
	}
	for name, strange := range map[string]runtime.Object{
		"another list": &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "9"}}, "no list": &corev1.Node{}, "no version": &corev1.ServiceList{},
	} {
		if _, err := k.convertList(strange); !errors.Is(err, errUnexpectedObject) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, strange := range map[string]runtime.Object{"another kind": &corev1.Node{}, "no object": &corev1.NodeList{}} {
		if _, err := k.convert(strange); !errors.Is(err, errUnexpectedObject) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An annotation about a Service is read before the object goes.
func TestAnnotationOfAServiceArrives(t *testing.T) {
	k := New(zap.NewNop(), Of(fake.NewClientset()), Options{}).services(metav1.NamespaceAll)
	c, err := k.convert(&corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "web", Annotations: map[string]string{"kube-ipvs.io/drain": "5m"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if p := c.value.(model.Service).Policy; p == nil || p.Drain == nil || *p.Drain != 5*time.Minute {
		t.Errorf("policy %+v, want a drain of 5m", p)
	}
}

// Of other Nodes only the addresses are kept; our own is kept whole.
func TestOwnNode(t *testing.T) {
	s := New(zap.NewNop(), Of(fake.NewClientset()), Options{Node: "here"})
	for _, name := range []string{"here", "far"} {
		in := model.Node{Name: name, Zone: "z", Leaving: true, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
		want := in
		if name == "far" {
			want.Zone, want.Leaving = "", false
		}
		if got := s.node(in); !got.Equal(want) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

// Strings that many objects share are kept once.
func TestOneCopyOfAString(t *testing.T) {
	a, b := service(model.Service{ID: model.ServiceID{Namespace: strings.Clone("shop")}}), service(model.Service{ID: model.ServiceID{Namespace: strings.Clone("shop")}})
	if unsafe.StringData(a.ID.Namespace) != unsafe.StringData(b.ID.Namespace) {
		t.Error("two copies of one namespace")
	}
	x := slice(model.Slice{Endpoints: []model.Endpoint{{Node: strings.Clone("n1"), Hints: &model.Hints{Zones: []string{strings.Clone("z")}}}, {Node: strings.Clone("n1"), Hints: &model.Hints{Zones: []string{strings.Clone("z")}}}}})
	if unsafe.StringData(x.Endpoints[0].Node) != unsafe.StringData(x.Endpoints[1].Node) || x.Endpoints[0].Hints != x.Endpoints[1].Hints {
		t.Error("two copies of one node's name or hints")
	}
}
