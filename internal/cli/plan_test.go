package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// dryRun is what kubectl create service clusterip new --tcp=80 --dry-run=client -o yaml prints.
const dryRun = `apiVersion: v1
kind: Service
metadata:
  creationTimestamp: null
  labels:
    app: new
  name: new
spec:
  ports:
  - name: "80"
    port: 80
    protocol: TCP
    targetPort: 80
  selector:
    app: new
  type: ClusterIP
status:
  loadBalancer: {}
`

// export is what kubectl get all,endpointslices,nodes -o yaml prints, shortened: one List of all kinds.
const export = `apiVersion: v1
items:
- apiVersion: v1
  kind: Service
  metadata: {creationTimestamp: "2026-01-02T03:04:05Z", name: web, namespace: default, resourceVersion: "7", uid: 3d0c}
  spec: {clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10], newerField: yes, ports: [{port: 80, targetPort: 8080}], type: ClusterIP}
  status: {loadBalancer: {}}
- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {name: web-1, namespace: default, labels: {kubernetes.io/service-name: web}}
  addressType: IPv4
  ports: [{name: "", port: 8080}]
  endpoints: [{addresses: [10.244.0.5]}]
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: web, namespace: default}
- apiVersion: v1
  kind: Node
  metadata: {name: n1, uid: 4e1d}
  status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}
kind: List
metadata: {resourceVersion: ""}
`

// planOf runs plan with standard input.
func planOf(stdin string, args ...string) (out, notes string, code int) {
	var o, n bytes.Buffer
	root := NewRoot()
	root.SetArgs(append([]string{"plan"}, args...))
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&o)
	root.SetErr(&n)
	cmd, err := root.ExecuteC()
	code = report(cmd, err, &n)
	return o.String(), n.String(), code
}

const webServers = "-A -t 10.96.0.10:80 -s rr\n-a -t 10.96.0.10:80 -r 10.244.0.5:8080 -m -w 1\n"

// An export of a cluster is read from a pipe. Objects of other kinds are ignored silently; a field
// that is newer than our types is named, and so is a missing Node.
func TestPlanOfAnExport(t *testing.T) {
	const newer = `standard input: document 1, line 6: Service default/web: items[0].spec.newerField: a field that this version does not know: it is ignored` + "\n"
	for _, args := range [][]string{{"-"}, {"--source-dir", "-"}, {"-", "--source-dir=-"}} {
		out, notes, code := planOf(export, append(args, "--hostname-override=n1", "--show=servers", "--strict")...)
		if code != 0 || out != webServers || notes != newer {
			t.Errorf("%v: status %d, notes %q, got\n%s", args, code, notes, out)
		}
	}
	if _, notes, _ := planOf(export, "-", "--hostname-override=n9"); !strings.Contains(notes, "no Node n9, but n1") {
		t.Errorf("notes %q do not name the Node that is missing", notes)
	}
	if _, notes, code := planOf(export, "-", "--source-dir=."); code != exitFailed || !strings.Contains(notes, "either - or --source-dir") {
		t.Errorf("two sources: status %d, %q", code, notes)
	}
}

// A typing error in a manifest that a person wrote costs the file, as before.
func TestPlanRefusesASlipOfThePen(t *testing.T) {
	_, notes, code := planOf(strings.Replace(dryRun, "  type:", "  tpye:", 1), "-")
	if code != exitFound || !strings.Contains(notes, "spec.tpye: unknown field") {
		t.Errorf("status %d, notes %q", code, notes)
	}
}

func TestPlanAssignsClusterIPs(t *testing.T) {
	out, notes, code := planOf(dryRun, "-", "--show=servers")
	if code != 0 || out != "" || !strings.Contains(notes, "no cluster IP; an API server assigns one: add spec.clusterIP, or try plan --assign-cluster-ips") {
		t.Errorf("status %d, notes %q, got\n%s", code, notes, out)
	}
	both := strings.Replace(manifest, "10.96.0.10", "10.96.0.1", 1) + "---\n" + dryRun
	out, notes, code = planOf(both, "-", "--show=servers", "--strict", "--assign-cluster-ips=10.96.0.0/30,fd00:96::/120")
	want := "-A -t 10.96.0.1:80 -s rr\n-a -t 10.96.0.1:80 -r 10.244.0.5:8080 -m -w 1\n-A -t 10.96.0.2:80 -s rr\n-A -t [fd00:96::1]:80 -s rr\n"
	if code != 0 || out != want || !strings.Contains(notes, "default/new: gets the cluster IP 10.96.0.2 ") {
		t.Errorf("status %d, notes %q, got\n%s", code, notes, out)
	}
	for ranges, want := range map[string]string{"10.96.0.0/32": "has no free address for default/new", "10.96.0.0/24,10.97.0.0/24": "one range of each family", "here": "is not a CIDR"} {
		if _, notes, code := planOf(dryRun, "-", "--assign-cluster-ips="+ranges); code != exitFailed || !strings.Contains(notes, want) {
			t.Errorf("%s: status %d, %q, want %q", ranges, code, notes, want)
		}
	}
}

// Services that are not served are always reported, and fail with --strict. Services that ask not
// to be served are neither reported nor counted.
func TestPlanStrict(t *testing.T) {
	intended := serviceText("db", "clusterIP: None, ports: [{port: 80}]", "") + serviceText("out", "type: ExternalName, externalName: example.org", "") +
		serviceText("lb", "type: LoadBalancer, clusterIP: 10.96.0.11, ports: [{port: 80}]", "") + "status: {loadBalancer: {ingress: [{ip: 203.0.113.1, ipMode: Proxy}]}}\n"
	for _, tt := range []struct {
		name, manifests, says string
		plain, strict         int
	}{
		{"as they ask", manifest + "---\n" + strings.ReplaceAll(intended, "\n---\nstatus", "\nstatus"), "", 0, 0},
		{"a node port without an address", serviceText("np", "type: NodePort, clusterIP: 10.96.0.12, ports: [{port: 80, nodePort: 30080}]", ""), "1 of 1 Services are not served as they ask\n", 0, exitFound},
		{"a conflict", serviceText("a", webSpec, "") + serviceText("b", webSpec, ""), "1 of 2 Services are not served as they ask\n", 0, exitFound},
		{"a cluster IP that is none", serviceText("web", "clusterIP: 10.96.0.256, ports: [{port: 80}]", ""), "Services that cannot be read: 1", exitFound, exitFound},
	} {
		for _, strict := range []bool{false, true} {
			args, want := []string{"-", "--show=servers"}, tt.plain
			if strict {
				args, want = append(args, "--strict"), tt.strict
			}
			_, notes, code := planOf(tt.manifests, args...)
			if code != want || !strings.Contains(notes, tt.says) || strings.Contains(notes, "default/db") || strings.Contains(notes, "ipMode") {
				t.Errorf("%s, strict %t: status %d, want %d, notes\n%s", tt.name, strict, code, want, notes)
			}
		}
	}
}

// apiServerFor is an API server that lists the objects of manifest, a page each, and refuses one kind.
func apiServerFor(t *testing.T, refuse string) (url string) {
	t.Helper()
	var refused atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kind := filepath.Base(r.URL.Path)
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") != "" {
			t.Errorf("%s are watched", kind)
		}
		if kind == refuse {
			if refused.Add(1) > 1 {
				t.Errorf("%s are asked for again", kind)
			}
			w.WriteHeader(http.StatusForbidden)
			_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403,
				"message": kind + " is forbidden: User \"system:node:n1\" cannot list resource"})
			return
		}
		_, _ = io.WriteString(w, clusterPages[kind+r.URL.Query().Get("continue")])
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// clusterPages are the answers of cluster, by kind and continuation.
var clusterPages = map[string]string{
	"services": `{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"9","continue":"2"},"items":[
		{"metadata":{"name":"old","namespace":"default"},"spec":{"clusterIP":"10.96.0.9","ports":[{"port":80}]}}]}`,
	"services2": `{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[
		{"metadata":{"name":"web","namespace":"default"},"spec":{"clusterIP":"10.96.0.10","ports":[{"port":80}]}}]}`,
	"endpointslices": `{"kind":"EndpointSliceList","apiVersion":"discovery.k8s.io/v1","metadata":{"resourceVersion":"9"},"items":[
		{"metadata":{"name":"web-1","namespace":"default","labels":{"kubernetes.io/service-name":"web"}},"addressType":"IPv4","ports":[{"name":"","port":8080}],"endpoints":[{"addresses":["10.244.0.5"]}]}]}`,
	"nodes": `{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"n1"},"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.1"}]}}]}`,
}

// A cluster is listed once, and one right that is missing is the answer at once.
func TestPlanOfACluster(t *testing.T) {
	url := apiServerFor(t, "")
	file := filepath.Join(directory(t, map[string]string{"kubeconfig": "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: '" + url + "'}}]\n" +
		"contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {}}]\ncurrent-context: c\n"}), "kubeconfig")
	dir := directory(t, map[string]string{"new.yaml": strings.Replace(manifest, "10.96.0.10", "10.96.0.11", 1)})
	const old = "-A -t 10.96.0.9:80 -s rr\n"
	for _, args := range [][]string{{"--master", url}, {"--kubeconfig", file}, {"--kubeconfig", file, "--source-dir", dir}} {
		want := webServers + old
		if slices.Contains(args, dir) {
			want = webServers + strings.ReplaceAll(webServers, "10.96.0.10", "10.96.0.11") + old
		}
		out, notes, code := planOf("", append(args, "--hostname-override=n1", "--show=servers")...)
		if code != 0 || sorted(out) != sorted(want) {
			t.Errorf("%v: status %d, notes %q, got\n%s", args, code, notes, out)
		}
	}
	for _, verb := range []string{"plan", "diff"} {
		_, err := try(verb, "--master", apiServerFor(t, "endpointslices"), "--hostname-override=n1")
		if report(newPlan(), err, io.Discard) == 0 || err == nil || !strings.Contains(err.Error(), "does not allow it") || !strings.Contains(err.Error(), "a kubelet's kubeconfig has no such right") {
			t.Errorf("%s: error %v", verb, err)
		}
	}
}

func sorted(text string) string {
	return strings.Join(slices.Sorted(strings.Lines(text)), "")
}

// A plan has the routes that announce addresses, in both modes.
func TestPlanAnnounces(t *testing.T) {
	dir := directory(t, map[string]string{"web.yaml": strings.Replace(manifest, "clusterIP: 10.96.0.10", "clusterIP: 10.96.0.10\n  externalIPs: [203.0.113.10]", 1)})
	for _, mode := range []string{"ipvs", "iptables"} {
		const want = "ip route add blackhole 203.0.113.10/32 table 100 proto 73\n"
		args := []string{"plan", "--source-dir", dir, "--hostname-override", "node-a", "--proxy-mode", mode}
		if out := execute(t, append(args, "--announce-table=100")...); !strings.Contains(out, want) {
			t.Errorf("%s mode: no %q in\n%s", mode, want, out)
		}
		if out := execute(t, args...); strings.Contains(out, "blackhole") {
			t.Errorf("%s mode, without a table:\n%s", mode, out)
		}
	}
}
