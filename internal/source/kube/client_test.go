package kube_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/source/kube"
)

// Each message names the file and what to do.
func TestNewClientErrors(t *testing.T) {
	const rest = "\nkind: Config\napiVersion: v1\n"
	ca := authority(t, newServer(t).Server)
	config := func(server, ca, user string) func(t *testing.T) string {
		return func(t *testing.T) string { return kubeconfig(t, server, ca, user) }
	}
	written := func(text string) func(t *testing.T) string {
		return func(t *testing.T) string { return file(t, "kubeconfig", text) }
	}
	const good = "https://192.0.2.1:6443"
	tests := []struct {
		name   string
		path   func(t *testing.T) string
		master string
		words  []string
	}{
		{"missing", func(t *testing.T) string { return filepath.Join(t.TempDir(), "kubeconfig") }, "", []string{"kubeconfig", "no such file", "give --kubeconfig a file"}},
		{"directory", func(t *testing.T) string { return t.TempDir() }, "", []string{"is a directory", "give --kubeconfig a file"}},
		{"not YAML", written("{{{"), "", []string{"kubeconfig", "it is not the YAML or JSON"}},
		{"another kind", written("kind: Pod\napiVersion: v1"), "", []string{"kubeconfig", "it is not the YAML or JSON of a kubeconfig"}},
		{"empty", written(""), "", []string{"names no cluster", "is it the right file?"}},
		{"no current context", written("clusters: [{name: a, cluster: {server: 'https://a'}}]" + rest), "", []string{"has no current-context", "kubectl config use-context"}},
		{"context missing", written("current-context: x\nclusters: [{name: a, cluster: {server: 'https://a'}}]" + rest), "", []string{`no context "x"`, "kubectl config use-context"}},
		{"cluster missing", written("current-context: x\ncontexts: [{name: x, context: {cluster: b}}]\nclusters: [{name: a, cluster: {server: 'https://a'}}]" + rest), "", []string{`no cluster "b"`, `context "x"`}},
		{"user missing", written("current-context: x\ncontexts: [{name: x, context: {cluster: a, user: u}}]\nclusters: [{name: a, cluster: {server: 'https://a'}}]" + rest), "", []string{`no user "u"`}},
		{"CA missing", config(good, "/nowhere/ca.crt", "{}"), "", []string{"certificate-authority", "/nowhere/ca.crt", "no such file", "put the file there"}},
		{"CA garbage", func(t *testing.T) string { return kubeconfig(t, good, file(t, "bad.crt", "hello"), "{}") }, "", []string{"bad.crt", "no certificate in PEM form", "copy the cluster's ca.crt"}},
		{"CA empty", func(t *testing.T) string { return kubeconfig(t, good, file(t, "empty.crt", ""), "{}") }, "", []string{"empty.crt", "no certificate in PEM form"}},
		{"token missing", config(good, ca, "{tokenFile: /nowhere/token}"), "", []string{"/nowhere/token", "no such file"}},
		{"token empty", func(t *testing.T) string { return kubeconfig(t, good, ca, "{tokenFile: "+file(t, "token", "\n")+"}") }, "", []string{"token", "the file is empty"}},
		{"client certificate missing", config(good, ca, "{client-certificate: /nowhere/c, client-key: /nowhere/k}"), "", []string{"/nowhere/c"}},
		{"client certificate garbage", func(t *testing.T) string {
			bad := file(t, "bad.pem", "hello")
			return kubeconfig(t, good, ca, "{client-certificate: "+bad+", client-key: "+bad+"}")
		}, "", []string{"bad.pem", "belong together"}},
		{"no server", config("", ca, "{}"), "", []string{`no server found for cluster "here"`, "correct what it names"}},
		{"server of another scheme", config("ftp://192.0.2.1", ca, "{}"), "", []string{`scheme "ftp"`, "write https://HOST:PORT"}},
		{"server without host", config("https://", ca, "{}"), "", []string{"names no host"}},
		{"server with spaces", config("https://my server", ca, "{}"), "", []string{"write https://HOST:PORT"}},
		{"master without host", config(good, ca, "{}"), "https://:6443", []string{"--master", "names no host"}},
		{"master alone", func(*testing.T) string { return "" }, "ftp://x", []string{"--master", `scheme "ftp"`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := tt.path(t)
			_, err := kube.NewClient(kube.ClientOptions{Kubeconfig: path, Master: tt.master})
			mentions(t, err, tt.words...)
			if tt.master == "" && !strings.Contains(err.Error(), path) {
				t.Errorf("error %q does not name %s", err, path)
			}
		})
	}
}

func TestUnreadableKubeconfig(t *testing.T) {
	path := kubeconfig(t, "https://192.0.2.1:6443", "", "{}")
	mustDo(t, os.Chmod(path, 0))
	if _, err := os.ReadFile(path); err == nil {
		t.Skip("root reads files of mode 0")
	}
	_, err := kube.NewClient(kube.ClientOptions{Kubeconfig: path})
	mentions(t, err, path, "permission denied", "make it readable")
}

func TestNoCluster(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := kube.NewClient(kube.ClientOptions{}); !errors.Is(err, kube.ErrNoCluster) {
		t.Errorf("error %v", err)
	}
}

// The effects of --master, and of relative paths in a kubeconfig.
func TestNewClient(t *testing.T) {
	s := newServer(t)
	ca := authority(t, s.Server)
	mustDo(t, os.WriteFile(filepath.Join(filepath.Dir(ca), "token"), []byte("t"), 0o600))
	path := filepath.Join(filepath.Dir(ca), "kubeconfig")
	text, err := os.ReadFile(kubeconfig(t, "https://192.0.2.1:1", "ca.crt", "{tokenFile: token}"))
	mustDo(t, err)
	mustDo(t, os.WriteFile(path, text, 0o600))
	client, err := kube.NewClient(kube.ClientOptions{Kubeconfig: path, Master: s.URL, QPS: 100, Burst: 100})
	mustDo(t, err)
	_, out := run(t, client, kube.Options{Node: "here"})
	expect(t, out, "state complete")
}

// A server that sends us elsewhere, as a proxy with a login page does, is followed to no
// other host, for the token would come along.
func TestTokenStaysHere(t *testing.T) {
	for name, user := range map[string]func(*testing.T) string{
		"token":      func(*testing.T) string { return "{token: secret}" },
		"token file": func(t *testing.T) string { return "{tokenFile: " + file(t, "token", "secret") + "}" },
	} {
		t.Run(name, func(t *testing.T) {
			s, other := newServer(t), newServer(t)
			other.play("services", func(w http.ResponseWriter, r *http.Request) {
				t.Errorf("%s followed, with the token: %t", r.Method, r.Header.Get("Authorization") != "")
				other.nothing(w, r)
			})
			s.play("services", func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "Bearer secret" {
					t.Errorf("no token came: %v", r.Header)
				}
				redirect(other.URL+r.URL.Path)(w, r)
			})
			src, _, _ := s.follow(user(t))
			mentions(t, trouble(t, src, kube.NotAPI).Err, "a redirect to "+other.URL, helps)
		})
	}
}
