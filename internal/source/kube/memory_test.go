package kube_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
	"github.com/kube-ipvs/kube-ipvs/internal/source/kube"
)

// managed is what the fields of an object and their owners take: about 40 % of a
// Service in a real cluster.
func managed(manager string, bytes int) []metav1.ManagedFieldsEntry {
	raw := make([]byte, bytes)
	for i := range raw {
		raw[i] = 'f'
	}
	return []metav1.ManagedFieldsEntry{{Manager: manager, Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(string(raw))}}
}

func meta(kind string, i int) metav1.ObjectMeta {
	name := fmt.Sprintf("checkout-backend-%05d", i)
	labels := map[string]string{"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "shop", "team": "payments"}
	if kind == "slice" {
		labels[discoveryv1.LabelServiceName] = name
		labels[discoveryv1.LabelManagedBy] = "endpointslice-controller.k8s.io"
		name += "-x7k2p"
	}
	return metav1.ObjectMeta{
		Namespace: fmt.Sprintf("shop-%d", i%50), Name: name, UID: "0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f", ResourceVersion: strconv.Itoa(1000 + i),
		CreationTimestamp: metav1.Unix(1700000000, 0), Labels: labels,
		Annotations:   map[string]string{"meta.helm.sh/release-name": name, "meta.helm.sh/release-namespace": "shop"},
		ManagedFields: managed("helm", 400),
	}
}

func bigService(i int) *corev1.Service {
	ip := fmt.Sprintf("10.%d.%d.%d", 96+i>>16, i>>8&255, i&255)
	return &corev1.Service{ObjectMeta: meta("service", i), Spec: corev1.ServiceSpec{
		Type: "ClusterIP", ClusterIP: ip, ClusterIPs: []string{ip}, IPFamilies: []corev1.IPFamily{"IPv4"}, Selector: map[string]string{"app": "x"},
		Ports: []corev1.ServicePort{{Name: "http", Protocol: "TCP", Port: 80}, {Name: "metrics", Protocol: "TCP", Port: 9090}},
	}}
}

func bigSlice(i int) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{ObjectMeta: meta("slice", i), AddressType: "IPv4", Ports: []discoveryv1.EndpointPort{
		{Name: ptr.To("http"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](8080)},
		{Name: ptr.To("metrics"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](9090)},
	}}
	for e := range 10 {
		n := i*10 + e
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.%d.%d.%d", 128+n>>16, n>>8&255, n&255)}, NodeName: ptr.To(fmt.Sprintf("node-%03d", n%200)), Zone: ptr.To("eu-1a"),
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false)},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: fmt.Sprintf("checkout-backend-7d9f8b6c5d-%05d", n), UID: "0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f"},
			Hints:      &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "eu-1a"}}},
		})
	}
	return s
}

// bulk is a server of many objects, in protobuf. Its answers are written before the
// measurement, so that what the heap gains is the client's.
type bulk struct {
	services, slices int
	streams          bool
}

func (b bulk) handler() http.Handler {
	answers := map[string][]byte{}
	for _, kind := range []string{"services", "endpointslices", "nodes"} {
		if b.streams {
			answers[kind] = b.stream(kind)
		} else {
			answers[kind] = b.list(kind)
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if early(r) {
			http.NotFound(w, r)
			return
		}
		initial := r.URL.Query().Get("sendInitialEvents") != ""
		kind := filepath.Base(r.URL.Path)
		if r.URL.Query().Get("watch") == "" {
			w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
			_, _ = w.Write(answers[kind])
			return
		}
		if initial && !b.streams {
			fail(422, metav1.StatusReasonInvalid, "no streams")(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")
		if initial {
			_, _ = w.Write(answers[kind])
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
}

func encode(obj k8sruntime.Object, gv schema.GroupVersion, kind string) []byte {
	obj.GetObjectKind().SetGroupVersionKind(gv.WithKind(kind))
	out, err := k8sruntime.Encode(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), obj)
	if err != nil {
		panic(err)
	}
	return out
}

// watchFrame is an event of a watch, framed by its length in four bytes.
func watchFrame(event string, obj k8sruntime.Object, gv schema.GroupVersion, kind string) []byte {
	raw := metav1.WatchEvent{Type: event, Object: k8sruntime.RawExtension{Raw: encode(obj, gv, kind)}}
	body, err := raw.Marshal() // the envelope of an event has no envelope
	if err != nil {
		panic(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// stream is the watch events of a streamed list.
func (b bulk) stream(kind string) (out []byte) {
	send := func(event string, obj k8sruntime.Object, gv schema.GroupVersion, kind string) {
		out = append(out, watchFrame(event, obj, gv, kind)...)
	}
	end := metav1.ObjectMeta{ResourceVersion: "999999", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}
	switch kind {
	case "services":
		for i := range b.services {
			send("ADDED", bigService(i), corev1.SchemeGroupVersion, "Service")
		}
		send("BOOKMARK", &corev1.Service{ObjectMeta: end}, corev1.SchemeGroupVersion, "Service")
	case "nodes":
		send("BOOKMARK", &corev1.Node{ObjectMeta: end}, corev1.SchemeGroupVersion, "Node")
	default:
		for i := range b.slices {
			send("ADDED", bigSlice(i), discoveryv1.SchemeGroupVersion, "EndpointSlice")
		}
		send("BOOKMARK", &discoveryv1.EndpointSlice{ObjectMeta: end}, discoveryv1.SchemeGroupVersion, "EndpointSlice")
	}
	return out
}

func (b bulk) list(kind string) []byte {
	meta := metav1.ListMeta{ResourceVersion: "999999"}
	switch kind {
	case "services":
		l := &corev1.ServiceList{ListMeta: meta}
		for i := range b.services {
			l.Items = append(l.Items, *bigService(i))
		}
		return encode(l, corev1.SchemeGroupVersion, "ServiceList")
	case "nodes":
		return encode(&corev1.NodeList{ListMeta: meta}, corev1.SchemeGroupVersion, "NodeList")
	}
	l := &discoveryv1.EndpointSliceList{ListMeta: meta}
	for i := range b.slices {
		l.Items = append(l.Items, *bigSlice(i))
	}
	return encode(l, discoveryv1.SchemeGroupVersion, "EndpointSliceList")
}

// keeper keeps what it is given, as the catalog does.
type keeper struct {
	source.Sink
	services map[model.ServiceID]*model.Service
	slices   map[model.SliceID]model.Slice
	complete atomic.Bool
}

func newKeeper() *keeper {
	return &keeper{services: map[model.ServiceID]*model.Service{}, slices: map[model.SliceID]model.Slice{}}
}

func (k *keeper) SetService(s model.Service)              { k.services[s.ID] = &s }
func (k *keeper) SetSlice(s model.Slice)                  { k.slices[s.ID] = s }
func (k *keeper) SetState(_ model.Origin, s source.State) { k.complete.Store(s == source.Complete) }

func live() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// peak samples the heap until stop is called. Garbage is collected all the time,
// so that it is what is needed and not what is left lying about.
func peak() (stop func() uint64) {
	done, most := make(chan struct{}), make(chan uint64)
	go func() {
		var m runtime.MemStats
		var top uint64
		for tick := time.NewTicker(5 * time.Millisecond); ; {
			select {
			case <-tick.C:
				runtime.GC()
				runtime.ReadMemStats(&m)
				top = max(top, m.HeapAlloc)
			case <-done:
				most <- top
				return
			}
		}
	}()
	return func() uint64 { close(done); return <-most }
}

// serve returns the URL of a server.
func serve(b *testing.B, h http.Handler) string {
	s := httptest.NewServer(h)
	b.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s.URL
}

// ours is the heap that a source and its values need.
func ours(b *testing.B, h bulk) (kept, top uint64) {
	client, err := kube.NewClient(kube.ClientOptions{Master: serve(b, h.handler())})
	if err != nil {
		b.Fatal(err)
	}
	before := live()
	stop := peak()
	ctx, cancel := context.WithCancel(b.Context())
	k, ended := newKeeper(), make(chan error, 1)
	s := kube.New(zap.NewNop(), client, kube.Options{Node: "here"})
	go func() { ended <- s.Run(ctx, k) }()
	for !k.complete.Load() {
		time.Sleep(time.Millisecond)
	}
	top = stop() - before
	kept = live() - before
	cancel()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
	if len(k.services) != h.services || len(k.slices) != h.slices {
		b.Fatalf("%d services, %d slices", len(k.services), len(k.slices))
	}
	runtime.KeepAlive(s)
	return kept, top
}

// informer is the heap that client-go needs to keep the objects themselves.
func informer(b *testing.B, h bulk) (kept, top uint64) {
	client, err := kubernetes.NewForConfig(&rest.Config{Host: serve(b, h.handler()), ContentConfig: rest.ContentConfig{ContentType: protobufType}})
	if err != nil {
		b.Fatal(err)
	}
	before := live()
	stop := peak()
	ctx, cancel := context.WithCancel(b.Context())
	f := informers.NewSharedInformerFactory(client, 0)
	services, slices := f.Core().V1().Services().Informer(), f.Discovery().V1().EndpointSlices().Informer()
	f.StartWithContext(ctx)
	f.WaitForCacheSync(ctx.Done())
	top = stop() - before
	kept = live() - before
	if len(services.GetStore().List()) != h.services || len(slices.GetStore().List()) != h.slices {
		b.Fatal("objects are missing")
	}
	cancel()
	f.Shutdown()
	return kept, top
}

// BenchmarkMemory prints the live heap for each Service of two ports and each slice of ten
// endpoints, next to that of an informer's cache. It also prints the peak of the heap at a start
// with 10,000 of both.
func BenchmarkMemory(b *testing.B) {
	const n = 10000
	ways := []struct {
		name string
		need func(*testing.B, bulk) (kept, top uint64)
	}{{"ours", ours}, {"informer", informer}}
	for _, way := range ways {
		for _, c := range []struct {
			name string
			h    bulk
			unit string
		}{{"services", bulk{services: n, streams: true}, "B/Service"}, {"slices", bulk{slices: n, streams: true}, "B/slice"}} {
			b.Run(way.name+"/"+c.name, func(b *testing.B) {
				for b.Loop() {
					kept, _ := way.need(b, c.h)
					b.ReportMetric(float64(kept)/n, c.unit)
				}
			})
		}
		for name, streams := range map[string]bool{"streamed": true, "listed": false} {
			b.Run(way.name+"/start/"+name, func(b *testing.B) {
				for b.Loop() {
					kept, top := way.need(b, bulk{services: n, slices: n, streams: streams})
					b.ReportMetric(float64(top)/1e6, "MB-peak")
					b.ReportMetric(float64(kept)/1e6, "MB-kept")
				}
			})
		}
	}
}
