package kube_test

import (
	"errors"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-ipvs/kube-ipvs/internal/source/kube"
)

// With more Nodes than a bound only our own is followed. They are counted by a list of
// one, and the server reports how many are left; an answer that does not come is
// waited for.
func TestManyNodes(t *testing.T) {
	for _, tt := range []struct {
		name  string
		rest  int64 // besides the one that is listed
		many  int
		fails int32
		want  string // the selector
	}{
		{"few", 9, 10, 0, ""},
		{"many", 10, 10, 0, "metadata.name=here"},
		{"many, after an outage", 10, 10, 1, "metadata.name=here"},
		{"no bound", 1_000_000, 0, 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client := fake.NewClientset(node("here", "192.168.0.1"))
			var failed, counted atomic.Int32
			var selector atomic.Pointer[string]
			client.PrependReactor("list", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
				o := a.(clienttesting.ListActionImpl)
				if o.GetListOptions().Limit != 1 {
					s := o.GetListRestrictions().Fields.String()
					selector.Store(&s)
					return false, nil, nil
				}
				if failed.Add(1) <= tt.fails {
					return true, nil, errors.New("etcd is on holiday")
				}
				counted.Add(1)
				return true, &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "1", RemainingItemCount: &tt.rest}, Items: []corev1.Node{*node("x", "192.168.0.9")}}, nil
			})
			_, out := run(t, kube.Of(client), kube.Options{Node: "here", AllNodes: true, ManyNodes: tt.many})
			expect(t, out, "state complete", "node here = kube z1 [10.244.0.0/24] [192.168.0.1]")
			if got := *selector.Load(); got != tt.want {
				t.Errorf("asks for %q, want %q", got, tt.want)
			}
			if want := min(tt.many, 1); int(counted.Load()) != want {
				t.Errorf("counted %d times, want %d", counted.Load(), want)
			}
		})
	}
}
