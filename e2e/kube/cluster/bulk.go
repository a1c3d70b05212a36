package cluster

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
)

// creators is how many requests Create has under way: more wait for the same two etcd writes a millisecond.
const creators = 16

// Create creates the Services and EndpointSlices of a List, in YAML or JSON, as fast as the server
// accepts them. kubectl takes ten times as long for a thousand, and longer in a guest. The order is
// not kept; the first error ends it.
func (c *Cluster) Create(ctx context.Context, list string) error {
	client, err := c.clientset(ctx)
	if err != nil {
		return err
	}
	decoded, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), []byte(list))
	if err != nil {
		return fmt.Errorf("read the list of what to create: %w", err)
	}
	items, ok := decoded.(*corev1.List)
	if !ok {
		return fmt.Errorf("read the list of what to create: it is a %T", decoded)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(creators)
	for _, item := range items.Items {
		group.Go(func() error { return create(ctx, client, item.Raw) })
	}
	return group.Wait()
}

func (c *Cluster) clientset(ctx context.Context) (*kubernetes.Clientset, error) {
	text, err := c.Kubeconfig(ctx, Admin)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		return nil, fmt.Errorf("read a kubeconfig: %w", err)
	}
	config.QPS, config.ContentType = -1, runtime.ContentTypeProtobuf
	return kubernetes.NewForConfig(config)
}

func create(ctx context.Context, client kubernetes.Interface, raw []byte) error {
	object, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), raw)
	if err != nil {
		return fmt.Errorf("read an object to create: %w", err)
	}
	switch o := object.(type) {
	case *corev1.Service:
		_, err = client.CoreV1().Services(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
	case *discovery.EndpointSlice:
		_, err = client.DiscoveryV1().EndpointSlices(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
	default:
		err = fmt.Errorf("create a %T: only Services and EndpointSlices are made in bulk", object)
	}
	return err
}
