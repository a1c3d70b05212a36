package kube_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-ipvs/kube-ipvs/internal/source/kube"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
)

// crowded is a slice of a hundred endpoints, as the controller fills them.
func crowded(i int) *discoveryv1.EndpointSlice {
	s := bigSlice(10 * i)
	s.Name = fmt.Sprintf("crowd-%05d", i)
	for k := 1; k < 10; k++ {
		s.Endpoints = append(s.Endpoints, bigSlice(10*i+k).Endpoints...)
	}
	return s
}

// crowd is a server of such slices. Its answer is made beforehand, so that what the heap
// gains is the client's.
type crowd struct {
	list     []byte
	streamed []byte // the answer to a streamed list; nil where the server does not stream lists
	// breaks is how many lists break off in the middle before one is whole.
	breaks int
	asked  int
}

func (c *crowd) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	kind := filepath.Base(r.URL.Path)
	if kind != "endpointslices" || early(r) {
		bulk{streams: true}.handler().ServeHTTP(w, r)
		return
	}
	q := r.URL.Query()
	switch {
	case q.Get("watch") == "":
		w.Header().Set("Content-Type", protobufType)
		c.write(w, c.list)
	case q.Get("sendInitialEvents") == "":
		w.Header().Set("Content-Type", protobufType+";stream=watch")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	case c.streamed == nil:
		fail(422, metav1.StatusReasonInvalid, "no streams")(w, r)
	default:
		w.Header().Set("Content-Type", protobufType+";stream=watch")
		c.write(w, c.streamed)
		<-r.Context().Done()
	}
}

// write sends the list, or half of it where this one breaks off.
func (c *crowd) write(w http.ResponseWriter, body []byte) {
	if c.asked++; c.asked <= c.breaks {
		_, _ = w.Write(body[:len(body)/2])
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(body)
	_ = http.NewResponseController(w).Flush()
}

func newCrowd(slices int, streams bool) *crowd {
	c, l := &crowd{}, &discoveryv1.EndpointSliceList{ListMeta: metav1.ListMeta{ResourceVersion: "999999"}}
	send := func(event string, s *discoveryv1.EndpointSlice) {
		if streams {
			c.streamed = append(c.streamed, watchFrame(event, s, discoveryv1.SchemeGroupVersion, "EndpointSlice")...)
		}
	}
	for i := range slices {
		l.Items = append(l.Items, *crowded(i))
		send("ADDED", &l.Items[i])
	}
	send("BOOKMARK", &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: "999999", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}})
	c.list = encode(l, discoveryv1.SchemeGroupVersion, "EndpointSliceList")
	return c
}

// mostAlive samples what a collection has found alive, until stop is called.
func mostAlive() (stop func() uint64) {
	done, most := make(chan struct{}), make(chan uint64)
	go func() {
		s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		var top uint64
		for tick := time.NewTicker(10 * time.Millisecond); ; {
			select {
			case <-tick.C:
				runtime.GC()
				metrics.Read(s)
				top = max(top, s[0].Value.Uint64())
			case <-done:
				tick.Stop()
				most <- top
				return
			}
		}
	}()
	return func() uint64 { close(done); return <-most }
}

// TestLongList lists slices of a hundred endpoints, 50 MB if requested. It needs at its peak the
// memory that stays in the end plus a stated share of the bytes on the wire. If streamed, that
// share is small; a plain list needs the message, the growth of the read buffer, and the objects.
// Lists that break off before it cost nothing that stays; after a stream that does another is
// begun.
func TestLongList(t *testing.T) {
	size := 400
	if os.Getenv("KUBE_IPVS_STORM") != "" {
		size = 3300
	}
	for _, tt := range []struct {
		name    string
		streams bool
		breaks  int
		wire    float64 // the allowed garbage, as a fraction of the input
	}{
		{"streamed", true, 0, 0.75},
		{"streamed, broken off, then streamed", true, 1, 0.75},
		{"streamed, broken off three times, then plain", true, 3, 6},
		{"plain", false, 0, 6},
		{"plain, broken off twice", false, 2, 6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCrowd(size, tt.streams)
			c.breaks = tt.breaks
			server := httptest.NewServer(c)
			defer func() { server.CloseClientConnections(); server.Close() }()
			client, err := kube.NewClient(kube.ClientOptions{Master: server.URL})
			mustDo(t, err)
			before := live()
			stop := mostAlive()
			ctx, cancel := context.WithCancel(t.Context())
			k, ended := newKeeper(), make(chan error, 1)
			s := kube.New(zap.NewNop(), client, kube.Options{Node: "here"})
			s.Hasten()
			go func() { ended <- s.Run(ctx, k) }()
			poll.Within(t, 5*time.Minute, "the whole list", k.complete.Load, func() string { return fmt.Sprintf("progress %+v", s.Progress()) })
			// Garbage of an earlier case may be collected meanwhile, so neither difference may
			// become negative.
			top, kept := max(stop(), before)-before, max(live(), before)-before
			cancel()
			mustDo(t, <-ended)
			if len(k.slices) != size {
				t.Fatalf("%d slices, want %d", len(k.slices), size)
			}
			const mb = 1e6
			t.Logf("figure: %s: %.1f MB came, %.1f MB at most, %.1f MB kept", tt.name, float64(len(c.list))/mb, float64(top)/mb, float64(kept)/mb)
			if most := float64(kept) + tt.wire*float64(len(c.list)) + 16*mb; float64(top) > most {
				t.Errorf("%d bytes at most, want no more than %.0f", top, most)
			}
		})
	}
}

// An object as large as etcd takes one comes through, in a list and in a watch.
func TestLargestObject(t *testing.T) {
	const most = 1536 << 10 // etcd's --max-request-bytes
	s := newServer(t)
	large := wire("web", "10.96.0.1", "5")
	large.Annotations = map[string]string{"notes": strings.Repeat("x", most)}
	again := large.DeepCopy()
	again.Spec.ClusterIP, again.ResourceVersion = "10.96.0.2", "10"
	s.play("services", then(events("ADDED", large), s.end("9")), then(events("MODIFIED", again), s.stay))
	src, out, logs := s.follow("{}")
	expect(t, out, "state complete", "service shop/web = kube[10.96.0.2]")
	if p := src.Progress()["services"]; p.Err != nil || logs.Len() > 0 {
		t.Errorf("progress %+v, log %v", p, logs.All())
	}
}
