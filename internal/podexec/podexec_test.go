package podexec_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/kube-ipvs/kube-ipvs/internal/cluster"
	"github.com/kube-ipvs/kube-ipvs/internal/podexec"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/agentapi"
)

// No test leaves a goroutine behind, but for the heartbeat of client-go, which sees up to five
// seconds later that its connection is closed.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("k8s.io/client-go/tools/remotecommand.(*heartbeat).start"))
}

// open is a client of a server.
func open(t *testing.T, s *agentapi.Server, o podexec.Options) *podexec.Client {
	t.Helper()
	o.Namespace, o.Selector, o.Container = "kube-system", "k8s-app=kube-ipvs", "kube-ipvs"
	c, err := podexec.New(&rest.Config{Host: s.URL}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return c
}

// TestDefaultClientStays: settings of a client are its own, and clients can be made at the same time.
func TestDefaultClientStays(t *testing.T) {
	open(t, agentapi.Start(t), podexec.Options{})
	if c := http.DefaultClient; c.CheckRedirect != nil || c.Timeout != 0 {
		t.Errorf("the client of all other packages follows no redirects or has a timeout: %+v", c)
	}
}

// nodes lists the nodes of a client.
func nodes(t *testing.T, c *podexec.Client) []cluster.Node {
	t.Helper()
	list, err := c.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// prints is an agent that prints a text.
func prints(text string) agentapi.Agent {
	return func([]string) agentapi.Answer { return agentapi.Answer{Stdout: text} }
}

// TestNodes: pages are joined, a pod that ends gives way, and a name that is no name is left out.
func TestNodes(t *testing.T) {
	s := agentapi.Start(t,
		agentapi.Pod{Name: "a-old", Node: "a", Ending: true, Created: "2026-03-01T00:00:00Z"}, agentapi.Pod{Name: "b", Node: "b"},
		agentapi.Pod{Name: "a-new", Node: "a"}, agentapi.Pod{Name: "../../secrets", Node: "c"}, agentapi.Pod{Name: "pending", Node: ""},
		agentapi.Pod{Name: "d-older", Node: "d"}, agentapi.Pod{Name: "d-younger", Node: "d", Created: "2026-02-01T00:00:00Z"},
	)
	s.PerPage = 2
	want := []cluster.Node{{Name: "a", Pod: "a-new"}, {Name: "b", Pod: "b"}, {Name: "d", Pod: "d-younger"}}
	if diff := cmp.Diff(want, nodes(t, open(t, s, podexec.Options{}))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(want[1:2], nodes(t, open(t, s, podexec.Options{Node: "b"}))); diff != "" {
		t.Errorf("one node (-want +got):\n%s", diff)
	}
	if _, err := open(t, s, podexec.Options{Node: "z"}).Nodes(t.Context()); err == nil || !strings.Contains(err.Error(), "on node z: choose others with --selector") {
		t.Errorf("no pod: error %v", err)
	}
	s.Denied = "pods is forbidden"
	if _, err := open(t, s, podexec.Options{}).Nodes(t.Context()); err == nil || !strings.Contains(err.Error(), "list the pods of agents in namespace kube-system: pods is forbidden") {
		t.Errorf("no rights: error %v", err)
	}
}

// TestAsk: outputs, exit statuses, and each way in which a node has no answer.
func TestAsk(t *testing.T) {
	long := strings.Repeat("0123456789", 20000)
	answers := map[string]agentapi.Answer{
		"good": {Stdout: "hello", Notes: "warning: x"}, "found": {Status: 1, Stdout: "{}"}, "failed": {Status: 2, Notes: "no agent"}, "long": {Stdout: long},
		"endless": {Endless: true}, "hangs": {Stdout: "half", Hang: true}, "denied": {Refuse: "pods/exec is forbidden"},
	}
	var pods []agentapi.Pod
	for name, a := range answers {
		pods = append(pods, agentapi.Pod{Name: name, Node: name, Agent: func([]string) agentapi.Answer { return a }})
	}
	s := agentapi.Start(t, append(pods, agentapi.Pod{Name: "waits", Node: "waits", Phase: "Pending"})...)
	c := open(t, s, podexec.Options{})
	nodes(t, c)
	for name, tt := range map[string]struct {
		want cluster.Answer
		err  string
	}{
		"good":    {want: cluster.Answer{Out: []byte("hello"), Notes: "warning: x"}},
		"found":   {want: cluster.Answer{Status: 1, Out: []byte("{}")}},
		"failed":  {want: cluster.Answer{Status: 2, Notes: "no agent"}},
		"long":    {want: cluster.Answer{Out: []byte(long)}},
		"endless": {err: "the answer is too large: more than 1048576 bytes"},
		"hangs":   {err: "context deadline exceeded"},
		"denied":  {err: "pods/exec is forbidden"},
		"waits":   {err: "its pod waits is Pending"},
		"unknown": {err: "no pod on node unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			within := 20 * time.Second
			if name == "hangs" {
				within = 300 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			got, err := c.Ask(ctx, cluster.Node{Name: name}, []string{"version"}, 1<<20)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.Status != tt.want.Status || string(got.Out) != string(tt.want.Out) || got.Notes != tt.want.Notes {
				t.Errorf("status %d, %d bytes, notes %q", got.Status, len(got.Out), got.Notes)
			}
		})
	}
}

// TestOldServer: an API server without WebSocket is asked over SPDY.
func TestOldServer(t *testing.T) {
	long := strings.Repeat("0123456789", 20000)
	s := agentapi.Start(t, agentapi.Pod{Name: "a", Node: "a", Agent: func([]string) agentapi.Answer {
		return agentapi.Answer{Status: 1, Stdout: long, Notes: "warning: x"}
	}})
	s.Old = true
	c := open(t, s, podexec.Options{})
	nodes(t, c)
	a, err := c.Ask(t.Context(), cluster.Node{Name: "a"}, []string{"version"}, 1<<20)
	if err != nil || a.Status != 1 || string(a.Out) != long || a.Notes != "warning: x" {
		t.Errorf("status %d, %d bytes, notes %q, error %v", a.Status, len(a.Out), a.Notes, err)
	}
	if _, err := c.Ask(t.Context(), cluster.Node{Name: "a"}, []string{"version"}, 100); err == nil || !strings.Contains(err.Error(), "the answer is too large") {
		t.Errorf("a limit of 100 bytes: error %v", err)
	}
}

// TestNotesAreBounded: of standard error the start is kept.
func TestNotesAreBounded(t *testing.T) {
	s := agentapi.Start(t, agentapi.Pod{Name: "a", Node: "a", Agent: func([]string) agentapi.Answer {
		return agentapi.Answer{Status: 2, Notes: strings.Repeat("e", 100000)}
	}})
	c := open(t, s, podexec.Options{})
	nodes(t, c)
	if a, err := c.Ask(t.Context(), cluster.Node{Name: "a"}, []string{"version"}, 10); err != nil || a.Status != 2 || len(a.Notes) != 4096 {
		t.Errorf("status %d, %d bytes, error %v", a.Status, len(a.Notes), err)
	}
}

// TestCommandLine: a verb gets the settings of the agent, as the kubelet expands them, without its
// sources unless it asks the API server.
func TestCommandLine(t *testing.T) {
	s := agentapi.Start(t, agentapi.Pod{
		Name: "a", Node: "worker-1", Agent: prints("x"), Command: []string{"/usr/local/bin/kube-ipvs"},
		Args: []string{"--config=/c", "--hostname-override=$(NODE_NAME)", "--kubeconfig", "/k", "--source-dir=/m", "--master=http://x", "--x=$(NOPE)$(MODE", "--y=$(MODE)", strings.Repeat("z", 5000)},
		Env: []map[string]any{
			{"name": "NODE_NAME", "valueFrom": map[string]any{"fieldRef": map[string]any{"fieldPath": "spec.nodeName"}}}, {"name": "MODE", "value": "ipvs"},
		},
	}, agentapi.Pod{Name: "b", Node: "worker-2", Agent: prints("x"), Container: "kube-proxy", Args: []string{"--v=2"}})
	c := open(t, s, podexec.Options{})
	for _, n := range nodes(t, c) {
		for _, args := range [][]string{{"diff", "-o", "json"}, {"diff", "--source-dir="}} {
			if _, err := c.Ask(t.Context(), n, args, 100); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := [][]string{
		{"/usr/local/bin/kube-ipvs", "diff", "-o", "json", "--config=/c", "--hostname-override=worker-1", "--x=$(NOPE)$(MODE", "--y=ipvs"},
		{"/usr/local/bin/kube-ipvs", "diff", "--source-dir=", "--config=/c", "--hostname-override=worker-1", "--kubeconfig", "/k", "--master=http://x", "--x=$(NOPE)$(MODE", "--y=ipvs"},
		{"kube-ipvs", "diff", "-o", "json", "--v=2"}, {"kube-ipvs", "diff", "--source-dir=", "--v=2"},
	}
	if diff := cmp.Diff(want, s.Seen()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestPodAddress(t *testing.T) {
	c := open(t, agentapi.Start(t, agentapi.Pod{Name: "web", Node: "a"}), podexec.Options{})
	if a, err := c.PodAddress(t.Context(), "shop", "web"); err != nil || a.String() != "10.244.9.9" {
		t.Errorf("address %s, error %v", a, err)
	}
	for _, name := range []string{"nope", "../x", ""} {
		if _, err := c.PodAddress(t.Context(), "shop", name); err == nil {
			t.Errorf("%q has an address", name)
		}
	}
}

// TestRedirectsAreNotFollowed: a token goes to no other server.
func TestRedirectsAreNotFollowed(t *testing.T) {
	asked := false
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer other.Close()
	here := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusFound))
	defer here.Close()
	c, err := podexec.New(&rest.Config{Host: here.URL, BearerToken: "secret"}, podexec.Options{Namespace: "kube-system", Selector: "a=b"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Nodes(t.Context()); err == nil || asked {
		t.Errorf("error %v, the other server was asked: %t", err, asked)
	}
}

// TestManyNodesBehindOneServer: a question to nodes of all kinds ends, and each has its reason.
func TestManyNodesBehindOneServer(t *testing.T) {
	const version = `{"version":"v0.1.0","goVersion":"go1.26","platform":"linux/amd64"}`
	kinds := []agentapi.Agent{
		prints(version), prints(version), prints(version), prints("<html>"),
		func([]string) agentapi.Answer { return agentapi.Answer{Hang: true} },
		func([]string) agentapi.Answer { return agentapi.Answer{Endless: true} },
	}
	var pods []agentapi.Pod
	for i := range 30 {
		name := fmt.Sprint("worker-", i)
		pods = append(pods, agentapi.Pod{Name: "agent-" + name, Node: name, Agent: kinds[i%len(kinds)]})
	}
	c := open(t, agentapi.Start(t, pods...), podexec.Options{})
	r := cluster.Run(t.Context(), nodes(t, c), c.Ask, &cluster.Versions{}, cluster.Options{Parallel: 8, Deadline: 3 * time.Second})
	if r.Answered != 15 || len(r.Silent) != 15 {
		t.Fatalf("%d answered, %d have not: %+v", r.Answered, len(r.Silent), r.Silent)
	}
	whys := map[string]int{}
	for _, s := range r.Silent {
		for _, why := range []string{"no JSON", "no answer within 3s", "too large"} {
			if strings.Contains(s.Why, why) {
				whys[why]++
			}
		}
	}
	if diff := cmp.Diff(map[string]int{"no JSON": 5, "no answer within 3s": 5, "too large": 5}, whys); diff != "" {
		t.Errorf("reasons (-want +got):\n%s\n%+v", diff, slices.Clone(r.Silent))
	}
}
