package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
func start(t *testing.T, o cluster.Options) *cluster.Cluster {
	t.Helper()
	o.Log = logWriter{t}
	c, err := cluster.Start(t.Context(), o)
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
func kubectl(t *testing.T, c *cluster.Cluster, args ...string) string {
	t.Helper()
	out, err := c.Kubectl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// as runs kubectl with somebody's kubeconfig.
func as(t *testing.T, c *cluster.Cluster, who cluster.Identity, args ...string) (string, error) {
	t.Helper()
	text, err := c.Kubeconfig(who, netip.Addr{})
	if err != nil {
		t.Fatal(err)
	}
	path := t.TempDir() + "/kubeconfig"
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return c.Kubectl(t.Context(), append(args, "--kubeconfig="+path)...)
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
- {kind: User, name: somebody, apiGroup: rbac.authorization.k8s.io}
`

// TestControlPlane is one story, because a start takes seconds: objects, identities, and what comes back after each failure.
func TestControlPlane(t *testing.T) {
	c := start(t, cluster.Options{})
	if err := c.Apply(t.Context(), objects); err != nil {
		t.Fatal(err)
	}
	checkVersion(t, c)
	want := checkService(t, c)
	t.Run("identities", func(t *testing.T) { testIdentities(t, c) })
	for _, failure := range []struct {
		name string
		stop func() error
	}{
		{"stopped as for an upgrade", c.StopAPIServer},
		{"killed", c.KillAPIServer},
		{"killed while it hung", func() error { return errors.Join(c.PauseAPIServer(), c.KillAPIServer()) }},
		{"killed with its store", func() error { return errors.Join(c.KillAPIServer(), c.StopEtcd(), c.StartEtcd(t.Context())) }},
	} {
		t.Run(failure.name, func(t *testing.T) {
			if err := failure.stop(); err != nil {
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
	t.Run("hangs and goes on", func(t *testing.T) { testPause(t, c) })
	t.Run("forgets what was", func(t *testing.T) { testCompact(t, c) })
}

func checkVersion(t *testing.T, c *cluster.Cluster) {
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
func checkService(t *testing.T, c *cluster.Cluster) string {
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

// testIdentities asks as two clients that may list Services and do nothing else.
func testIdentities(t *testing.T, c *cluster.Cluster) {
	token, err := c.Token(t.Context(), "default", "agent")
	if err != nil {
		t.Fatal(err)
	}
	for name, who := range map[string]cluster.Identity{
		"ServiceAccount": {Token: token},
		"certificate":    {User: "somebody"},
	} {
		if out, err := as(t, c, who, "get", "services"); err != nil || !strings.Contains(out, "web") {
			t.Errorf("%s: services: %v\n%s", name, err, out)
		}
		if out, err := as(t, c, who, "get", "nodes"); err == nil || !strings.Contains(err.Error(), "forbidden") {
			t.Errorf("%s: nodes: %v, want a refusal\n%s", name, err, out)
		}
	}
	if _, err := as(t, c, cluster.Identity{User: "stranger"}, "get", "services"); err == nil || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("stranger: services: %v, want a refusal", err)
	}
}

func testPause(t *testing.T, c *cluster.Cluster) {
	if err := c.PauseAPIServer(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if out, err := c.Kubectl(ctx, "get", "services"); err == nil {
		t.Errorf("a paused API server answered: %s", out)
	}
	if err := c.ResumeAPIServer(); err != nil {
		t.Fatal(err)
	}
	checkService(t, c)
}

// testCompact wants "410 Gone", in kubectl's words, for a watch from before the compaction.
func testCompact(t *testing.T, c *cluster.Cluster) {
	before := strings.TrimSpace(kubectl(t, c, "get", "--raw=/api/v1/services?limit=1"))
	kubectl(t, c, "label", "service/web", "changed=yes")
	revision, err := c.Compact(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.KillAPIServer(), c.StartAPIServer(t.Context())); err != nil {
		t.Fatal(err)
	}
	var list struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal([]byte(before), &list); err != nil {
		t.Fatal(err)
	}
	old, err := strconv.ParseInt(list.Metadata.ResourceVersion, 10, 64)
	if err != nil || revision <= old {
		t.Fatalf("compacted at %d, which is not after %d: %v", revision, old, err)
	}
	watch := fmt.Sprintf("/api/v1/services?watch=1&timeoutSeconds=5&resourceVersion=%d", old)
	out, err := c.Kubectl(t.Context(), "get", "--raw="+watch)
	if !strings.Contains(fmt.Sprint(out, err), "too old resource version") {
		t.Errorf("watch from %d: %q, %v, want 410 Gone", old, out, err)
	}
	checkService(t, c)
}
