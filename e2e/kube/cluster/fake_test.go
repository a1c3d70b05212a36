package cluster

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/e2e/kube/binaries"
)

// TestMain lets this test binary be the programs of a control plane as well: its name selects the program.
// The fakes are as much of the real ones as starting, asking and stopping them needs.
func TestMain(m *testing.M) {
	var err error
	switch filepath.Base(os.Args[0]) {
	case "etcd":
		err = fakeEtcd()
	case "kube-apiserver":
		err = fakeAPIServer()
	case "kubectl":
		err = fakeKubectl()
	case "starter":
		err = startAndHang()
	default:
		os.Exit(m.Run())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// fakes are three names of this binary.
func fakes(t *testing.T) binaries.Set {
	t.Helper()
	return binaries.Set{Etcd: fake(t, "etcd"), APIServer: fake(t, "kube-apiserver"), Kubectl: fake(t, "kubectl")}
}

// fake gives this binary another name.
func fake(t *testing.T, name string) string {
	t.Helper()
	t.Setenv("GORACE", "atexit_sleep_ms=0") // the race detector would sleep a second at each exit
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(self, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// argument returns the value of a flag of this process.
func argument(name string) string {
	for _, arg := range os.Args {
		if value, ok := strings.CutPrefix(arg, "--"+name+"="); ok {
			return value
		}
	}
	return ""
}

func fakeEtcd() error {
	mux := http.NewServeMux()
	mux.HandleFunc("/health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/v3/maintenance/status", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"header":{"revision":"42"}}`)
	})
	mux.HandleFunc("/v3/kv/deleterange", func(w http.ResponseWriter, r *http.Request) {
		var asked struct{ Key []byte }
		if json.NewDecoder(r.Body).Decode(&asked) == nil && string(asked.Key) == "/registry/services/specs/ns/web" {
			_, _ = io.WriteString(w, `{"deleted":"1"}`)
			return
		}
		_, _ = io.WriteString(w, "{}") // as etcd does for none
	})
	mux.HandleFunc("/v3/kv/compaction", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") })
	return http.ListenAndServe(strings.TrimPrefix(argument("listen-client-urls"), "http://"), mux)
}

// fakeAPIServer answers when its store does, as the real one.
func fakeAPIServer() error {
	if reason := argument("fail"); reason != "" {
		return fmt.Errorf("cannot start: %s", reason)
	}
	ready := func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch {
			fakePatch(w, r)
			return
		}
		if err := get(r.Context(), http.DefaultClient, argument("etcd-servers")+"/health"); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}
	server := http.Server{
		Addr:      argument("bind-address") + ":" + argument("secure-port"),
		Handler:   http.HandlerFunc(ready),
		TLSConfig: &tls.Config{ClientAuth: tls.RequireAnyClientCert},
	}
	return server.ListenAndServeTLS(argument("tls-cert-file"), argument("tls-private-key-file"))
}

// fakePatch takes the one patch that tests send.
func fakePatch(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	const path, want = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices/web", `[{"op":"replace","path":"/endpoints/2/addresses","value":["10.0.0.9"]}]`
	if err != nil || r.URL.Path != path || string(body) != want {
		http.Error(w, fmt.Sprintf("%s: %s, %v", r.URL, body, err), http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice"}`)
}

// startAndHang starts what it was told to, with its output in a file, and waits to be killed.
func startAndHang() error {
	p := &process{path: os.Args[2], args: os.Args[3:], log: os.Args[1]}
	if err := p.start(); err != nil {
		return err
	}
	<-p.ended()
	return nil
}

// fakeKubectl prints what it was given.
func fakeKubectl() error {
	input, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	args := strings.Join(os.Args[3:], " ") // after --kubeconfig and --cache-dir
	if strings.HasPrefix(args, "fail") {
		return fmt.Errorf("refused")
	}
	fmt.Printf("%s|%s", args, input)
	os.Exit(0)
	return nil
}
