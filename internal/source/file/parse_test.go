package file_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/source/file"
)

// dumped is what kubectl get -o yaml prints of a Service, an EndpointSlice and a
// Node, status and managed fields included.
const dumped = `apiVersion: v1
items:
- apiVersion: v1
  kind: Service
  metadata:
    annotations:
      kubectl.kubernetes.io/last-applied-configuration: |
        {"apiVersion":"v1","kind":"Service"}
        --- not a marker
    creationTimestamp: "2024-01-02T03:04:05Z"
    managedFields:
    - apiVersion: v1
      fieldsType: FieldsV1
      fieldsV1:
        f:spec: {}
      manager: kubectl
      operation: Update
      time: "2024-01-02T03:04:05Z"
    name: web
    namespace: shop
    resourceVersion: "123"
    uid: 7c1f
  spec:
    clusterIP: 10.96.0.1
    clusterIPs:
    - 10.96.0.1
    internalTrafficPolicy: Cluster
    ipFamilies:
    - IPv4
    ipFamilyPolicy: SingleStack
    ports:
    - port: 80
      protocol: TCP
      targetPort: http
    selector:
      app: web
    sessionAffinity: None
    type: ClusterIP
  status:
    loadBalancer: {}
- addressType: IPv4
  apiVersion: discovery.k8s.io/v1
  endpoints:
  - addresses:
    - 10.0.0.1
    conditions:
      ready: true
      serving: true
      terminating: false
    nodeName: n1
    targetRef:
      kind: Pod
      name: web-0
      namespace: shop
      uid: 7c20
  kind: EndpointSlice
  metadata:
    labels:
      kubernetes.io/service-name: web
    name: web-abcde
    namespace: shop
  ports:
  - name: ""
    port: 8080
    protocol: TCP
- apiVersion: v1
  kind: Node
  metadata:
    name: n1
  spec:
    podCIDR: 10.0.0.0/24
    podCIDRs:
    - 10.0.0.0/24
  status:
    addresses:
    - address: 192.168.0.1
      type: InternalIP
    capacity:
      cpu: "2"
      memory: 4Gi
    conditions:
    - lastHeartbeatTime: "2024-01-02T03:04:05Z"
      lastTransitionTime: "2024-01-02T03:04:05Z"
      message: ok
      reason: ok
      status: "True"
      type: Ready
    images:
    - names:
      - example.org/web:1
      sizeBytes: 123
kind: List
metadata:
  resourceVersion: ""
`

func TestParse(t *testing.T) {
	const svc = `{"apiVersion":"v1","kind":"Service","metadata":{"name":"a"}}`
	tests := []struct {
		name, file, text string
		want             []string
		foreign          map[string]int
	}{
		{"kubectl dump", "a.yaml", dumped, []string{"Service shop/web", "EndpointSlice shop/web-abcde", "Node n1"}, nil},
		{"many documents", "a.yml", service("a", 80) + "---\n\n---\n" + service("b", 80) + "...\n# end\n---\n" + service("c", 80),
			[]string{"Service default/a", "Service default/b", "Service default/c"}, nil},
		{"content behind the marker", "a.yaml", "--- " + svc + "\n--- # comment\n" + service("b", 80), []string{"Service default/a", "Service default/b"}, nil},
		{"marker without space is text", "a.yaml", "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\n  annotations:\n    k: x\n     ---\n", []string{"Service default/a"}, nil},
		{"directive", "a.yaml", "%YAML 1.1\n---\n" + service("a", 80), []string{"Service default/a"}, nil},
		{"JSON in YAML", "a.yaml", svc + "\n---\n" + svc, []string{"Service default/a", "Service default/a"}, nil},
		{"flow style in YAML", "a.yaml", "{apiVersion: v1, kind: Service, metadata: {name: a}}", []string{"Service default/a"}, nil},
		{"JSON stream", "a.json", svc + svc + "\n\n" + svc, []string{"Service default/a", "Service default/a", "Service default/a"}, nil},
		{"JSON stream in YAML", "a.yaml", service("b", 80) + "---\n" + svc + svc + "\n" + svc + "\n---\n" + service("c", 80),
			[]string{"Service default/b", "Service default/a", "Service default/a", "Service default/a", "Service default/c"}, nil},
		{"JSON below a comment", "a.yaml", "# one\n\n  " + svc + "\n# two\n", []string{"Service default/a"}, nil},
		{"anchors and quoted keys", "a.yaml", "\"apiVersion\": v1\nkind: Service\nmetadata: &m {name: a}\nspec: {selector: *m}\n", []string{"Service default/a"}, nil},
		{"JSON List", "a.json", `{"apiVersion":"v1","kind":"List","items":[` + svc + `]}`, []string{"Service default/a"}, nil},
		{"ServiceList", "a.yaml", "apiVersion: v1\nkind: ServiceList\nmetadata: {resourceVersion: '1'}\nitems: [{metadata: {name: a}}, {apiVersion: v1, kind: Service, metadata: {name: b}}]",
			[]string{"Service default/a", "Service default/b"}, nil},
		{"EndpointSliceList", "a.yaml", "apiVersion: discovery.k8s.io/v1\nkind: EndpointSliceList\nitems: [{addressType: IPv4, metadata: {name: a, labels: {kubernetes.io/service-name: a}}}]",
			[]string{"EndpointSlice default/a"}, nil},
		{"NodeList", "a.yaml", "apiVersion: v1\nkind: NodeList\nitems: [{metadata: {name: a, namespace: ignored}}]", []string{"Node a"}, nil},
		{"empty List", "a.yaml", "apiVersion: v1\nkind: List\nitems: []", nil, nil},
		{"other kinds", "a.yaml", "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Endpoints}, {apiVersion: v1, kind: Endpoints}, " + svc + "]\n---\napiVersion: example.org/v1\nkind: ServiceList\nitems: 7\n",
			[]string{"Service default/a"}, map[string]int{"v1 Endpoints": 2, "example.org/v1 ServiceList": 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := file.Parse(tt.file, []byte(tt.text))
			want := file.Parsed{Objects: tt.want, Foreign: tt.foreign}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("parsed (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLines: the line of a field is found in every style of writing.
func TestLines(t *testing.T) {
	const head = "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\n"
	tests := []struct {
		name, file, text string
		want             string
	}{
		{"nested sequences at the key", "a.yaml", head + "spec:\n  ports:\n  - port: 1\n\n  # comment\n  - port: 2\n    x: 3\n", "line 11: Service default/a: spec.ports[1].x"},
		{"sequences indented", "a.yaml", head + "spec:\n  ports:\n    - port: 1\n    - x: 3\n", "line 8: Service default/a: spec.ports[1].x"},
		{"dash alone", "a.yaml", head + "spec:\n  ports:\n  -\n    x: 3\n", "line 8: Service default/a: spec.ports[0].x"},
		{"quoted key", "a.yaml", head + "spec:\n  \"x\": 3\n", "line 6: Service default/a: spec.x"},
		{"same key in a sibling", "a.yaml", head + "status:\n  x: {}\nspec:\n  x: 3\n", "line 6: Service default/a: status.x"},
		{"flow style tells the parent", "a.yaml", head + "spec:\n  ports: [{port: 1},\n    {x: 3}]\n", "line 6: Service default/a: spec.ports[1].x"},
		{"second document", "a.yaml", head + "---\n" + head + "x: 1\n", "line 10: Service default/a: x"},
		{"JSON", "a.json", "{\"apiVersion\":\"v1\",\n\"kind\":\"Service\",\n\"metadata\":{\"name\":\"a\"},\n\"spec\":{\"ports\":[\n{\"port\":1},\n{\"port\":2,\n\"x\":3}]}}", "line 7: Service default/a: spec.ports[1].x"},
		{"second value of a JSON stream", "a.json", "\n{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"a\"}}\n\n{\"apiVersion\":\"v1\",\n\"kind\":\"Node\",\"metadata\":{\"name\":\"b\"},\n\"x\":1}", "line 6: Node b: x"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := problemLines(file.Parse(tt.file, []byte(tt.text)).Faults)
			if _, rest, _ := strings.Cut(strings.TrimSuffix(got, "\n"), ", "); !strings.HasPrefix(rest, tt.want+": ") {
				t.Errorf("got %q, want one problem at %q", got, tt.want)
			}
		})
	}
}

func TestFaultsOfAFileAreBounded(t *testing.T) {
	text := strings.Repeat("apiVersion: v1\nkind: Service\nmetadata: {nam: x}\n---\n", 100)
	if got := len(file.Parse("a.yaml", []byte(text)).Faults); got != 10 {
		t.Errorf("%d problems of one file, want the first 10", got)
	}
}

func TestLoad(t *testing.T) {
	g := newRig(t, "", quick)
	g.write("b.yaml", dumped)
	g.write("a.json", `{"apiVersion":"v1","kind":"Service","metadata":{"name":"a"},"spec":{"ports":[{"port":70000}]}}`)
	g.write("bad.yml", "kind: [")
	for _, ignored := range []string{".hidden.yaml", "#c.yaml", "c.yaml~", "c.txt", "c", ".c.yaml.swp"} {
		g.write(ignored, "kind: [")
	}
	objects, problems, err := file.Load(g.dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range objects.Services {
		names = append(names, "service "+s.ID.String())
	}
	for _, s := range objects.Slices {
		names = append(names, "slice "+s.ID.String())
	}
	for _, n := range objects.Nodes {
		names = append(names, "node "+n.Name)
	}
	want := []string{"service default/a", "service shop/web", "slice shop/web-abcde", "node n1"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	wantProblems := "a.json: document 1, line 1: Service default/a: spec.ports[0].port: 70000 is not a port (1-65535)\n" +
		"bad.yml: document 1, line 1: did not find expected node content\n"
	if diff := cmp.Diff(wantProblems, problemLines(problems)); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestLoadOfOneFile(t *testing.T) {
	g := newRig(t, "", quick)
	g.write("manifests", dumped)
	g.write("other.yaml", "kind: [")
	objects, problems, err := file.Load(filepath.Join(g.dir, "manifests"))
	if err != nil || len(objects.Services) != 1 || len(problems) != 0 {
		t.Errorf("%d services, problems %v, error %v; want one Service", len(objects.Services), problems, err)
	}
}

func TestLoadOfNothing(t *testing.T) {
	dir := t.TempDir()
	tests := []struct{ name, path, want string }{
		{"no such path", filepath.Join(dir, "gone"), "look at manifests: stat " + dir + "/gone: no such file or directory"},
		{"empty directory", dir, "no manifests in " + dir},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := file.Load(tt.path)
			if err == nil || err.Error() != tt.want {
				t.Errorf("error %v, want %s", err, tt.want)
			}
		})
	}
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := file.Load(dir); err == nil {
		t.Error("no error for a directory without manifests")
	}
}

// FuzzParse: with any contents, a file is good or bad and never both, and what is
// wrong is said on lines that the file has.
func FuzzParse(f *testing.F) {
	for _, table := range [][]badInput{badFiles, badParts} {
		for _, tt := range table {
			if len(tt.text) < 10_000 {
				f.Add(strings.HasSuffix(tt.file, ".json"), []byte(tt.text))
			}
		}
	}
	f.Add(false, []byte(dumped))
	f.Add(false, []byte("a:\n0"))
	f.Add(false, []byte("\r\n\f{"))
	f.Fuzz(func(t *testing.T, isJSON bool, data []byte) {
		name := "a.yaml"
		if isJSON {
			name = "a.json"
		}
		got := file.Parse(name, data)
		if len(got.Faults) > 0 && len(got.Objects) > 0 {
			t.Errorf("%d objects of a bad file", len(got.Objects))
		}
		last := strings.Count(string(data), "\n") + 1
		for _, p := range got.Faults {
			if p.Reason == "" || !p.BadFile || p.Line > last || p.Line < 0 {
				t.Errorf("problem %+v in a file of %d lines", p, last)
			}
		}
	})
}
