package scenario

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	goruntime "runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
	"github.com/kube-ipvs/kube-ipvs/internal/source/kube"
	"github.com/kube-ipvs/kube-ipvs/internal/telemetry"
	"github.com/kube-ipvs/kube-ipvs/internal/wiring"
)

// The storm: so many slices of so many endpoints, and so many changes of them a second.
const (
	stormSlices    = 500
	stormEndpoints = 10
	stormRate      = 10_000
	stormTick      = 10 * time.Millisecond
)

// storm is an API server in a bad hour: every slice changes all the time. It writes
// protobuf as the real one does, prepared beforehand.
type storm struct {
	services []byte
	nodes    []byte
	first    []byte
	frames   [2][][]byte // the versions between, by slice
	last     []byte
	total    int // events of the storm itself
	begin    chan struct{}
	sent     atomic.Int64
	behind   atomic.Int64 // time by which the server was held up, in the end
}

func newStorm(total int) *storm {
	s := &storm{total: total, begin: make(chan struct{})}
	end := metav1.ObjectMeta{ResourceVersion: "1", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}
	for i := range stormSlices {
		s.services = append(s.services, frame("ADDED", "v1", "Service", stormService(i))...)
		s.first = append(s.first, sliceFrame("ADDED", stormSlice(i, 0))...)
		for k := range s.frames {
			s.frames[k] = append(s.frames[k], sliceFrame("MODIFIED", stormSlice(i, k+1)))
		}
		s.last = append(s.last, sliceFrame("MODIFIED", stormSlice(i, 3))...)
	}
	s.services = append(s.services, frame("BOOKMARK", "v1", "Service", &corev1.Service{ObjectMeta: end})...)
	s.nodes = frame("BOOKMARK", "v1", "Node", &corev1.Node{ObjectMeta: end})
	s.first = append(s.first, sliceFrame("BOOKMARK", &discoveryv1.EndpointSlice{ObjectMeta: end})...)
	return s
}

func stormName(i int) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "storm", Name: fmt.Sprintf("s%04d", i), ResourceVersion: "1"}
}

func stormService(i int) *corev1.Service {
	return &corev1.Service{ObjectMeta: stormName(i), Spec: corev1.ServiceSpec{
		Type: "ClusterIP", ClusterIP: fmt.Sprintf("10.96.%d.%d", i>>8, i&255), Ports: []corev1.ServicePort{{Name: "http", Protocol: "TCP", Port: 80}},
	}}
}

// stormSlice is a slice in one of four versions, which differ in one endpoint.
func stormSlice(i, version int) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: stormName(i), AddressType: "IPv4",
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To("http"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](8080)}},
	}
	s.Labels = map[string]string{discoveryv1.LabelServiceName: s.Name}
	s.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: time.Now().Add(time.Second).UTC().Format(time.RFC3339Nano)}
	for e := range stormEndpoints {
		number := e
		if e == 0 {
			number = stormEndpoints + version
		}
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.%d.%d.%d", 128+number, i>>8, i&255)}})
	}
	return s
}

func sliceFrame(event string, s *discoveryv1.EndpointSlice) []byte {
	return frame(event, "discovery.k8s.io/v1", "EndpointSlice", s)
}

// frame is an event of a watch in protobuf: its length, then an envelope around the
// object in its own (k8s.io/apimachinery, runtime.Unknown behind four bytes).
func frame(event, version, kind string, obj interface{ Marshal() ([]byte, error) }) []byte {
	inner, err := obj.Marshal()
	if err != nil {
		panic(err)
	}
	envelope, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: version, Kind: kind}, Raw: inner}).Marshal()
	if err != nil {
		panic(err)
	}
	e := metav1.WatchEvent{Type: event, Object: runtime.RawExtension{Raw: append([]byte("k8s\x00"), envelope...)}}
	body, err := e.Marshal()
	if err != nil {
		panic(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// ServeHTTP implements http.Handler.
func (s *storm) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") == "" { // the API server's own Service is asked for apart
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")
	flush := http.NewResponseController(w).Flush
	kind := path.Base(r.URL.Path)
	_, _ = w.Write(map[string][]byte{"services": s.services, "nodes": s.nodes, "endpointslices": s.first}[kind])
	_ = flush()
	if kind == "endpointslices" {
		select {
		case <-s.begin:
			s.blow(w, flush)
		case <-r.Context().Done():
		}
	}
	<-r.Context().Done()
}

// blow sends the storm, a little each tick, and in the end the last version of each.
func (s *storm) blow(w http.ResponseWriter, flush func() error) {
	began, sent := time.Now(), 0
	for tick := time.NewTicker(stormTick); sent < s.total; <-tick.C {
		due := min(int(time.Since(began)*stormRate/time.Second), s.total)
		for ; sent < due; sent++ {
			if _, err := w.Write(s.frames[sent/stormSlices%2][sent%stormSlices]); err != nil {
				return
			}
		}
		_ = flush()
		s.sent.Store(int64(sent))
	}
	s.behind.Store(int64(time.Since(began) - time.Duration(s.total)*time.Second/stormRate))
	_, _ = w.Write(s.last)
	_ = flush()
	s.sent.Add(stormSlices)
}

// passes counts those of the loop.
type passes struct {
	agent.Observer
	n atomic.Int64
}

// Pass implements agent.Observer.
func (p *passes) Pass(x agent.Pass) { p.n.Add(1); p.Observer.Pass(x) }

// stormed is an agent on fakes that follows an API server.
type stormed struct {
	storm  *storm
	kernel *kernel
	config config.Config
	known  *catalog.Catalog
	loop   *agent.Agent
	passes *passes
}

func newStormed(t *testing.T, s *storm) *stormed {
	t.Helper()
	server := httptest.NewServer(s)
	ctx, cancel := context.WithCancel(t.Context())
	c, err := settings(t.TempDir(), Start{})
	if err != nil {
		t.Fatal(err)
	}
	client, err := kube.NewClient(kube.ClientOptions{Master: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	log := zap.NewNop()
	x := &stormed{storm: s, kernel: newKernel(), config: c, known: catalog.New(log, c.NodeName, model.FromKube), passes: &passes{Observer: telemetry.New()}}
	x.known.SetEndpointGrace(100 * time.Millisecond)
	taps := newFaultProxy()
	mode, _ := newMode(log, c, x.kernel, taps)
	now := wiring.Static(c)
	x.loop = agent.New(agent.Options{
		Log: log, Catalog: x.known, Mode: mode, NodeName: c.NodeName, Receivers: agent.Receivers{Observer: x.passes},
		Compiler: wiring.CompilerFor(now, families()), Affects: wiring.AffectsFor(now, families()),
		Host: tappedHost{x.kernel.links, taps}, NodePorts: wiring.NodePortsFor(now),
	})
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return x.loop.Run(ctx) })
	group.Go(func() error { return kube.New(log, client, kube.Options{Node: c.NodeName}).Run(ctx, x.known) })
	t.Cleanup(func() {
		cancel()
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
		server.CloseClientConnections()
		server.Close()
	})
	return x
}

// stormPatience is the limit for one answer of the loop and for the whole storm. A machine under
// the race detector is slow, and a loop that never answers is still found.
const stormPatience = time.Minute

func (x *stormed) status(t *testing.T) agent.Status {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stormPatience)
	defer cancel()
	s, err := x.loop.Status(ctx)
	if err != nil {
		t.Fatalf("the loop does not answer: %v", err)
	}
	return s
}

// delivered is how many events have become news.
func (x *stormed) delivered() int { return int(x.known.Changes().Slices) }

// programmed reports whether that many events have arrived and all their results are in the kernel.
func (x *stormed) programmed(t *testing.T, events int) bool {
	t.Helper()
	c := x.known.Changes()
	return int(c.Slices) >= events && c.PendingSlices == 0 && settledTables(x.status(t))
}

func settledTables(s agent.Status) bool {
	return s.Ready && !slices.ContainsFunc(s.Tables, func(t dataplane.TableStatus) bool { return t.Updates+t.Deletes > 0 })
}

// differs compares the fakes with a fresh compile of the last version of each object.
func (x *stormed) differs(t *testing.T) string {
	t.Helper()
	last := catalog.New(zap.NewNop(), x.config.NodeName, model.FromKube)
	for i := range stormSlices {
		last.SetService(source.Service(model.FromKube, stormService(i)))
		last.SetSlice(source.Slice(model.FromKube, stormSlice(i, 3)))
	}
	host, err := x.kernel.host()
	if err != nil {
		t.Fatal(err)
	}
	want, err := wanted(x.config, host, last.Take())
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range Kinds() {
		got, err := x.kernel.text(kind)
		if err != nil {
			t.Fatal(err)
		}
		a, errA := Normal(kind, want[kind])
		b, errB := Normal(kind, got)
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		if diff := cmp.Diff(lines(a), lines(b)); diff != "" {
			return kind + " (-fresh compile +kernel):\n" + diff
		}
	}
	return ""
}

// heap is what was alive at the latest collection.
func heap() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// TestStorm: the API server tells of 10,000 changes of slices a second. The loop answers all the
// time and takes many changes at once. Memory depends on the number of objects, not of events. In
// the end the kernel equals a fresh compile.
func TestStorm(t *testing.T) {
	length := 2 * time.Second
	if text := os.Getenv("KUBE_IPVS_STORM"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	s := newStorm(int(length * stormRate / time.Second))
	x := newStormed(t, s)
	await := func(what string, events int, meanwhile func()) {
		t.Helper()
		for deadline := time.Now().Add(10*length + stormPatience); !x.programmed(t, events); meanwhile() {
			if time.Now().After(deadline) {
				t.Fatalf("never: %s; %d of %d events came, status %+v", what, x.delivered(), events, x.status(t))
			}
		}
	}
	await("the first sync", stormSlices, func() { time.Sleep(5 * time.Millisecond) })
	goruntime.GC()
	before, passesBefore, written := heap(), x.passes.n.Load(), x.status(t).Written

	var took []time.Duration
	var peak uint64
	var backlog, pending int
	began := time.Now()
	var came time.Time // the last event
	all := s.total + 2*stormSlices
	close(s.begin)
	await("the end of the storm", all, func() {
		c := x.known.Changes()
		backlog, pending = max(backlog, int(s.sent.Load())+stormSlices-int(c.Slices)), max(pending, c.PendingSlices)
		if came.IsZero() && int(c.Slices) >= all {
			came = c.Last
		}
		asked := time.Now()
		x.status(t)
		took, peak = append(took, time.Since(asked)), max(peak, heap())
		time.Sleep(2 * time.Millisecond)
	})
	done := time.Now()
	if came.IsZero() {
		came = x.known.Changes().Last
	}
	goruntime.GC()
	after, n := heap(), x.passes.n.Load()-passesBefore
	slices.Sort(took)
	events := s.total + stormSlices
	const mib = 1 << 20
	var rows []string
	for table, count := range x.status(t).Written {
		if count -= written[table]; count > 0 {
			rows = append(rows, fmt.Sprintf("%s %d", table, count))
		}
	}
	slices.Sort(rows)
	t.Logf("figure: %d events, %.0f a second (the server was held up by %v); %d passes; rows written: %s", events,
		float64(events)/came.Sub(began).Seconds(), time.Duration(s.behind.Load()).Round(time.Millisecond), n, strings.Join(rows, ", "))
	t.Logf("figure: largest backlog %d events on the way, %d in the catalog; an answer of Status took %v (median), %v (p99)",
		backlog, pending, took[len(took)/2].Round(time.Microsecond), took[len(took)*99/100].Round(time.Microsecond))
	t.Logf("figure: live heap %.1f MiB before, %.1f at most, %.1f after; everything was programmed %v after the last event",
		float64(before)/mib, float64(peak)/mib, float64(after)/mib, done.Sub(came).Round(100*time.Microsecond))

	if diff := x.differs(t); diff != "" {
		t.Errorf("after the storm %s", diff)
	}
	if int(n)*10 > events {
		t.Errorf("%d passes for %d events", n, events)
	}
	// A change of an object needs at most four copies of it: the previous one, the current one, the
	// one being decoded, and rows that are being written. In addition the times of 10,000 changes
	// are kept.
	const object = 4 * 1024 * (1 + stormEndpoints)
	if most := before + stormSlices*object; peak > most || after > before+8*mib {
		t.Errorf("live heap %d at most and %d after, want no more than %d and %d", peak, after, most, before+8*mib)
	}
}
