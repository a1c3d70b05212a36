// Package agentapi is an API server for tests that has nothing but the pods of agents. It lists them and
// answers exec with recorded answers of verbs, over WebSocket (v5.channel.k8s.io) or SPDY.
package agentapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/gorilla/websocket"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// Answer is what a verb prints in a pod, and its exit status.
type Answer struct {
	Status        int
	Stdout, Notes string
	// Hang leaves the verb without an end; Endless has it print without an end.
	Hang, Endless bool
	// Refuse is the message of an API server that does not start the verb.
	Refuse string
}

// An Agent answers the command line of a verb, the program left out.
type Agent func(args []string) Answer

// Pod is a pod of an agent.
type Pod struct {
	Name, Node string
	Phase      string // empty: Running
	Agent      Agent
	// Command, Args and Env are those of the container.
	Command, Args []string
	Env           []map[string]any
	// Container is the name of the only container; without it there are a sidecar and kube-ipvs.
	Container string
	// Ending has the pod about to end, and Created is its age in RFC 3339.
	Ending  bool
	Created string
}

// Server is the API server.
type Server struct {
	*httptest.Server
	// Pods are listed in their order, PerPage on each page; 0 is all.
	Pods    []Pod
	PerPage int
	// Denied is the message with which a list is refused.
	Denied string
	// Old has the server refuse WebSocket, and speak SPDY alone.
	Old bool

	mu   sync.Mutex
	seen [][]string
	ends chan struct{}
}

// Start runs a server until the test ends.
func Start(t testing.TB, pods ...Pod) *Server {
	t.Helper()
	s := &Server{Pods: pods, ends: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/namespaces/{ns}/pods", s.list)
	mux.HandleFunc("GET /api/v1/namespaces/{ns}/pods/{pod}", s.one)
	mux.HandleFunc("/api/v1/namespaces/{ns}/pods/{pod}/exec", s.exec)
	s.Server = httptest.NewServer(mux)
	t.Cleanup(func() {
		close(s.ends)
		s.Close()
	})
	return s
}

// Kubeconfig writes a kubeconfig for the server and returns its path.
func (s *Server) Kubeconfig(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: test
clusters: [{name: test, cluster: {server: %q}}]
users: [{name: test, user: {token: secret}}]
contexts: [{name: test, context: {cluster: test, user: test, namespace: shop}}]
`, s.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Seen returns the command lines of all verbs so far.
func (s *Server) Seen() [][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([][]string{}, s.seen...)
}

// encoded is a pod as the API has it.
func (p Pod) encoded(namespace string) map[string]any {
	meta := map[string]any{"name": p.Name, "namespace": namespace, "creationTimestamp": "2026-01-01T00:00:00Z"}
	if p.Created != "" {
		meta["creationTimestamp"] = p.Created
	}
	if p.Ending {
		meta["deletionTimestamp"] = "2026-01-02T00:00:00Z"
	}
	phase := p.Phase
	if phase == "" {
		phase = "Running"
	}
	containers := []any{map[string]any{"name": "sidecar"}, map[string]any{"name": "kube-ipvs", "command": p.Command, "args": p.Args, "env": p.Env}}
	if p.Container != "" {
		containers = []any{map[string]any{"name": p.Container, "command": p.Command, "args": p.Args, "env": p.Env}}
	}
	return map[string]any{
		"metadata": meta,
		"spec":     map[string]any{"nodeName": p.Node, "containers": containers},
		"status":   map[string]any{"phase": phase, "podIP": "10.244.9.9", "hostIP": "192.0.2.1"},
	}
}

func (s *Server) list(w http.ResponseWriter, req *http.Request) {
	if s.Denied != "" {
		deny(w, http.StatusForbidden, s.Denied)
		return
	}
	first := 0
	_, _ = fmt.Sscan(req.URL.Query().Get("continue"), &first)
	node := strings.TrimPrefix(req.URL.Query().Get("fieldSelector"), "spec.nodeName=")
	list, next := []any{}, ""
	for i := first; i < len(s.Pods); i++ {
		if s.PerPage > 0 && len(list) == s.PerPage {
			next = fmt.Sprint(i)
			break
		}
		if node == "" || node == s.Pods[i].Node {
			list = append(list, s.Pods[i].encoded(req.PathValue("ns")))
		}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"kind": "PodList", "metadata": map[string]any{"continue": next}, "items": list})
}

func (s *Server) find(name string) (Pod, bool) {
	for _, p := range s.Pods {
		if p.Name == name {
			return p, true
		}
	}
	return Pod{}, false
}

func (s *Server) one(w http.ResponseWriter, req *http.Request) {
	p, there := s.find(req.PathValue("pod"))
	if !there {
		deny(w, http.StatusNotFound, "pods \""+req.PathValue("pod")+"\" not found")
		return
	}
	_ = json.NewEncoder(w).Encode(p.encoded(req.PathValue("ns")))
}

// deny answers as an API server refuses.
func deny(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message})
}

// The channels of v5.channel.k8s.io.
const (
	stdout = 1
	stderr = 2
	ending = 3
)

// chunk is how much of an output one message has.
const chunk = 16 << 10

func (s *Server) exec(w http.ResponseWriter, req *http.Request) {
	command := req.URL.Query()["command"]
	if req.Method == http.MethodGet { // a POST is the second try, over SPDY
		s.mu.Lock()
		s.seen = append(s.seen, command)
		s.mu.Unlock()
	}
	p, there := s.find(req.PathValue("pod"))
	if want := cmp.Or(p.Container, "kube-ipvs"); !there || req.URL.Query().Get("container") != want {
		deny(w, http.StatusNotFound, "no such pod or container")
		return
	}
	a := p.Agent(command[1:])
	if a.Refuse != "" {
		deny(w, http.StatusForbidden, a.Refuse)
		return
	}
	if s.Old {
		s.execOld(w, req, a)
		return
	}
	upgrader := websocket.Upgrader{Subprotocols: []string{"v5.channel.k8s.io"}}
	conn, err := upgrader.Upgrade(w, req, nil)
	if err != nil {
		return
	}
	defer conn.Close()
	s.play(conn, a)
}

// play sends an answer.
func (s *Server) play(conn *websocket.Conn, a Answer) {
	gone := make(chan struct{})
	go func() { // answers pings, and sees the client go
		defer close(gone)
		for {
			if _, _, err := conn.NextReader(); err != nil {
				return
			}
		}
	}()
	send := func(channel byte, text string) error {
		for len(text) > 0 {
			n := min(len(text), chunk)
			if err := conn.WriteMessage(websocket.BinaryMessage, append([]byte{channel}, text[:n]...)); err != nil {
				return err
			}
			text = text[n:]
		}
		return nil
	}
	if send(stdout, a.Stdout) != nil || send(stderr, a.Notes) != nil {
		return
	}
	for a.Endless {
		if send(stdout, strings.Repeat("x", chunk)) != nil {
			return
		}
	}
	if a.Hang {
		select {
		case <-gone:
		case <-s.ends:
		}
		return
	}
	_ = send(ending, a.ended())
	_ = conn.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""))
	<-gone
}

// execOld answers over SPDY (v4.channel.k8s.io).
func (s *Server) execOld(w http.ResponseWriter, req *http.Request, a Answer) {
	if req.Method == http.MethodGet {
		deny(w, http.StatusBadRequest, "you must use an HTTP/1.1 SPDY upgrade")
		return
	}
	if _, err := httpstream.Handshake(req, w, []string{"v4.channel.k8s.io"}); err != nil {
		return
	}
	opened := make(chan httpstream.Stream, 3)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, req, func(stream httpstream.Stream, _ <-chan struct{}) error {
		opened <- stream
		return nil
	})
	if conn == nil {
		return
	}
	defer conn.Close()
	streams := map[string]httpstream.Stream{}
	for len(streams) < 3 {
		select {
		case stream := <-opened:
			streams[stream.Headers().Get("streamType")] = stream
		case <-conn.CloseChan():
			return
		}
	}
	for kind, text := range map[string]string{"stdout": a.Stdout, "stderr": a.Notes, "error": a.ended()} {
		if _, err := io.WriteString(streams[kind], text); err != nil {
			return
		}
		_ = streams[kind].Close()
	}
	<-conn.CloseChan()
}

// ended is the last message of a verb: how it ended.
func (a Answer) ended() string {
	status := map[string]any{"status": "Success"}
	if a.Status != 0 {
		status = map[string]any{"status": "Failure", "reason": "NonZeroExitCode", "message": "command terminated", "details": map[string]any{"causes": []any{map[string]any{"reason": "ExitCode", "message": fmt.Sprint(a.Status)}}}}
	}
	text, _ := json.Marshal(status) // a map of strings
	return string(text)
}
