package kube

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/kube/binaries"
	"github.com/kube-ipvs/kube-ipvs/e2e/kube/cluster"
)

// logWriter sends progress to the test's log.
type logWriter struct{ t *testing.T }

func (w logWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// start returns a control plane that ends with the test, or skips.
func start(t *testing.T, o cluster.Options) cluster.Control {
	t.Helper()
	o.Log = logWriter{t}
	c, err := cluster.Open(t.Context(), o)
	if errors.Is(err, binaries.ErrNotBuilt) && os.Getenv("KUBE_IPVS_E2E_KUBE") != "1" {
		t.Skip("needs kube-apiserver and etcd: go run ./e2e/kube/build makes them once, KUBE_IPVS_E2E_KUBE=1 makes their absence an error")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// kubectl runs kubectl as the administrator; its failure ends the test.
func kubectl(t *testing.T, c cluster.Control, args ...string) string {
	t.Helper()
	out, err := c.Kubectl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

const objects = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  type: NodePort
  ipFamilyPolicy: RequireDualStack
  ports: [{name: http, port: 80, protocol: TCP}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
endpoints: [{addresses: [10.244.1.5], nodeName: node-1, conditions: {ready: true}}]
ports: [{name: http, port: 8080, protocol: TCP}]
---
apiVersion: v1
kind: Node
metadata: {name: node-1, labels: {topology.kubernetes.io/zone: a}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: agent, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: agent}
rules: [{apiGroups: [""], resources: [services], verbs: [list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: agent}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: agent}
subjects:
- {kind: ServiceAccount, name: agent, namespace: default}
- {kind: User, name: visitor, apiGroup: rbac.authorization.k8s.io}
`

// TestControlPlane is one story, because a start takes seconds: objects, identities, and what comes back after each failure.
func TestControlPlane(t *testing.T) {
	c := start(t, cluster.Options{})
	if err := c.Apply(t.Context(), objects); err != nil {
		t.Fatal(err)
	}
	checkVersion(t, c)
	old := kubectl(t, c, "get", "service/web", "--output=jsonpath={.metadata.resourceVersion}")
	kubectl(t, c, "label", "service/web", "changed=yes")
	want := checkService(t, c)
	t.Run("identities", func(t *testing.T) { testIdentities(t, c) })
	failures := []struct {
		name string
		stop func(context.Context) error
	}{
		{"stopped as for an upgrade", c.StopAPIServer},
		{"killed", c.KillAPIServer},
		{"killed while it hung", func(ctx context.Context) error { return errors.Join(c.PauseAPIServer(ctx), c.KillAPIServer(ctx)) }},
		{"killed with its store", func(ctx context.Context) error {
			return errors.Join(c.KillAPIServer(ctx), c.StopEtcd(ctx), c.StartEtcd(ctx))
		}},
	}
	if testing.Short() {
		failures = failures[:1]
	}
	for _, failure := range failures {
		t.Run(failure.name, func(t *testing.T) {
			if err := failure.stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			if out, err := c.Kubectl(t.Context(), "get", "services"); err == nil {
				t.Fatalf("without an API server there is an answer: %s", out)
			}
			if err := c.StartAPIServer(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := checkService(t, c); got != want {
				t.Errorf("the Service is now\n%s\nand was\n%s", got, want)
			}
		})
	}
	t.Run("many at once, and one behind its back", func(t *testing.T) { testStore(t, c) })
	t.Run("hangs and goes on", func(t *testing.T) { testPause(t, c) })
	t.Run("drops old revisions", func(t *testing.T) { testForgetting(t, c, old) })
}

func checkVersion(t *testing.T, c cluster.Control) {
	t.Helper()
	var version struct {
		ClientVersion, ServerVersion struct {
			GitVersion string `json:"gitVersion"`
		}
	}
	if err := json.Unmarshal([]byte(kubectl(t, c, "version", "--output=json")), &version); err != nil {
		t.Fatal(err)
	}
	if server, client := version.ServerVersion.GitVersion, version.ClientVersion.GitVersion; server != binaries.Kubernetes || client != server {
		t.Errorf("kube-apiserver says %q and kubectl %q, want %s", server, client, binaries.Kubernetes)
	}
}

// checkService asks for everything that was applied, checks what the API server chose, and returns it.
func checkService(t *testing.T, c cluster.Control) string {
	t.Helper()
	text := kubectl(t, c, "get", "service/web", "--output=jsonpath={.spec.clusterIPs[0]} {.spec.clusterIPs[1]} {.spec.ports[0].nodePort} {.metadata.uid}")
	fields := strings.Fields(text)
	if len(fields) != 4 {
		t.Fatalf("the Service has %q, want two cluster IPs, a node port and a UID", text)
	}
	for i, cidr := range []string{"10.96.0.0/16", "fd00:10:96::/112"} {
		if addr, err := netip.ParseAddr(fields[i]); err != nil || !netip.MustParsePrefix(cidr).Contains(addr) {
			t.Errorf("cluster IP %s is not in %s: %v", fields[i], cidr, err)
		}
	}
	if port, err := strconv.Atoi(fields[2]); err != nil || port < 30000 || port > 32767 {
		t.Errorf("node port %s, want one of 30000-32767: %v", fields[2], err)
	}
	if got := kubectl(t, c, "get", "endpointslice/web-1", "--output=jsonpath={.endpoints[0].addresses[0]}"); got != "10.244.1.5" {
		t.Errorf("the endpoint slice holds %q, want 10.244.1.5", got)
	}
	if got := kubectl(t, c, "get", "node/node-1", "--output=jsonpath={.metadata.labels.topology\\.kubernetes\\.io/zone}"); got != "a" {
		t.Errorf("the node is in zone %q, want a", got)
	}
	return text
}

// testIdentities asks as clients of every kind; two of them may list Services and do nothing else.
func testIdentities(t *testing.T, c cluster.Control) {
	token, err := c.Token(t.Context(), "default", "agent")
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, resource, wantBody string
		who                      cluster.Identity
		want                     int
	}{
		{name: "ServiceAccount, allowed", who: cluster.Identity{Token: token}, resource: "services", want: 200, wantBody: `"name":"web"`},
		{name: "ServiceAccount, not allowed", who: cluster.Identity{Token: token}, resource: "nodes", want: 403, wantBody: "system:serviceaccount:default:agent"},
		{name: "certificate, allowed", who: cluster.Identity{User: "visitor"}, resource: "services", want: 200, wantBody: `"name":"web"`},
		{name: "certificate, not allowed", who: cluster.Identity{User: "visitor"}, resource: "nodes", want: 403, wantBody: "visitor"},
		{name: "administrator", who: cluster.Admin, resource: "nodes", want: 200, wantBody: `"name":"node-1"`},
		{name: "stranger", who: cluster.Identity{User: "stranger"}, resource: "services", want: 403, wantBody: "stranger"},
		{name: "bad token", who: cluster.Identity{Token: token + "x"}, resource: "services", want: 401},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if status, body := list(t, c, tt.who, tt.resource); status != tt.want || !strings.Contains(body, tt.wantBody) {
				t.Errorf("%s: status %d, want %d and %q in\n%s", tt.resource, status, tt.want, tt.wantBody, body)
			}
		})
	}
}

// testStore makes what kubectl is slow at, and takes one away in etcd while the API server is down.
func testStore(t *testing.T, c cluster.Control) {
	const list = `{"apiVersion": "v1", "kind": "List", "items": [
	{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "default"}, "spec": {"ports": [{"port": 80}]}},
	{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "b", "namespace": "default"}, "spec": {"ports": [{"port": 80}]}}]}`
	if err := c.Create(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	replaceEndpoints(t, c)
	steps := errors.Join(c.KillAPIServer(t.Context()), c.DeleteStored(t.Context(), "services/specs", "default", "a"), c.StartAPIServer(t.Context()))
	if steps != nil {
		t.Fatal(steps)
	}
	if got := kubectl(t, c, "get", "services", "--output=name"); strings.Contains(got, "/a\n") || !strings.Contains(got, "/b\n") {
		t.Errorf("Services a and b were made and a was deleted, but there are\n%s", got)
	}
}

// replaceEndpoints gives an endpoint two other addresses, one after the other.
func replaceEndpoints(t *testing.T, c cluster.Control) {
	const list = `{"apiVersion": "v1", "kind": "List", "items": [
	{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "b-1", "namespace": "default"}, "addressType": "IPv4",
		"endpoints": [{"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2"]}]}]}`
	err := c.Create(t.Context(), list)
	for i, address := range []string{"10.0.0.3", "10.0.0.4"} {
		second := cluster.Replacement{Namespace: "default", Slice: "b-1", Endpoint: 1, Address: address}
		if err = errors.Join(err, c.Replace(t.Context(), []cluster.Replacement{second}, 10)); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Replaced(t.Context()); err != nil || n != 1 {
			t.Errorf("Replaced = %d, %v after %d, want 1", n, err, i+1)
		}
	}
	if got := kubectl(t, c, "get", "endpointslice", "b-1", "--output=jsonpath={.endpoints[*].addresses[*]}"); got != "10.0.0.1 10.0.0.4" {
		t.Errorf("the slice has endpoints %s", got)
	}
}

func testPause(t *testing.T, c cluster.Control) {
	if err := c.PauseAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if out, err := c.Kubectl(ctx, "get", "services"); err == nil {
		t.Errorf("a paused API server answered: %s", out)
	}
	if err := c.ResumeAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkService(t, c)
}

// testForgetting requires "410 Gone" for a watch from before the last restart, and for a list from before a compaction.
func testForgetting(t *testing.T, c cluster.Control, old string) {
	watch := "/api/v1/services?watch=1&timeoutSeconds=5&resourceVersion=" + old
	if out, err := c.Kubectl(t.Context(), "get", "--raw="+watch); !strings.Contains(out, `"code":410`) {
		t.Errorf("watch from %s, before a restart: %q, %v, want 410 Gone", old, out, err)
	}
	list := "/api/v1/services?resourceVersionMatch=Exact&resourceVersion=" + old
	if out := kubectl(t, c, "get", "--raw="+list); strings.Contains(out, "changed") {
		t.Errorf("list at %s shows what came later: %s", old, out)
	}
	revision, err := c.Compact(t.Context())
	if before, _ := strconv.ParseInt(old, 10, 64); err != nil || revision <= before {
		t.Fatalf("compacted at %d, which is not after %s: %v", revision, old, err)
	}
	if out, err := c.Kubectl(t.Context(), "get", "--raw="+list); err == nil || !strings.Contains(err.Error(), "too old") {
		t.Errorf("list at %s, before the compaction: %q, %v, want 410 Gone", old, out, err)
	}
}
