package cluster

import (
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/kube/binaries"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
)

// openBoth returns a control plane of fakes here, and one that a Host on this machine runs.
func openBoth(t *testing.T) map[string]Control {
	t.Helper()
	host := NewHost(HostFromGuest, os.Stderr)
	server := httptest.NewServer(host)
	t.Cleanup(func() {
		server.Close()
		if err := host.Close(); err != nil {
			t.Error(err)
		}
	})
	o := Options{Binaries: fakes(t)}
	controls := map[string]Control{}
	for name, url := range map[string]string{"here": "", "on a host": server.URL + host.Path()} {
		t.Setenv(HostVariable, url)
		c, err := Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		controls[name] = c
	}
	return controls
}

// TestControl holds both kinds to the same promises.
func TestControl(t *testing.T) {
	for name, c := range openBoth(t) {
		t.Run(name, func(t *testing.T) {
			t.Run("kubectl", func(t *testing.T) { testKubectl(t, c) })
			t.Run("replace", func(t *testing.T) { testReplace(t, c) })
			t.Run("life", func(t *testing.T) { testLife(t, c) })
			if revision, err := c.Compact(t.Context()); err != nil || revision != 42 {
				t.Errorf("Compact = %d, %v, want 42", revision, err)
			}
			if err := c.DeleteStored(t.Context(), "services/specs", "ns", "web"); err != nil {
				t.Error(err)
			}
			if err := c.DeleteStored(t.Context(), "services/specs", "ns", "missing"); err == nil || !strings.Contains(err.Error(), "services/specs/ns/missing in etcd: 0 keys") {
				t.Errorf("DeleteStored of what is not there: %v", err)
			}
			if err := c.Create(t.Context(), "kind: Node"); err == nil || !strings.Contains(err.Error(), "read the list") {
				t.Errorf("Create of what is no list: %v", err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			if err := c.StartAPIServer(t.Context()); err == nil {
				t.Error("a closed control plane started again")
			}
		})
	}
}

func testReplace(t *testing.T, c Control) {
	web := Replacement{Namespace: "shop", Slice: "web", Endpoint: 2, Address: "10.0.0.9"}
	wantReplaced := func(want int64) {
		t.Helper()
		if n, err := c.Replaced(t.Context()); err != nil || n != want {
			t.Errorf("Replaced = %d, %v, want %d", n, err, want)
		}
	}
	if err := c.Replace(t.Context(), []Replacement{web, web, web}, 1000); err != nil {
		t.Error(err)
	}
	wantReplaced(3)
	missing := web
	missing.Slice = "missing"
	if err := c.Replace(t.Context(), []Replacement{web, missing, web}, 1000); err == nil || !strings.Contains(err.Error(), "endpoint 2 of slice shop/missing") {
		t.Errorf("Replace in a slice that is not there: %v", err)
	}
	if err := c.Replace(t.Context(), []Replacement{web}, 0); err == nil {
		t.Error("Replace at a rate of nothing goes well")
	}
	testReplaceEnds(t, c, web)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Replace(ended, []Replacement{web}, 1); err != nil {
		t.Errorf("Replace after the end of its context: %v", err)
	}
	wantReplaced(0)
}

// testReplaceEnds ends the context of Replace before all changes are made. Replaced then returns how many were made. On a busy
// machine none may be made in time; the test then tries a longer time.
func testReplaceEnds(t *testing.T, c Control, web Replacement) {
	t.Helper()
	changes := slices.Repeat([]Replacement{web}, 100*500) // 100 s
	for limit := 200 * time.Millisecond; limit < poll.Patience; limit *= 3 {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		err := c.Replace(ctx, changes, 500)
		cancel()
		n, errReplaced := c.Replaced(t.Context())
		if err != nil || errReplaced != nil || n == int64(len(changes)) {
			t.Errorf("Replace until its context ends: %v; Replaced = %d, %v, want less than %d", err, n, errReplaced, len(changes))
			return
		}
		if n > 0 {
			return
		}
	}
	t.Error("Replace made no change until its context ended")
}

func testKubectl(t *testing.T, c Control) {
	if out, err := c.Kubectl(t.Context(), "get", "nodes"); err != nil || out != "get nodes|" {
		t.Errorf("Kubectl = %q, %v", out, err)
	}
	if out, err := c.Kubectl(t.Context(), "fail"); err == nil || !strings.Contains(err.Error(), "kubectl fail: exit status 1: refused") {
		t.Errorf("a failing kubectl gives %q, %v", out, err)
	}
	if err := c.Apply(t.Context(), "kind: Node"); err != nil {
		t.Error(err)
	}
	if got, err := c.Token(t.Context(), "ns", "agent"); err != nil || got != "create token agent --namespace=ns --duration=1h|" {
		t.Errorf("Token = %q, %v", got, err)
	}
	if text, err := c.Kubeconfig(t.Context(), Admin); err != nil || !strings.Contains(string(text), "client-certificate-data") {
		t.Errorf("Kubeconfig = %s, %v", text, err)
	}
}

// testLife relies on a start that waits until the server is ready, so each step that succeeds has shown the one before.
func testLife(t *testing.T, c Control) {
	ctx := t.Context()
	steps := []struct {
		name string
		do   func() error
		fail bool
	}{
		{name: "start a second time", do: func() error { return c.StartAPIServer(ctx) }, fail: true},
		{name: "stop", do: func() error { return c.StopAPIServer(ctx) }},
		{name: "pause what is stopped", do: func() error { return c.PauseAPIServer(ctx) }, fail: true},
		{name: "start", do: func() error { return c.StartAPIServer(ctx) }},
		{name: "pause", do: func() error { return c.PauseAPIServer(ctx) }},
		{name: "resume", do: func() error { return c.ResumeAPIServer(ctx) }},
		{name: "kill", do: func() error { return c.KillAPIServer(ctx) }},
		{name: "stop etcd", do: func() error { return c.StopEtcd(ctx) }},
		{name: "compact without etcd", do: func() error { _, err := c.Compact(ctx); return err }, fail: true},
		{name: "start etcd", do: func() error { return c.StartEtcd(ctx) }},
		{name: "start again", do: func() error { return c.StartAPIServer(ctx) }},
	}
	for _, step := range steps {
		if err := step.do(); (err != nil) != step.fail {
			t.Fatalf("%s: %v, want an error: %t", step.name, err, step.fail)
		}
	}
}

func TestStartThatFails(t *testing.T) {
	dir := t.TempDir()
	c, err := Open(t.Context(), Options{Binaries: fakes(t), Dir: dir, APIServerArgs: []string{"--fail=bad flag"}})
	if err == nil || c != nil || !strings.Contains(err.Error(), "start kube-apiserver: it ended") || !strings.Contains(err.Error(), "cannot start: bad flag") {
		t.Errorf("Open = %v, %v, want the end of the log", c, err)
	}
	if _, err := Open(t.Context(), Options{Port: -1}); err == nil || !strings.Contains(err.Error(), "port -1") {
		t.Errorf("Open with a bad port = %v", err)
	}
}

func TestNotBuilt(t *testing.T) {
	t.Setenv(binaries.Variable, t.TempDir())
	host := NewHost(HostFromGuest, os.Stderr)
	server := httptest.NewServer(host)
	defer server.Close()
	for name, url := range map[string]string{"here": "", "on a host": server.URL + host.Path()} {
		t.Setenv(HostVariable, url)
		if _, err := Open(t.Context(), Options{}); !errors.Is(err, binaries.ErrNotBuilt) {
			t.Errorf("%s: Open = %v, want %v", name, err, binaries.ErrNotBuilt)
		}
	}
}

func TestHostRefuses(t *testing.T) {
	host := NewHost(HostFromGuest, os.Stderr)
	server := httptest.NewServer(host)
	defer server.Close()
	tests := []struct {
		name, path, method, wantErr string
	}{
		{name: "a wrong path", path: "/", method: "kubectl", wantErr: "404"},
		{name: "a cluster that is not there", path: host.Path(), method: "kubectl", wantErr: "no cluster 7"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := &remote{url: server.URL + tt.path, id: 7, http: server.Client()}
			if err := r.change(t.Context(), tt.method); err == nil || !strings.Contains(err.Error(), tt.wantErr) {
				t.Errorf("error = %v, want %q", err, tt.wantErr)
			}
		})
	}
	if err := (&Cluster{}).change(t.Context(), "explode"); err == nil || !strings.Contains(err.Error(), "no method explode") {
		t.Errorf("unknown method: %v", err)
	}
}

func TestOpenInANamespaceStaysHere(t *testing.T) {
	t.Setenv(HostVariable, "http://192.0.2.1/unreachable")
	t.Setenv("KUBE_IPVS_WHERE", "netns")
	c, err := Open(t.Context(), Options{Binaries: fakes(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, ok := c.(*Cluster); !ok {
		t.Errorf("Open gave a %T, want one of this machine", c)
	}
}
