package kube

import (
	"strings"
	"testing"
	"unsafe"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

func newStore() (*store, *names) {
	s := New(zap.NewNop(), fake.NewClientset(), Options{Node: "here"})
	k := s.services()
	s.begin([]kind{k})
	out := &names{have: map[string]bool{}}
	return &store{kind: k, source: s, sink: out, names: map[cache.ObjectName]struct{}{}}, out
}

func svc(name string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: strings.Clone("ns"), Name: name}}
}

// A new list deletes what it lacks, and nothing else does: no error, no bookmark.
func TestReplace(t *testing.T) {
	s, out := newStore()
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
	mustBe("bookmark", s.Bookmark("2"), "a", "b", "c")
	mustBe("resync", s.Resync(), "a", "b", "c")
	streamed, err := s.Transformer()(svc("c"))
	mustBe("stripped object", err, "a", "b", "c")
	mustBe("streamed list", s.Replace([]any{svc("b"), streamed}, "3"), "b", "c")
	mustBe("deletion that was missed", s.Delete(cache.DeletedFinalStateUnknown{Key: "ns/b"}), "c")
	mustBe("deletion of what is not there", s.Delete(svc("x")), "c")
}

func TestStrangeObjects(t *testing.T) {
	s, out := newStore()
	for name, obj := range map[string]any{"no object": 7, "another kind": &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}} {
		if err := s.Add(obj); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if err := s.Replace([]any{svc("a"), &corev1.Pod{}}, "1"); err == nil || out.state == source.Complete || len(out.have) > 0 {
		t.Errorf("a list with a stranger in it: %v, state %s, %v", err, out.state, out.have)
	}
}

// What many objects have is kept once.
func TestOneCopyOfAString(t *testing.T) {
	a, b := service(model.Service{ID: model.ServiceID{Namespace: strings.Clone("shop")}}), service(model.Service{ID: model.ServiceID{Namespace: strings.Clone("shop")}})
	if unsafe.StringData(a.ID.Namespace) != unsafe.StringData(b.ID.Namespace) {
		t.Error("two copies of one namespace")
	}
	x := slice(model.Slice{Endpoints: []model.Endpoint{{Node: strings.Clone("n1"), ZoneHints: []string{strings.Clone("z")}}, {Node: strings.Clone("n1"), ZoneHints: []string{strings.Clone("z")}}}})
	if unsafe.StringData(x.Endpoints[0].Node) != unsafe.StringData(x.Endpoints[1].Node) || unsafe.StringData(x.Endpoints[0].ZoneHints[0]) != unsafe.StringData(x.Endpoints[1].ZoneHints[0]) {
		t.Error("two copies of one node's name or zone")
	}
}
