package kube_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kube-ipvs/kube-ipvs/internal/source/kube"
)

// bubble runs a source on a fake client in the time of a synctest bubble.
func bubble(t *testing.T, client kube.API, log *zap.Logger) (s *kube.Source, out *sink) {
	t.Helper()
	return follow(t, client, log, kube.Options{Node: "here"})
}

func follow(t *testing.T, client kube.API, log *zap.Logger, o kube.Options) (s *kube.Source, out *sink) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s, out = kube.New(log, client, o), &sink{}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, out) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s, out
}

// A hundred agents whose server went away at the same moment do not come back at the
// same moment, nor often.
func TestSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const agents = 100
		var mu sync.Mutex
		calls := make([][]time.Duration, agents)
		begin := time.Now()
		for i := range agents {
			client := fake.NewClientset()
			client.PrependReactor("list", "services", func(a clienttesting.Action) (bool, runtime.Object, error) {
				if !everywhere(a) {
					return false, nil, nil
				}
				mu.Lock()
				defer mu.Unlock()
				calls[i] = append(calls[i], time.Since(begin))
				return true, nil, errors.New("away")
			})
			bubble(t, kube.Of(client), zap.NewNop())
		}
		time.Sleep(10 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		var second [8]int // the second calls, by 100 ms
		for i, at := range calls {
			if len(at) < 10 || len(at) > 25 {
				t.Errorf("agent %d called %d times in 10 minutes", i, len(at))
			}
			for n := 6; n+1 < len(at); n++ {
				if gap := at[n+1] - at[n]; gap < 25*time.Second || gap > 61*time.Second {
					t.Errorf("agent %d waited %s before call %d", i, gap, n+1)
				}
			}
			second[min(7, int((at[1]-800*time.Millisecond)/(100*time.Millisecond)))]++
		}
		if slices.Max(second[:]) > 35 { // 12.5 are to be expected
			t.Errorf("second calls by 100 ms: %v", second)
		}
	})
}

// Watches that a server ends all at once are not begun again all at once, and those that
// end in their time without a pause.
func TestWatchesAreScattered(t *testing.T) {
	const agents, life = 100, 10 * time.Second
	for name, inTime := range map[string]bool{"before their time": false, "in their time": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var pauses []time.Duration
				for range agents {
					client, watches, ended := fake.NewClientset(), 0, time.Time{}
					client.PrependWatchReactor("services", func(a clienttesting.Action) (bool, watch.Interface, error) {
						mu.Lock()
						defer mu.Unlock()
						events := watch.NewFake()
						if watches++; watches > 1 {
							if watches == 2 {
								pauses = append(pauses, time.Since(ended))
							}
							return true, events, nil
						}
						until := life
						if inTime {
							seconds := a.(clienttesting.WatchActionImpl).ListOptions.TimeoutSeconds
							until = time.Duration(*seconds) * time.Second
						}
						ended = time.Now().Add(until)
						go func() {
							for ; time.Until(ended) > time.Minute; time.Sleep(time.Minute) {
								events.Action(watch.Bookmark, wire("", "", "7"))
							}
							time.Sleep(time.Until(ended))
							events.Stop()
						}()
						return true, events, nil
					})
					bubble(t, kube.Of(client), zap.NewNop())
				}
				time.Sleep(12 * time.Minute)
				mu.Lock()
				defer mu.Unlock()
				var tenths [10]int
				for _, p := range pauses {
					tenths[min(9, p/(100*time.Millisecond))]++
				}
				if len(pauses) != agents || slices.Max(pauses) > time.Second {
					t.Fatalf("%d begun again, after %v", len(pauses), pauses)
				}
				if most := slices.Max(tenths[:]); !inTime && most > 30 || inTime && slices.Max(pauses) != 0 { // 10 are to be expected
					t.Errorf("begun again by 100 ms: %v", tenths)
				}
			})
		})
	}
}

// everywhere tells lists of all namespaces from the early ones.
func everywhere(a clienttesting.Action) bool { return a.GetNamespace() == metav1.NamespaceAll }

// counts counts lists of all namespaces.
func counts(lists *atomic.Int32) clienttesting.ReactionFunc {
	return func(a clienttesting.Action) (bool, runtime.Object, error) {
		if everywhere(a) {
			lists.Add(1)
		}
		return false, nil, nil
	}
}

// A watch that is silent for long is not trusted, and what was missed comes by a
// list. Until then Heard grows old.
func TestSilentWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(web("10.96.0.1"))
		var lists atomic.Int32
		client.PrependReactor("list", "services", counts(&lists))
		client.PrependWatchReactor("services", func(clienttesting.Action) (bool, watch.Interface, error) { return true, watch.NewFake(), nil })
		s, out := bubble(t, kube.Of(client), zap.NewNop())
		synctest.Wait()
		_, err := client.CoreV1().Services("shop").Update(t.Context(), web("10.96.0.2"), metav1.UpdateOptions{})
		mustDo(t, err)
		time.Sleep(4 * time.Minute)
		p := s.Progress()["services"]
		if age := time.Since(p.Heard); age < 4*time.Minute || !p.Synced || p.Err != nil || lists.Load() != 1 {
			t.Errorf("heard %s ago, %+v, %d lists", age, p, lists.Load())
		}
		time.Sleep(time.Minute + 5*time.Second)
		if !strings.Contains(out.String(), "10.96.0.2") || lists.Load() != 2 {
			t.Errorf("%d lists, have %s", lists.Load(), out)
		}
	})
}

// Bookmarks are a sign of life.
func TestBookmarksCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		events := watch.NewFake()
		var lists atomic.Int32
		client.PrependReactor("list", "services", counts(&lists))
		client.PrependWatchReactor("services", func(clienttesting.Action) (bool, watch.Interface, error) { return true, events, nil })
		s, _ := bubble(t, kube.Of(client), zap.NewNop())
		for range 30 {
			time.Sleep(time.Minute)
			events.Action(watch.Bookmark, wire("", "", "7"))
			synctest.Wait()
			if age := time.Since(s.Progress()["services"].Heard); age != 0 {
				t.Fatalf("heard %s ago", age)
			}
		}
		if lists.Load() != 1 {
			t.Errorf("%d lists", lists.Load())
		}
	})
}

// hanging is a client whose requests for Services, of the verb that is stored, are
// never answered, like a connection without pings to a paused server.
type hanging struct {
	kubernetes.Interface
	verb atomic.Value
}

// IsWatchListSemanticsUnSupported repeats the answer of the fake.
func (h *hanging) IsWatchListSemanticsUnSupported() bool { return true }

func (h *hanging) CoreV1() corev1.CoreV1Interface { return hangingCore{h.Interface.CoreV1(), h} }

type hangingCore struct {
	corev1.CoreV1Interface
	h *hanging
}

func (c hangingCore) Services(ns string) corev1.ServiceInterface {
	if ns != metav1.NamespaceAll {
		return hangingServices{c.CoreV1Interface.Services(ns), c.h, "early "}
	}
	return hangingServices{c.CoreV1Interface.Services(ns), c.h, ""}
}

type hangingServices struct {
	corev1.ServiceInterface
	h       *hanging
	purpose string
}

func (c hangingServices) List(ctx context.Context, o metav1.ListOptions) (*v1.ServiceList, error) {
	if c.h.verb.Load() == c.purpose+"list" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return c.ServiceInterface.List(ctx, o)
}

func (c hangingServices) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if c.h.verb.Load() == "watch" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return c.ServiceInterface.Watch(ctx, o)
}

// A request that is never answered has a deadline of our own, is told of, and tried
// again.
func TestRequestHangs(t *testing.T) {
	for verb, limit := range map[string]time.Duration{"list": 2 * time.Minute, "watch": 5 * time.Minute} {
		t.Run(verb, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := &hanging{Interface: fake.NewClientset(web("10.96.0.1"))}
				client.verb.Store(verb)
				s, out := bubble(t, kube.Of(client), zap.NewNop())
				time.Sleep(limit - time.Second)
				if p := s.Progress()["services"]; p.Err != nil || p.Synced != (verb == "watch") {
					t.Errorf("before the deadline: %+v", p)
				}
				client.verb.Store("")
				time.Sleep(1001 * time.Millisecond)
				p := s.Progress()["services"]
				mentions(t, p.Err, verb+" services: the API server does not answer")
				if p.Reason != kube.Timeout {
					t.Errorf("progress %+v", p)
				}
				time.Sleep(10 * time.Second)
				if p := s.Progress()["services"]; p.Err != nil || !p.Synced || !strings.Contains(out.String(), "10.96.0.1") {
					t.Errorf("after it: %+v, have %s", p, out)
				}
			})
		})
	}
}

// An outage is told when it begins, every five minutes, and when it ends: once for
// each reason, and not for every attempt.
func TestOutageInTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var trouble atomic.Pointer[error]
		breaks := func(err error) { trouble.Store(&err) }
		breaks(errors.New("etcd is on holiday"))
		client.PrependReactor("list", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
			err := *trouble.Load()
			return err != nil, nil, err
		})
		core, logs := observer.New(zap.InfoLevel)
		s, _ := bubble(t, kube.Of(client), zap.New(core))
		time.Sleep(22 * time.Minute)
		if n := logs.Len(); n < 4 || n > 5 { // at 0, 5, 10, 15 and 20 minutes and the pause before the next call
			t.Errorf("%d lines in 22 minutes: %v", n, logs.All())
		}
		if last := logs.All()[logs.Len()-1].ContextMap(); last["for"].(time.Duration) < 15*time.Minute || last["kind"] != "services" {
			t.Errorf("last line %v", last)
		}
		logs.TakeAll()
		breaks(fmt.Errorf("dial: %w", &net.DNSError{Name: "api"}))
		time.Sleep(2 * time.Minute)
		if got := logs.TakeAll(); len(got) != 1 || got[0].ContextMap()["reason"] != "Unresolved" {
			t.Errorf("another reason: %v", got)
		}
		since := s.Progress()["services"].Since
		breaks(nil)
		time.Sleep(2 * time.Minute)
		got := logs.TakeAll()
		if len(got) != 1 || got[0].Message != "the API server answers again" || got[0].ContextMap()["after"].(time.Duration) < 24*time.Minute {
			t.Errorf("end: %v", got)
		}
		if p := s.Progress()["services"]; since.IsZero() || !p.Since.IsZero() || p.Err != nil || p.Reason != "" {
			t.Errorf("since %s, then %+v", since, p)
		}
	})
}

// No server at the address, and no such host name.
func TestUnreachable(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	mustDo(t, err)
	address := gone.Addr().String()
	mustDo(t, gone.Close())
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	other := newServer(t)
	closing, err := net.Listen("tcp", "127.0.0.1:0")
	mustDo(t, err)
	defer func() { mustDo(t, closing.Close()) }()
	go func() {
		for conn, err := closing.Accept(); err == nil; conn, err = closing.Accept() {
			_ = conn.Close() // as a load balancer without a server behind it does
		}
	}()
	tests := []struct {
		name, master string
		reason       kube.Reason
		words        []string
	}{
		{"refused", "http://" + address, kube.Refused, []string{"nothing listens", "is it running there?"}},
		{"no such name", "https://api.invalid:6443", kube.Unresolved, []string{"cannot be resolved", "resolver"}},
		{"no TLS", strings.Replace(plain.URL, "http:", "https:", 1), kube.NotAPI, []string{"does not speak TLS"}},
		{"closes connections", "https://" + closing.Addr().String(), kube.Timeout, []string{"the connection to the API server broke"}},
		{"another CA", other.URL, kube.Certificate, []string{"not trusted", "is the CA in use the one of this cluster"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			client, err := kube.NewClient(kube.ClientOptions{Master: tt.master})
			mustDo(t, err)
			s, _ := run(t, client, kube.Options{Node: "here"}, (*kube.Source).Hasten)
			mentions(t, trouble(t, s, tt.reason).Err, tt.words...)
		})
	}
}

// An agent that reaches the server by the cluster IP that it has to serve itself is
// told so at the first failure, which is the one that is logged.
func TestByClusterIP(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	mustDo(t, err)
	address := gone.Addr().String()
	mustDo(t, gone.Close())
	t.Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
	client, err := kube.NewClient(kube.ClientOptions{Master: "http://" + address})
	mustDo(t, err)
	core, logs := observer.New(zap.WarnLevel)
	s, _ := runWith(t, zap.New(core), client, kube.Options{Node: "here"}, (*kube.Source).Hasten)
	mentions(t, trouble(t, s, kube.Refused).Err, "cluster IP", "give --master")
	for _, l := range logs.All() {
		mentions(t, errors.New(l.ContextMap()["error"].(string)), "cluster IP", "give --master", address)
	}
}

// wire between client and server, which can be cut without either being told.
type link struct {
	net.Listener
	to  string
	cut atomic.Bool
}

func newLink(t *testing.T, to string) *link {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	mustDo(t, err)
	out := &link{Listener: l, to: to}
	t.Cleanup(func() { l.Close() })
	go out.serve(t.Context())
	return out
}

func (l *link) serve(ctx context.Context) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", l.to)
		if err != nil {
			client.Close()
			return
		}
		context.AfterFunc(ctx, func() { client.Close(); server.Close() })
		go l.pump(client, server)
		go l.pump(server, client)
	}
}

func (l *link) pump(from, to net.Conn) {
	defer to.Close()
	buffer := make([]byte, 1<<14)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if l.cut.Load() {
			continue // the kernel accepts, and no process answers
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// A connection dies without a reset, as with a server stopped in a debugger or a firewall that lost
// its state. Pings find it, and a new connection works.
func TestHalfOpen(t *testing.T) {
	t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "1")
	t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "1")
	s := newServer(t)
	l := newLink(t, s.Listener.Addr().String())
	first := func(w http.ResponseWriter, r *http.Request) {
		event(w, "BOOKMARK", endOfList(r, "9"), empty(r, metav1.ObjectMeta{ResourceVersion: "9"}))
		s.stay(w, r)
	}
	s.play("services", then(events("ADDED", wire("web", "10.96.0.1", "5")), first), s.stream("30", wire("web", "10.96.0.2", "10")))
	client, err := kube.NewClient(kube.ClientOptions{Kubeconfig: kubeconfig(t, "https://"+l.Addr().String(), authority(t, s.Server), "{}"), QPS: 100, Burst: 100})
	mustDo(t, err)
	src, out := run(t, client, kube.Options{Node: "here"}, (*kube.Source).Hasten)
	expect(t, out, "state complete", "service shop/web = kube[10.96.0.1]")
	l.cut.Store(true)
	cut := time.Now() // what was on its way may still come
	p := trouble(t, src, kube.Timeout)
	if p.Since.Sub(p.Heard) < p.Since.Sub(cut)/2 || !p.Synced {
		t.Errorf("a dead connection was heard: %+v, cut at %s", p, cut)
	}
	l.cut.Store(false)
	expect(t, out, "state complete", "service shop/web = kube[10.96.0.2]")
	until(t, "end of the outage", func() bool { return src.Progress()["services"].Err == nil })
}

// The token of the pod goes away while we run.
func TestTokenFileVanishes(t *testing.T) {
	s := newServer(t)
	token := file(t, "token", "t")
	client, err := kube.NewClient(kube.ClientOptions{Kubeconfig: kubeconfig(t, s.URL, authority(t, s.Server), "{tokenFile: "+token+"}")})
	mustDo(t, err)
	mustDo(t, os.Remove(token))
	src, _ := run(t, client, kube.Options{Node: "here"}, (*kube.Source).Hasten)
	mentions(t, trouble(t, src, kube.Unauthorized).Err, token, "is the file still there")
}
