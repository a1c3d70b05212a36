package kube_test

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-ipvs/kube-ipvs/internal/source/kube"
)

// A server of today streams its lists: one request, which goes on as the watch.
func TestStreamedList(t *testing.T) {
	s := newServer(t)
	s.play("services", then(events("ADDED", wire("web", "10.96.0.1", "5")), s.stream("9"), s.stay))
	src, out, logs := s.follow("{}")
	expect(t, out, "state complete", "service shop/web = kube[10.96.0.1]")
	if diff := cmp.Diff([]string{`stream rv=""`}, s.requests("services")); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if p := src.Progress()["services"]; p.Heard.IsZero() || p.Err != nil || logs.Len() > 0 {
		t.Errorf("progress %+v, %d log lines", p, logs.Len())
	}
}

// A server that cannot stream lists refuses, and that is no trouble.
func TestPlainList(t *testing.T) {
	s := newServer(t)
	s.play("services",
		fail(422, metav1.StatusReasonInvalid, "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"),
		listOf("9", wire("web", "10.96.0.1", "5")),
		then(events("MODIFIED", wire("web", "10.96.0.2", "10")), s.stay))
	src, out, logs := s.follow("{}")
	expect(t, out, "state complete", "service shop/web = kube[10.96.0.2]")
	if diff := cmp.Diff([]string{`stream rv=""`, `list rv="0"`, `watch rv="9"`}, s.requests("services")); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if p := src.Progress()["services"]; p.Err != nil || logs.Len() > 0 {
		t.Errorf("progress %+v, log %v", p, logs.All())
	}
}

// A version that the server has dropped is an ordinary thing. The new list may be
// as old as what we have, so that the server answers from its watch cache.
func TestGone(t *testing.T) {
	gone := status(410, metav1.StatusReasonExpired, "too old resource version")
	for name, watch := range map[string]http.HandlerFunc{
		"as an answer": fail(410, metav1.StatusReasonExpired, "too old resource version"),
		"as an event":  events("ERROR", gone),
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.play("services",
				then(events("ADDED", wire("web", "10.96.0.1", "5"), wire("old", "10.96.0.3", "6")), func(w http.ResponseWriter, r *http.Request) {
					event(w, "BOOKMARK", endOfList(r, "9"), empty(r, metav1.ObjectMeta{ResourceVersion: "12"}))
				}),
				watch,
				s.stream("20", wire("web", "10.96.0.2", "15")))
			src, out, logs := s.follow("{}")
			expect(t, out, "state complete", "service shop/web = kube[10.96.0.2]")
			if diff := cmp.Diff([]string{`stream rv=""`, `watch rv="12"`, `stream rv="12"`}, s.requests("services")); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if p := src.Progress()["services"]; p.Err != nil || logs.Len() > 0 {
				t.Errorf("progress %+v, log %v", p, logs.All())
			}
		})
	}
}

// A server that was restored from a backup knows less than we do: client-go asks for
// any version, and what is not in the answer goes.
func TestServerFromThePast(t *testing.T) {
	tooLarge := status(504, metav1.StatusReasonTimeout, "Too large resource version: 900, current: 30")
	tooLarge.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}}
	s := newServer(t)
	s.play("services",
		then(events("ADDED", wire("web", "10.96.0.1", "5"), wire("young", "10.96.0.9", "800")), s.end("900")),
		events("ERROR", status(410, metav1.StatusReasonExpired, "too old")),
		events("ERROR", tooLarge),
		s.stream("30", wire("web", "10.96.0.1", "5")))
	_, out, _ := s.follow("{}")
	expect(t, out, "state complete", "service shop/web = kube[10.96.0.1]")
	if diff := cmp.Diff([]string{`stream rv=""`, `watch rv="900"`, `stream rv="900"`, `stream rv=""`}, s.requests("services")); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// end ends a streamed list and the stream.
func (s *server) end(rv string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		event(w, "BOOKMARK", endOfList(r, rv), empty(r, metav1.ObjectMeta{ResourceVersion: rv}))
	}
}

// The API server is the truth, also when it has nothing: a list that is complete and
// empty takes everything away, as it does with kube-proxy.
func TestEmptyList(t *testing.T) {
	s := newServer(t)
	s.play("services", then(events("ADDED", wire("web", "10.96.0.1", "5")), s.end("9")),
		events("ERROR", status(410, metav1.StatusReasonExpired, "too old")), s.stream("20"))
	_, out, _ := s.follow("{}")
	until(t, "the second list", func() bool { return len(s.requests("services")) > 2 })
	expect(t, out, "state complete")
}

// A stream that breaks off is no list: nothing is deleted, nothing is complete. It is
// begun again after a pause, and where one after the other breaks a plain list follows.
func TestStreamBreaksOff(t *testing.T) {
	begun := events("ADDED", wire("web", "10.96.0.1", "5"))
	broken := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	for name, tt := range map[string]struct {
		breaks int
		how    http.HandlerFunc
		want   []string
	}{
		"once":             {1, begun, []string{`stream rv=""`, `stream rv=""`}},
		"at its beginning": {1, broken, []string{`stream rv=""`, `stream rv=""`}},
		"in the middle":    {1, then(begun, broken), []string{`stream rv=""`, `stream rv=""`}},
		"always":           {3, then(begun, broken), []string{`stream rv=""`, `stream rv=""`, `stream rv=""`, `list rv="0"`, `watch rv="9"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, at := newServer(t), &clocked{}
			steps := slices.Repeat([]http.HandlerFunc{at.before(tt.how)}, tt.breaks)
			seen := make(chan struct{})
			s.play("services", append(steps, at.before(onceClosed(seen, s.has("9", wire("web", "10.96.0.1", "5"), wire("two", "10.96.0.2", "6")))))...)
			src, out, _ := s.follow("{}")
			trouble(t, src, kube.Timeout)
			close(seen)
			expect(t, out, "state complete", "service shop/web = kube[10.96.0.1]", "service shop/two = kube[10.96.0.2]")
			until(t, "the watch", func() bool { return src.Progress()["services"].Err == nil })
			if diff := cmp.Diff(tt.want, s.requests("services")); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if pause := at.at[1].Sub(at.at[0]); pause < kube.HastenedPause {
				t.Errorf("begun again after %s", pause)
			}
		})
	}
}

// Answers of a server, and the messages that the operator sees. The last good state stays.
func TestBadAnswers(t *testing.T) {
	tests := []struct {
		name   string
		answer http.HandlerFunc
		reason kube.Reason
		words  []string
	}{
		{"401", fail(401, metav1.StatusReasonUnauthorized, "Unauthorized"), kube.Unauthorized,
			[]string{"list services: the API server refuses our credentials: ", "Unauthorized", "is the token expired"}},
		{"403", fail(403, metav1.StatusReasonForbidden, `services is forbidden: User "x" cannot list resource "services"`), kube.Forbidden,
			[]string{`User "x" cannot list`, "lacks the verb list for services"}},
		{"404", fail(404, metav1.StatusReasonNotFound, "the server could not find the requested resource"), kube.NotAPI, []string{"is the server's URL right"}},
		{"404 of another server", text(404, "text/html", "<html>nginx"), kube.NotAPI, []string{"is the server's URL right"}},
		{"500", fail(500, metav1.StatusReasonInternalError, "etcdserver: leader changed"), kube.ServerError, []string{"leader changed", "its log says why"}},
		{"503 of a load balancer", text(503, "text/plain", "no backend"), kube.ServerError, []string{"unable to handle the request"}},
		{"504", fail(504, metav1.StatusReasonTimeout, "the request did not complete"), kube.Timeout, []string{"did not complete"}},
		{"web page", text(200, "text/html", "<html>please sign in</html>"), kube.NotAPI, []string{"or a proxy in between"}},
		{"half a list", text(200, "application/json", `{"kind":"ServiceList","apiVersion":"v1","items":[{"metadata":`), kube.NotAPI, nil},
		{"no list", text(200, "application/json", `{"hello": "world"}`), kube.NotAPI, nil},
		{"not protobuf", text(200, "application/vnd.kubernetes.protobuf", "k8s\x00\xff\xff\xff"), kube.NotAPI, nil},
		{"nothing at all", text(200, "application/json", ""), kube.NotAPI, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			s.play("services", fail(422, metav1.StatusReasonInvalid, "no streams"), tt.answer)
			src, out, _ := s.follow("{}")
			p := trouble(t, src, tt.reason)
			mentions(t, p.Err, append(tt.words, "list services: ")...)
			if p.Synced || p.Since.IsZero() {
				t.Errorf("progress %+v", p)
			}
			s.play("services", s.has("9", wire("web", "10.96.0.1", "5")))
			expect(t, out, "state complete", "service shop/web = kube[10.96.0.1]")
			until(t, "end of the outage", func() bool { return src.Progress()["services"].Err == nil })
		})
	}
}

// Where lists are allowed and watches are not, the trouble does not end with each
// list, and the log is not told each time.
func TestWatchForbidden(t *testing.T) {
	s := newServer(t)
	no := fail(403, metav1.StatusReasonForbidden, `cannot watch resource "services"`)
	s.play("services", no, listOf("9", wire("web", "10.96.0.1", "5")), no, no, listOf("9", wire("web", "10.96.0.1", "5")), no)
	src, out, logs := s.follow("{}")
	expect(t, out, "state complete", "service shop/web = kube[10.96.0.1]")
	until(t, "the second round", func() bool { return len(s.requests("services")) >= 6 })
	p := trouble(t, src, kube.Forbidden)
	mentions(t, p.Err, "lacks the verb watch for services")
	if !apierrors.IsForbidden(p.Err) {
		t.Error("the error of client-go is not wrapped")
	}
	if n := logs.Len(); n != 1 {
		t.Errorf("%d log lines, want 1: %v", n, logs.All())
	}
}

// A server that asks to wait is obeyed; client-go does, and Progress tells.
func TestRetryAfter(t *testing.T) {
	for name, code := range map[string]int{"429": 429, "503": 503} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			var asked time.Time
			seen := make(chan struct{})
			s.play("services", fail(422, metav1.StatusReasonInvalid, "no streams"), func(w http.ResponseWriter, r *http.Request) {
				asked = time.Now()
				w.Header().Set("Retry-After", "1")
				text(code, "text/plain", "wait")(w, r)
			}, func(w http.ResponseWriter, r *http.Request) {
				if pause := time.Since(asked); pause < 900*time.Millisecond {
					t.Errorf("asked again after %s", pause)
				}
				onceClosed(seen, listOf("9", wire("web", "10.96.0.1", "5")))(w, r)
			}, s.stay)
			src, out, logs := s.follow("{}")
			trouble(t, src, map[int]kube.Reason{429: kube.Busy, 503: kube.ServerError}[code])
			close(seen)
			expect(t, out, "state complete", "service shop/web = kube[10.96.0.1]")
			until(t, "end of the outage", func() bool { return logs.FilterMessage("the API server answers again").Len() == 1 })
			if diff := cmp.Diff([]string{`stream rv=""`, `list rv="0"`, `list rv="0"`, `watch rv="9"`}, s.requests("services")); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

// A watch that breaks, in whatever way, is begun again where it stood.
func TestWatchBreaks(t *testing.T) {
	tests := []struct {
		name   string
		answer http.HandlerFunc
		reason kube.Reason // empty for what is no trouble
	}{
		{"garbage in between", text(200, "application/json", "<html>"), kube.NotAPI},
		{"ended at once", text(200, "application/json", ""), kube.Other},
		{"internal error", events("ERROR", status(500, metav1.StatusReasonInternalError, "watch cache is not ready")), kube.ServerError},
		{"429", fail(429, metav1.StatusReasonTooManyRequests, "too many watches"), kube.Busy},
		{"an object of another kind", events("ADDED", &corev1.Pod{TypeMeta: typeOf("v1", "Pod")}), kube.NotAPI},
		{"connection reset", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			s.play("services", then(events("ADDED", wire("web", "10.96.0.1", "5")), s.end("9")), tt.answer)
			src, out, _ := s.follow("{}")
			if tt.reason != "" {
				trouble(t, src, tt.reason)
			}
			expect(t, out, "state complete", "service shop/web = kube[10.96.0.1]")
			s.play("services", func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Get("sendInitialEvents") != "" {
					s.stream("30", wire("web", "10.96.0.2", "20"))(w, r)
					return
				}
				event(w, "MODIFIED", wire("web", "10.96.0.2", "20"))
				s.stay(w, r)
			})
			expect(t, out, "state complete", "service shop/web = kube[10.96.0.2]")
		})
	}
}

// A token file may be rotated under us: after a 401 it is read again.
func TestTokenRotates(t *testing.T) {
	s := newServer(t)
	token := file(t, "token", "old")
	s.play("services", func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer new":
			fail(401, metav1.StatusReasonUnauthorized, "Unauthorized")(w, r)
		case r.URL.Query().Get("watch") == "":
			listOf("9", wire("web", "10.96.0.1", "5"))(w, r)
		default:
			s.stream("9", wire("web", "10.96.0.1", "5"))(w, r)
		}
	})
	src, out, _ := s.follow("{tokenFile: " + token + "}")
	trouble(t, src, kube.Unauthorized)
	mustDo(t, os.WriteFile(token, []byte("new\n"), 0o600))
	expect(t, out, "state complete", "service shop/web = kube[10.96.0.1]")
}

// A plain list in pages, as a server without watch cache sends it.
func TestPages(t *testing.T) {
	s := newServer(t)
	page := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("continue") == "" {
			text(200, "application/json", `{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"9","continue":"x"},"items":[{"metadata":{"namespace":"shop","name":"a"},"spec":{"clusterIP":"10.96.0.1"}}]}`)(w, r)
			return
		}
		listOf("9", wire("b", "10.96.0.2", "5"))(w, r)
	}
	s.play("services", fail(422, metav1.StatusReasonInvalid, "no streams"), page, page, s.stay)
	_, out, _ := s.follow("{}")
	expect(t, out, "state complete", "service shop/a = kube[10.96.0.1]", "service shop/b = kube[10.96.0.2]")
	until(t, "the watch", func() bool { return slices.Contains(s.requests("services"), `watch rv="9"`) })
	if got := s.requests("services"); len(strings.Split(strings.Join(got, ","), "list")) != 3 {
		t.Errorf("requests %q", got)
	}
}
