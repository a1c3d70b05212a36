package kube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"syscall"
	"testing"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"
)

// After a streamed list that was refused the agent asks for a plain list. After a failed connection it
// does not, and client-go gets an error for which it does not wait by itself.
func TestPlainListAfterARefusedStream(t *testing.T) {
	dial := func(err error) error {
		return &url.Error{Op: "Get", URL: "https://api", Err: &net.OpError{Op: "dial", Err: err}}
	}
	group := schema.GroupResource{Resource: "services"}
	for name, tt := range map[string]struct {
		err   error
		tries int // until the plain list
	}{
		"no streams":         {apierrors.NewInvalid(schema.GroupKind{}, "", nil), 1},
		"watch forbidden":    {apierrors.NewForbidden(group, "", errors.New("no")), 1},
		"internal error":     {apierrors.NewInternalError(errors.New("etcd")), 1},
		"connection reset":   {&url.Error{Op: "Get", URL: "https://api", Err: syscall.ECONNRESET}, streamTries},
		"connection refused": {dial(syscall.ECONNREFUSED), 0},
		"no such name":       {dial(&net.DNSError{Name: "api"}), 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(zap.NewNop(), Of(fake.NewClientset()), Options{Node: "here"})
			k, listed := s.services(metav1.NamespaceAll), 0
			k.watch = func(context.Context, metav1.ListOptions) (watch.Interface, error) { return nil, tt.err }
			k.list = func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				listed++
				return &corev1.ServiceList{ListMeta: metav1.ListMeta{ResourceVersion: "9"}}, nil
			}
			s.begin([]kind{k})
			c := &listWatcher{kind: &k, source: s}
			for try := 1; try <= 2*streamTries; try++ {
				_, err := c.WatchWithContext(t.Context(), metav1.ListOptions{SendInitialEvents: ptr.To(true)})
				if err == nil || errors.Is(err, syscall.ECONNREFUSED) {
					t.Fatalf("error %v", err)
				}
				before := listed
				_, err = c.ListWithContext(t.Context(), metav1.ListOptions{})
				want := tt.tries > 0 && try%tt.tries == 0
				if (listed > before) != want || (err == nil) != want {
					t.Errorf("try %d: listed %t, error %v, want a list %t", try, listed > before, err, want)
				}
			}
			if p := s.Progress()["services"]; tt.tries != 1 && !errors.Is(p.Err, tt.err) {
				t.Errorf("progress %v", fmt.Sprint(p))
			}
		})
	}
}
