package herd

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/fleet/plane"
	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source/kube"
)

// Kinds of followers.
const (
	Agent     = "kube-ipvs" // internal/source/kube into internal/catalog, which is drained
	Informers = "informers" // the shared informers of kube-proxy, with its selectors
)

// coalesce is how long the loop of the agent gathers changes.
const coalesce = 5 * time.Millisecond

// runAgent follows the API server as an agent of this project does, until ctx ends. All that it lacks is what becomes of a batch.
func runAgent(ctx context.Context, options kube.ClientOptions, node string, m *Member) error {
	client, err := kube.NewClient(options)
	if err != nil {
		return err
	}
	log := zap.NewNop()
	c := catalog.New(log, node, model.FromKube)
	m.holds = c
	src := kube.New(log, client, kube.Options{Node: node, AllNodes: true, ManyNodes: kube.DefaultManyNodes})
	m.running.Go(func() { _ = src.Run(ctx, c) }) // it ends with ctx, without an error
	m.running.Go(func() { drain(ctx, c, m) })
	return nil
}

// drain takes batches as the loop does.
func drain(ctx context.Context, c *catalog.Catalog, m *Member) {
	marker := model.ServiceID{Origin: model.FromKube, Namespace: metav1.NamespaceDefault, Name: plane.Name(plane.Marker)}
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.Wake():
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(coalesce):
		}
		b := c.Take()
		for _, in := range b.Services {
			if in.ID != marker {
				continue
			}
			for _, s := range in.Slices {
				for _, e := range s.Endpoints {
					m.saw(e.Addr)
				}
			}
		}
		if b.Complete {
			m.synced()
		}
	}
}

// labels are kube-proxy's selectors (cmd/kube-proxy/app/server.go of Kubernetes 1.36).
const (
	ourServices = "!service.kubernetes.io/service-proxy-name"
	ourSlices   = "!" + corev1.IsHeadlessService
	resync      = 15 * time.Minute // configSyncPeriod
)

// runInformers follows the API server as kube-proxy does, until ctx ends.
func runInformers(ctx context.Context, options kube.ClientOptions, node string, m *Member) error {
	config, err := clientcmd.BuildConfigFromFlags("", options.Kubeconfig)
	if err != nil {
		return err
	}
	// kube-proxy's defaults (contract section 1.1), as clients of agents have them.
	config.QPS, config.Burst, config.UserAgent = 5, 10, options.UserAgent
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := func(labels, field string) informers.SharedInformerFactory {
		return informers.NewSharedInformerFactoryWithOptions(client, resync, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.LabelSelector, o.FieldSelector = labels, field
		}))
	}
	all := []informers.SharedInformerFactory{
		factory(ourServices, fields.OneTermNotEqualSelector("spec.clusterIP", corev1.ClusterIPNone).String()),
		factory(ourSlices, ""),
		factory("", fields.OneTermEqualSelector(metav1.ObjectNameField, node).String()),
		factory("", ""),
	}
	list := []cache.SharedIndexInformer{
		all[0].Core().V1().Services().Informer(), all[1].Discovery().V1().EndpointSlices().Informer(),
		all[2].Core().V1().Nodes().Informer(), all[3].Networking().V1().ServiceCIDRs().Informer(),
	}
	m.holds = list
	if _, err := list[1].AddEventHandler(onSlice(m)); err != nil {
		return err
	}
	for _, f := range all {
		f.StartWithContext(ctx)
	}
	m.running.Go(func() {
		synced := make([]cache.InformerSynced, len(list))
		for i := range list {
			synced[i] = list[i].HasSynced
		}
		if cache.WaitForCacheSync(ctx.Done(), synced...) {
			m.synced()
		}
		<-ctx.Done()
		for _, f := range all {
			f.Shutdown()
		}
	})
	return nil
}

func onSlice(m *Member) cache.ResourceEventHandler {
	look := func(obj any) {
		s, ok := obj.(*discovery.EndpointSlice)
		if !ok || s.Labels[discovery.LabelServiceName] != plane.Name(plane.Marker) {
			return
		}
		for e := range slices.Values(s.Endpoints) {
			if addr, err := netip.ParseAddr(e.Addresses[0]); err == nil {
				m.saw(addr)
			}
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: look, UpdateFunc: func(_, obj any) { look(obj) }}
}
