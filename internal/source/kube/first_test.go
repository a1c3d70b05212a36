package kube_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	clienttesting "k8s.io/client-go/testing"
)

// nodesAnswer is a client whose lists of Nodes do something else first.
type nodesAnswer struct {
	kubernetes.Interface
	first func(ctx context.Context) error
}

// IsWatchListSemanticsUnSupported repeats what the fake below says of itself.
func (c *nodesAnswer) IsWatchListSemanticsUnSupported() bool { return true }

func (c *nodesAnswer) CoreV1() corev1.CoreV1Interface {
	return nodesAnswerCore{c.Interface.CoreV1(), c.first}
}

type nodesAnswerCore struct {
	corev1.CoreV1Interface
	first func(ctx context.Context) error
}

func (c nodesAnswerCore) Nodes() corev1.NodeInterface {
	return nodesAnswerNodes{c.CoreV1Interface.Nodes(), c.first}
}

type nodesAnswerNodes struct {
	corev1.NodeInterface
	first func(ctx context.Context) error
}

func (c nodesAnswerNodes) List(ctx context.Context, o metav1.ListOptions) (*v1.NodeList, error) {
	if err := c.first(ctx); err != nil {
		return nil, err
	}
	return c.NodeInterface.List(ctx, o)
}

// after waits before an answer.
func after(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// firstLists is when the large kinds were first listed in all namespaces.
type firstLists struct {
	mu sync.Mutex
	at map[string]time.Duration // since the start
}

func noteLists(client *fake.Clientset) *firstLists {
	begin, f := time.Now(), &firstLists{at: map[string]time.Duration{}}
	client.PrependReactor("list", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		kind := a.GetResource().Resource
		if _, before := f.at[kind]; !before && kind != "nodes" && a.GetNamespace() == metav1.NamespaceAll {
			f.at[kind] = time.Since(begin)
		}
		return false, nil, nil
	})
	return f
}

// want fails the test unless both kinds were listed at that time.
func (f *firstLists) want(t *testing.T, at time.Duration) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, kind := range []string{"services", "endpointslices"} {
		if got, listed := f.at[kind]; !listed || got != at {
			t.Errorf("%s: listed %t, after %s, want after %s", kind, listed, got, at)
		}
	}
}

// Nodes are listed first, and the large lists begin at the moment they are known. A list
// of Nodes that is slow, or fails again and again, holds up the others for a second and
// no longer.
func TestNodesFirst(t *testing.T) {
	for name, tt := range map[string]struct {
		nodes func(context.Context) error
		want  time.Duration
	}{
		"quick": {after(300 * time.Millisecond), 300 * time.Millisecond},
		"slow":  {after(time.Minute), time.Second},
		"fails": {func(context.Context) error { return errors.New("etcd is on holiday") }, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				objects := fake.NewClientset(web("10.96.0.10"), node("here", "192.168.0.1"))
				lists := noteLists(objects)
				_, out := bubble(t, &nodesAnswer{objects, tt.nodes}, zap.NewNop())
				time.Sleep(tt.want + time.Millisecond)
				synctest.Wait()
				lists.want(t, tt.want)
				if have := out.String(); !strings.Contains(have, "service shop/web") {
					t.Errorf("have %s", have)
				}
			})
		})
	}
}
