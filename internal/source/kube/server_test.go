package kube_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kube-ipvs/kube-ipvs/internal/source/kube"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
)

// server is an API server as a test wants it: each request of a kind goes to its
// script, the last step of which stays. Kinds without a script have nothing in them.
type server struct {
	*httptest.Server
	t  *testing.T
	mu sync.Mutex
	// script has one handler for each request to come, by kind.
	script map[string][]http.HandlerFunc
	asked  map[string][]url.Values
	closed chan struct{}
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{t: t, script: map[string][]http.HandlerFunc{}, asked: map[string][]url.Values{}, closed: make(chan struct{})}
	s.Server = httptest.NewUnstartedServer(s)
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that trust it not are what some tests want
	s.StartTLS()
	t.Cleanup(func() {
		close(s.closed)
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	kind := filepath.Base(r.URL.Path)
	if early(r) {
		kind = "early " + kind
	}
	s.mu.Lock()
	s.asked[kind] = append(s.asked[kind], r.URL.Query())
	step := s.nothing
	if script := s.script[kind]; len(script) > 0 {
		step = script[0]
		if len(script) > 1 {
			s.script[kind] = script[1:]
		}
	}
	s.mu.Unlock()
	step(w, r)
}

// onceClosed answers when the channel is closed: a test that has to see a failure closes it
// afterwards, so that the failure does not end before.
func onceClosed(seen <-chan struct{}, answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-seen:
			answer(w, r)
		case <-r.Context().Done():
		}
	}
}

func (s *server) play(kind string, steps ...http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script[kind] = steps
}

// requests are the queries of a kind, in the words that matter here.
func (s *server) requests(kind string) (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.asked[kind] {
		verb := "list"
		switch {
		case q.Get("sendInitialEvents") == "true":
			verb = "stream"
		case q.Get("watch") != "":
			verb = "watch"
		}
		out = append(out, fmt.Sprintf("%s rv=%q", verb, q.Get("resourceVersion")))
	}
	return out
}

// early tells questions for the API server's own Service.
func early(r *http.Request) bool { return strings.Contains(r.URL.Path, "/namespaces/default/") }

// nothing streams an empty list and stays; of the API server's own Service it knows nothing.
func (s *server) nothing(w http.ResponseWriter, r *http.Request) {
	if early(r) {
		http.NotFound(w, r)
		return
	}
	s.stream("1")(w, r)
}

// stream answers with a streamed list at version rv, and stays open.
func (s *server) stream(rv string, objects ...runtime.Object) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		event(w, "ADDED", objects...)
		event(w, "BOOKMARK", endOfList(r, rv))
		s.stay(w, r)
	}
}

// stay holds a request until the test ends it.
func (s *server) stay(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = http.NewResponseController(w).Flush()
	select {
	case <-r.Context().Done():
	case <-s.closed:
	}
}

// then does one thing after the other.
func then(steps ...http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for _, step := range steps {
			step(w, r)
		}
	}
}

func event(w http.ResponseWriter, kind string, objects ...runtime.Object) {
	w.Header().Set("Content-Type", "application/json")
	for _, o := range objects {
		_ = json.NewEncoder(w).Encode(map[string]any{"type": kind, "object": o})
	}
	_ = http.NewResponseController(w).Flush()
}

func events(kind string, objects ...runtime.Object) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { event(w, kind, objects...) }
}

// endOfList is the bookmark that ends a streamed list of what the request asks for.
func endOfList(r *http.Request, rv string) runtime.Object {
	meta := metav1.ObjectMeta{ResourceVersion: rv, Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}
	return empty(r, meta)
}

func empty(r *http.Request, meta metav1.ObjectMeta) runtime.Object {
	switch filepath.Base(r.URL.Path) {
	case "services":
		return &corev1.Service{TypeMeta: typeOf("v1", "Service"), ObjectMeta: meta}
	case "nodes":
		return &corev1.Node{TypeMeta: typeOf("v1", "Node"), ObjectMeta: meta}
	}
	return &discoveryv1.EndpointSlice{TypeMeta: typeOf("discovery.k8s.io/v1", "EndpointSlice"), ObjectMeta: meta}
}

func typeOf(version, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: version, Kind: kind}
}

// wire is a Service as it goes over the wire.
func wire(name, ip, rv string) *corev1.Service {
	s := web(ip)
	s.TypeMeta, s.Name, s.ResourceVersion = typeOf("v1", "Service"), name, rv
	return s
}

// listOf answers with a plain list.
func listOf(rv string, services ...*corev1.Service) http.HandlerFunc {
	l := corev1.ServiceList{TypeMeta: typeOf("v1", "ServiceList"), ListMeta: metav1.ListMeta{ResourceVersion: rv}}
	for _, s := range services {
		l.Items = append(l.Items, *s)
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(l)
	}
}

// fail answers with an error as the API has them.
func fail(code int, reason metav1.StatusReason, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(status(code, reason, message))
	}
}

func status(code int, reason metav1.StatusReason, message string) *metav1.Status {
	return &metav1.Status{TypeMeta: typeOf("v1", "Status"), Status: "Failure", Code: int32(code), Reason: reason, Message: message}
}

// text answers with something that is not the API.
func text(code int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}
}

// file writes a file of the test and returns its path.
func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	mustDo(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// kubeconfig is one for a server; user is the YAML of its user.
func kubeconfig(t *testing.T, server, ca, user string) string {
	t.Helper()
	return file(t, "kubeconfig", fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: here, user: me}}]
clusters: [{name: here, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: me, user: %s}]
`, server, ca, user))
}

// authority writes the CA of a test server. Text in front of a certificate changes
// nothing but the key under which client-go shares connections between clients.
func authority(t *testing.T, s *httptest.Server) string {
	t.Helper()
	return file(t, "ca.crt", t.Name()+"\n"+string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
}

// clientOf makes a client of the server.
func (s *server) clientOf(user string) *kube.Client {
	s.t.Helper()
	client, err := kube.NewClient(kube.ClientOptions{
		Kubeconfig: kubeconfig(s.t, s.URL, authority(s.t, s.Server), user), QPS: 1000, Burst: 1000,
	})
	mustDo(s.t, err)
	return client
}

// follow runs a source against the server.
func (s *server) follow(user string, before ...func(*kube.Source)) (*kube.Source, *sink, *observer.ObservedLogs) {
	s.t.Helper()
	client := s.clientOf(user)
	core, logs := observer.New(zap.InfoLevel)
	src, out := runWith(s.t, zap.New(core), client, kube.Options{Node: "here"}, append(before, (*kube.Source).Hasten)...)
	return src, out, logs
}

// until waits for a state.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	poll.Until(t, what, is)
}

// trouble waits for services to fail, and returns how.
func trouble(t *testing.T, s *kube.Source, reason kube.Reason) kube.Progress {
	t.Helper()
	until(t, "failure "+string(reason), func() bool { return s.Progress()["services"].Reason == reason })
	return s.Progress()["services"]
}

// mentions fails the test for each word that an error lacks.
func mentions(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want one that mentions %q", words)
	}
	for _, w := range slices.DeleteFunc(words, func(w string) bool { return strings.Contains(err.Error(), w) }) {
		t.Errorf("error %q does not mention %q", err, w)
	}
}
