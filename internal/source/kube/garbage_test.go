package kube_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-ipvs/kube-ipvs/internal/source/kube"
)

const protobufType = "application/vnd.kubernetes.protobuf"

// raw sends an event as it stands there.
func raw(kind, object string) http.HandlerFunc {
	return text(200, "application/json", fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", kind, object))
}

// endless writes the same for ever.
func endless(contentType, encoding string, chunk []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", contentType)
		if encoding != "" {
			w.Header().Set("Content-Encoding", encoding)
		}
		for r.Context().Err() == nil {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}
}

// bomb is much of one letter in few bytes, a list so far as it goes.
func bomb() http.HandlerFunc {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = z.Write([]byte(`{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"9","continue":"`))
	for range 4 {
		_, _ = z.Write(bytes.Repeat([]byte("x"), 1<<20))
	}
	_, _ = z.Write([]byte(`"}}`))
	_ = z.Close()
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(out.Bytes())
	}
}

// truncated is a list in protobuf without its end.
func truncated(w http.ResponseWriter, _ *http.Request) {
	l := &corev1.ServiceList{ListMeta: metav1.ListMeta{ResourceVersion: "9"}, Items: []corev1.Service{*wire("a", "10.96.0.7", "5")}}
	body := encode(l, corev1.SchemeGroupVersion, "ServiceList")
	w.Header().Set("Content-Type", protobufType)
	_, _ = w.Write(body[:len(body)-20])
}

func redirect(to string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, to+"?"+r.URL.RawQuery, http.StatusFound)
	}
}

// clocked notes when each request came.
type clocked struct {
	mu sync.Mutex
	at []time.Time
}

func (c *clocked) before(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Referer() == "" { // no redirect brought it
			c.mu.Lock()
			c.at = append(c.at, time.Now())
			c.mu.Unlock()
		}
		next(w, r)
	}
}

func (c *clocked) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.at)
}

// garbage is the case of a server that first works and then gives a certain answer. Served Services
// stay, the log shows the answer and a remedy once, the next attempt waits, and everything
// continues when the server works again.
type garbage struct {
	name string
	// answer is that to the kind of request that is meant; others are refused as by a
	// server that streams no lists.
	answer http.HandlerFunc
	reason kube.Reason
	words  []string
}

const helps = "or a proxy in between?"

func (g garbage) run(t *testing.T, meant func(*http.Request) bool) {
	t.Helper()
	s, asked := newServer(t), &clocked{}
	answer := asked.before(g.answer)
	s.play("login", text(200, "text/html", "<html>please sign in</html>"))
	s.play("services",
		then(events("ADDED", wire("web", "10.96.0.1", "5")), s.end("9")),
		func(w http.ResponseWriter, r *http.Request) {
			q := r.URL.Query()
			switch {
			case meant(r):
				answer(w, r)
			case q.Get("sendInitialEvents") != "":
				fail(422, metav1.StatusReasonInvalid, "no streams")(w, r)
			case q.Get("watch") == "":
				listOf("9", wire("web", "10.96.0.1", "5"))(w, r)
			default:
				event(w, "ERROR", status(410, metav1.StatusReasonExpired, "too old"))
			}
		})
	src, out, logs := s.follow("{}")
	p := trouble(t, src, g.reason)
	mentions(t, p.Err, g.words...)
	until(t, "the next try", func() bool { return asked.count() >= 2 })
	asked.mu.Lock()
	if pause := asked.at[1].Sub(asked.at[0]); pause < kube.HastenedPause {
		t.Errorf("asked again after %v", pause)
	}
	asked.mu.Unlock()
	if n := logs.FilterField(zap.String("reason", string(g.reason))).Len(); n != 1 {
		t.Errorf("%d lines of the log about it, want 1: %v", n, logs.All())
	}
	expect(t, out, "state complete", "service shop/web = kube[10.96.0.1]")
	s.play("services", s.has("30", wire("web", "10.96.0.2", "20")))
	expect(t, out, "state complete", "service shop/web = kube[10.96.0.2]")
	until(t, "end of the outage", func() bool { return src.Progress()["services"].Err == nil })
}

// together runs all at once: most of the time they wait for the next try, which the
// bound of parallel tests by processors would add up.
func together(t *testing.T, meant func(*http.Request) bool, all []garbage) {
	t.Helper()
	var running sync.WaitGroup
	for _, g := range all {
		running.Go(func() { t.Run(g.name, func(t *testing.T) { g.run(t, meant) }) })
	}
	running.Wait()
}

func lists(r *http.Request) bool { return r.URL.Query().Get("watch") == "" }

func watches(r *http.Request) bool {
	q := r.URL.Query()
	return q.Get("watch") != "" && q.Get("sendInitialEvents") == ""
}

func TestGarbageForAList(t *testing.T) {
	t.Parallel()
	pods := `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"x"}}]}`
	together(t, lists, []garbage{
		{"a list of another kind", text(200, "application/json", pods), kube.NotAPI, []string{helps}},
		{"in protobuf", func(w http.ResponseWriter, r *http.Request) {
			l := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "9"}}
			text(200, protobufType, string(encode(l, corev1.SchemeGroupVersion, "PodList")))(w, r)
		}, kube.NotAPI, []string{helps}},
		{"one object", text(200, "application/json", `{"kind":"Service","apiVersion":"v1","metadata":{"name":"x","resourceVersion":"9"}}`), kube.NotAPI, []string{helps}},
		{"an unknown kind", text(200, "application/json", `{"kind":"Ship","apiVersion":"sea/v1","metadata":{"resourceVersion":"9"}}`), kube.NotAPI, []string{helps}},
		{"an empty list without a version", text(200, "application/json", `{"kind":"ServiceList","apiVersion":"v1","metadata":{},"items":[]}`), kube.NotAPI, []string{"without a version", helps}},
		{"a version without a kind", text(200, "application/json", `{"metadata":{"resourceVersion":"9"}}`), kube.NotAPI, []string{"is no list of services", helps}},
		{"an empty list without a kind", text(200, "application/json", ` {"items":[],"metadata":{"resourceVersion":"9"},"more":"`+strings.Repeat("x", 1<<14)+`"}`), kube.NotAPI, []string{"is no list of services", helps}},
		{"a kind that is empty", text(200, "application/json", `{"kind":"","metadata":{"resourceVersion":"9"}}`), kube.NotAPI, []string{"is no list of services", helps}},
		{"a success", text(200, "application/json", `{"kind":"Status","apiVersion":"v1","status":"Success"}`), kube.NotAPI, []string{helps}},
		{"protobuf without its end", truncated, kube.NotAPI, []string{helps}},
		{"a name that is a number", text(200, "application/json", `{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":7}}]}`), kube.NotAPI, []string{helps}},
		{"a port beyond all bounds", text(200, "application/json", `{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"a"},"spec":{"ports":[{"port":99999999999}]}}]}`), kube.NotAPI, []string{helps}},
		{"a proxy's page", text(200, "text/html", "<html>please sign in</html>"), kube.NotAPI, []string{helps}},
		{"no content", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, kube.NotAPI, []string{helps}},
		{"a redirect to itself", redirect("/api/v1/services"), kube.NotAPI, []string{"stopped after 10 redirects", helps}},
		{"a redirect to a page", redirect("/login"), kube.NotAPI, []string{helps}},
		{"gzip that is none", endless("application/json", "gzip", []byte("plain")), kube.NotAPI, []string{"gzip", helps}},
	})
}

func TestGarbageForAWatch(t *testing.T) {
	t.Parallel()
	together(t, watches, []garbage{
		{"an event of no known type", raw("REJOICED", `{"kind":"Service","apiVersion":"v1","metadata":{"name":"web"}}`), kube.NotAPI, []string{"REJOICED", helps}},
		{"an error without words", raw("ERROR", `{"kind":"Status","apiVersion":"v1"}`), kube.NotAPI, []string{helps}},
		{"an error that is a success", raw("ERROR", `{"kind":"Status","apiVersion":"v1","status":"Success","code":200}`), kube.NotAPI, []string{helps}},
		{"an error that is a Service", raw("ERROR", `{"kind":"Service","apiVersion":"v1","metadata":{"name":"web"}}`), kube.NotAPI, []string{helps}},
		{"a bookmark without a version", raw("BOOKMARK", `{"kind":"Service","apiVersion":"v1"}`), kube.NotAPI, []string{"without a version", helps}},
		{"an object without a name", raw("ADDED", `{"kind":"Service","apiVersion":"v1","metadata":{"resourceVersion":"10"}}`), kube.NotAPI, []string{"without a name", helps}},
		{"an unknown kind", raw("ADDED", `{"kind":"Ship","apiVersion":"sea/v1"}`), kube.NotAPI, []string{helps}},
		{"no object", raw("ADDED", `null`), kube.NotAPI, []string{helps}},
		{"a list", raw("ADDED", `{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"9"}}`), kube.NotAPI, []string{helps}},
		{"a proxy's page", text(200, "text/html", "<html>please sign in</html>"), kube.NotAPI, []string{helps}},
		{"no protobuf in frames", text(200, protobufType+";stream=watch", "\x00\x00\x00\x05nothing"), kube.NotAPI, []string{helps}},
		{"a frame of four gigabytes", endless(protobufType+";stream=watch", "", bytes.Repeat([]byte{0xff}, 1<<16)), kube.NotAPI, []string{helps}},
		{"an event without an end", endless("application/json", "", bytes.Repeat([]byte("["), 1<<16)), kube.NotAPI, []string{helps}},
		{"a redirect to itself", redirect("/api/v1/services"), kube.NotAPI, []string{"stopped after 10 redirects", helps}},
	})
}

// An object that cannot be of any use is one, with words about it, and hides no other.
func TestSenselessObject(t *testing.T) {
	s := newServer(t)
	bad := wire("bad", "10.96.0.3", "6")
	bad.Spec.Ports = []corev1.ServicePort{{Port: -80, NodePort: 1 << 30, Protocol: "CARRIER"}}
	bad.Spec.ClusterIPs = []string{"10.96.0.999"}
	s.play("services", then(events("ADDED", wire("web", "10.96.0.1", "5"), bad), s.stream("9")))
	src, out, logs := s.follow("{}")
	expect(t, out, "state complete", "service shop/web = kube[10.96.0.1]", "service shop/bad = kube[]")
	if p := src.Progress()["services"]; p.Err != nil || logs.Len() > 0 {
		t.Errorf("progress %+v, log %v", p, logs.All())
	}
}

// An endless answer, plain or compressed, is read only up to the size of the largest answer of a
// real API server.
func TestAnswerWithoutAnEnd(t *testing.T) {
	const most = 1 << 20
	blanks := endless("application/json", "", bytes.Repeat([]byte(" "), 1<<16))
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		meant  func(*http.Request) bool
	}{
		"a list of blanks": {blanks, lists},
		"a list of one long word": {then(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"kind":"`))
		}, endless("application/json", "", bytes.Repeat([]byte("x"), 1<<16))), lists},
		"a gzip bomb":          {bomb(), lists},
		"a watch of blanks":    {blanks, watches},
		"lists of either kind": {blanks, func(r *http.Request) bool { return !watches(r) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			well := s.has("9", wire("web", "10.96.0.1", "5"))
			s.play("services", func(w http.ResponseWriter, r *http.Request) {
				switch {
				case tt.meant(r):
					tt.answer(w, r)
				case lists(r) || watches(r):
					well(w, r)
				default:
					fail(422, metav1.StatusReasonInvalid, "no streams")(w, r)
				}
			})
			client, err := kube.NewClient(kube.ClientOptions{Kubeconfig: kubeconfig(t, s.URL, authority(t, s.Server), "{}")})
			mustDo(t, err)
			core, logs := observer.New(zap.InfoLevel)
			src, out := kube.New(zap.New(core), client, kube.Options{Node: "here"}), &sink{}
			src.Bound(most)
			src.Hasten()
			ended := make(chan error, 1)
			ctx, cancel := context.WithCancel(t.Context())
			go func() { ended <- src.Run(ctx, out) }()
			defer func() { cancel(); mustDo(t, <-ended) }()
			p := trouble(t, src, kube.NotAPI)
			mentions(t, p.Err, "too long for an API server", "more than 1 MiB", helps)
			if logs.Len() != 1 {
				t.Errorf("log %v", logs.All())
			}
		})
	}
}

// A server breaks off every list in the middle, each time at another place, and then works. Nothing
// counts as complete before, nothing is lost afterwards, and the attempts take a bounded time.
func TestListsBreakOffAgainAndAgain(t *testing.T) {
	t.Parallel()
	all := make([]*corev1.Service, 50)
	want := []string{"state complete"}
	for i := range all {
		all[i] = wire(fmt.Sprintf("s%02d", i), fmt.Sprintf("10.96.1.%d", i), fmt.Sprint(i+1))
		want = append(want, fmt.Sprintf("service shop/s%02d = kube[10.96.1.%d]", i, i))
	}
	s := newServer(t)
	var steps []http.HandlerFunc
	for i := range 4 {
		steps = append(steps, breaksOff(all, 10*(i+1)))
	}
	s.play("services", append(steps, s.has("99", all...))...)
	src, out, _ := s.follow("{}")
	until(t, "all broke off", func() bool { return len(s.requests("services")) >= 4 })
	expect(t, out, want...)
	until(t, "end of the trouble", func() bool { return src.Progress()["services"].Err == nil })
	if n := strings.Count(strings.Join(s.requests("services"), "\n"), "list"); n == 0 {
		t.Errorf("requests %q", s.requests("services"))
	}
}

// has answers lists of either kind, and has nothing new for watches.
func (s *server) has(rv string, all ...*corev1.Service) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case lists(r):
			listOf(rv, all...)(w, r)
		case watches(r) && r.URL.Query().Get("resourceVersion") == rv:
			s.stay(w, r)
		case watches(r):
			event(w, "ERROR", status(410, metav1.StatusReasonExpired, "too old"))
		default:
			for _, o := range all {
				event(w, "ADDED", o)
			}
			s.stream(rv)(w, r)
		}
	}
}

// breaksOff sends the first n of a list, streamed or plain, and no more.
func breaksOff(all []*corev1.Service, n int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !lists(r) {
			for _, o := range slices.Clone(all[:n]) {
				event(w, "ADDED", o)
			}
			return
		}
		body := bytes.Buffer{}
		body.WriteString(`{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[`)
		for _, o := range all[:n] {
			_ = json.NewEncoder(&body).Encode(o)
			body.WriteString(",")
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", fmt.Sprint(body.Len()+1000))
		_, _ = w.Write(body.Bytes())
		panic(http.ErrAbortHandler)
	}
}
