package file_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/source"
	"github.com/kube-ipvs/kube-ipvs/internal/source/file"
)

// badInput is one way to spoil a manifest.
type badInput struct {
	name string
	// file is bad.yaml unless said otherwise.
	file, text string
	// want are the problems as they are shown.
	want []string
	// used: the file is good but for what the problem names; victim is then what
	// is in force of the Service it defines.
	used   bool
	victim string
}

const svcHead = "apiVersion: v1\nkind: Service\nmetadata: {name: victim}\n"

var long = strings.Repeat("x", 300)

// lol is a YAML bomb: every anchor repeats the one before nine times.
func lol() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x,x,x,x,x,x,x,x,x]\n")
	for i := 1; i < 12; i++ {
		ref := fmt.Sprintf("*a%d", i-1)
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i, i, strings.Join([]string{ref, ref, ref, ref, ref, ref, ref, ref, ref}, ","))
	}
	return b.String()
}

// badFiles are inputs that make a file unusable as a whole.
var badFiles = []badInput{
	{name: "empty file", text: "", want: []string{"bad.yaml: empty: it is being written, or should be deleted"}},
	{name: "blank file", text: " \n\n", want: []string{"bad.yaml: empty: it is being written, or should be deleted"}},
	{name: "broken YAML", text: svcHead + "spec: [", want: []string{"bad.yaml: document 1, line 4: did not find expected node content"}},
	{name: "bad indentation", text: "apiVersion: v1\n kind: Service\n", want: []string{"bad.yaml: document 1, line 2: mapping values are not allowed in this context"}},
	{name: "tabs", text: "apiVersion: v1\nkind: Service\nmetadata:\n\tname: victim\n", want: []string{"bad.yaml: document 1, line 4: found character that cannot start any token"}},
	{name: "unknown field", text: svcHead + "spec:\n  ports:\n  - port: 80\n    prot: TCP\n", want: []string{"bad.yaml: document 1, line 7: Service default/victim: spec.ports[0].prot: unknown field"}},
	{name: "field in the wrong case", text: svcHead + "spec:\n  clusterip: 10.96.0.1\n", want: []string{"bad.yaml: document 1, line 5: Service default/victim: spec.clusterip: unknown field"}},
	{name: "two unknown fields", text: svcHead + "spec: {}\nspek: 1\nkindd: 2\n", want: []string{
		"bad.yaml: document 1, line 5: Service default/victim: spek: unknown field",
		"bad.yaml: document 1, line 6: Service default/victim: kindd: unknown field"}},
	{name: "duplicate key", text: svcHead + "spec: {}\nkind: Service\n", want: []string{`bad.yaml: document 1, line 5: key "kind" already set in map`}},
	{name: "duplicate key in JSON", file: "bad.json", text: `{"apiVersion":"v1","kind":"Service","metadata":{"name":"victim","name":"b"}}`,
		want: []string{"bad.json: document 1, line 1: Service default/b: metadata.name: duplicate field"}},
	{name: "text for a number", text: svcHead + "spec:\n  ports:\n  - port: 80\n  - name: b\n    port: http\n",
		want: []string{"bad.yaml: document 1, line 8: Service default/victim: spec.ports[1].port: a string where int32 belongs"}},
	{name: "number for a text", text: "apiVersion: v1\nkind: Service\nmetadata:\n  name: 123\n", want: []string{"bad.yaml: document 1, line 4: metadata.name: a number where string belongs, quote it"}},
	{name: "bool for a text", text: "apiVersion: v1\nkind: Node\nmetadata:\n  name: n\n", want: []string{"bad.yaml: document 1, line 4: metadata.name: a bool where string belongs, quote it"}},
	{name: "number out of range", text: svcHead + "spec:\n  ports:\n  - port: 99999999999\n",
		want: []string{"bad.yaml: document 1, line 6: Service default/victim: spec.ports[0].port: number 99999999999 does not fit into int32"}},
	{name: "list for an object", text: svcHead + "spec:\n- port: 80\n", want: []string{"bad.yaml: document 1, line 4: Service default/victim: spec: an array where v1.ServiceSpec belongs"}},
	{name: "bad time", text: "apiVersion: v1\nkind: Service\nmetadata: {name: victim, creationTimestamp: yesterday}\n",
		want: []string{`bad.yaml: document 1, line 1: parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006"`}},
	{name: "no name", text: "apiVersion: v1\nkind: Service\nmetadata: {}\n", want: []string{"bad.yaml: document 1, line 3: metadata.name: missing"}},
	{name: "no kind", text: "apiVersion: v1\nmetadata: {name: victim}\n", want: []string{"bad.yaml: document 1, line 1: kind: missing"}},
	{name: "no apiVersion", text: "kind: Service\nmetadata: {name: victim}\n", want: []string{"bad.yaml: document 1, line 1: apiVersion: missing"}},
	{name: "kind in the wrong case", text: "apiVersion: v1\nkind: service\nmetadata: {name: victim}\n", want: []string{`bad.yaml: document 1, line 2: kind: "service" is spelled Service`}},
	{name: "old version", text: "apiVersion: discovery.k8s.io/v1beta1\nkind: EndpointSlice\nmetadata: {name: victim}\n",
		want: []string{"bad.yaml: document 1, line 1: apiVersion: discovery.k8s.io/v1beta1 of EndpointSlice is not supported, use discovery.k8s.io/v1"}},
	{name: "second document bad", text: service("victim", 80) + "---\n# comment\n---\napiVersion: v1\nkind: Service\nmetadata:\n  nam: x\n",
		want: []string{"bad.yaml: document 2, line 15: metadata.nam: unknown field"}},
	{name: "List with a bad item", text: "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Service\n  metadata: {name: victim}\n- apiVersion: v1\n  kind: Service\n  metadata:\n    name: b\n    bad: c\n",
		want: []string{"bad.yaml: document 1, line 11: Service default/b: items[1].metadata.bad: unknown field"}},
	{name: "List with an item of no kind", text: "apiVersion: v1\nkind: List\nitems:\n- metadata: {name: victim}\n", want: []string{"bad.yaml: document 1, line 4: items[0].kind: missing"}},
	{name: "List in a List", text: "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: List\n", want: []string{"bad.yaml: document 1, line 5: items[0].kind: a List inside a List"}},
	{name: "List with an unknown field", text: "apiVersion: v1\nkind: List\nitmes: []\n", want: []string{"bad.yaml: document 1, line 3: itmes: unknown field"}},
	{name: "List with null", text: "apiVersion: v1\nkind: List\nitems:\n- null\n", want: []string{"bad.yaml: document 1, line 4: items[0].kind: missing"}},
	{name: "a scalar", text: "just text\n", want: []string{"bad.yaml: document 1, line 1: not an object with apiVersion and kind"}},
	{name: "an array", file: "bad.json", text: "[1,2]", want: []string{"bad.json: document 1, line 1: not an object with apiVersion and kind"}},
	{name: "broken JSON", file: "bad.json", text: "{\n\"apiVersion\": \"v1\",\n}", want: []string{"bad.json: line 3: invalid character '}' looking for beginning of object key string"}},
	{name: "JSON cut short", file: "bad.json", text: "{\n\"apiVersion\": \"v1\",\n", want: []string{"bad.json: line 3: unexpected EOF"}},
	{name: "YAML in a JSON file", file: "bad.json", text: service("victim", 80), want: []string{"bad.json: line 1: invalid character 'a' looking for beginning of value"}},
	{name: "binary garbage", text: "\x7fELF\x02\x01\x01\x00\xff\xfe\xfd", want: []string{"bad.yaml: not text in UTF-8"}},
	{name: "UTF-16", text: "\xff\xfea\x00p\x00", want: []string{"bad.yaml: not text in UTF-8"}},
	{name: "a NUL byte", text: svcHead + "spec: {}\n\x00", want: []string{"bad.yaml: line 5: a NUL byte"}},
	{name: "a control character", text: svcHead + "x: \x01\n", want: []string{"bad.yaml: document 1, line 1: control characters are not allowed"}},
	{name: "one line of 1 MB", text: strings.Repeat("x", 1<<20), want: []string{"bad.yaml: document 1, line 1: not an object with apiVersion and kind"}},
	{name: "deep nesting", text: strings.Repeat("[", 1<<20), want: []string{"bad.yaml: document 1, line 1: exceeded max depth of 10000"}},
	{name: "deep nesting in JSON", file: "bad.json", text: strings.Repeat("[", 1<<20), want: []string{"bad.json: line 1: invalid character '[' exceeded max depth"}},
	{name: "alias bomb", text: lol(), want: []string{"bad.yaml: document 1, line 1: document contains excessive aliasing"}},
	{name: "alias to itself", text: svcHead + "spec: &a [*a]\n", want: []string{"bad.yaml: document 1, line 1: anchor 'a' value contains itself"}},
	{name: "unknown anchor", text: svcHead + "spec: *unknown\n", want: []string{"bad.yaml: document 1, line 1: unknown anchor 'unknown' referenced"}},
	{name: "text after a flow mapping", text: "{apiVersion: v1, kind: Service, metadata: {name: victim}}\nmore\n", want: []string{"bad.yaml: document 1, line 1: did not find expected <document start>"}},
	{name: "two flow mappings", text: "{apiVersion: v1, kind: Service, metadata: {name: victim}}\n{apiVersion: v1}", want: []string{"bad.yaml: document 1, line 1: did not find expected <document start>"}},
	{name: "line ends of CR only", text: strings.ReplaceAll(service("victim", 81)+"---\n"+service("b", 82), "\n", "\r"),
		want: []string{"bad.yaml: line 1: a document marker after a line break that is not LF or CRLF"}},
	{name: "marker after a line separator", text: svcHead + "# \u2028--- x\n", want: []string{"bad.yaml: line 4: a document marker after a line break that is not LF or CRLF"}},
	{name: "quote left open", text: svcHead + "spec: \"x\n", want: []string{"bad.yaml: document 1, line 4: found unexpected end of stream"}},
	{name: "key that is a map", text: svcHead + "? {a: b}\n: c\n", want: []string{"bad.yaml: document 1, line 1: invalid map key: map[interface {}]interface {}{\"a\":\"b\"}"}},
}

// badParts are inputs of which all but a part is used.
var badParts = []badInput{
	{name: "port 70000", text: svcHead + "spec: {clusterIP: 10.96.0.1, ports: [{port: 80}, {name: b, port: 70000}]}\n", victim: "[10.96.0.1] [{ tcp 80}]",
		want: []string{"bad.yaml: document 1, line 4: Service default/victim: spec.ports[1].port: 70000 is not a port (1-65535)"}},
	{name: "port 0", text: svcHead + "spec: {ports: [{port: 0}]}\n", victim: "[] []",
		want: []string{"bad.yaml: document 1, line 4: Service default/victim: spec.ports[0].port: 0 is not a port (1-65535)"}},
	{name: "port twice", text: svcHead + "spec: {ports: [{name: a, port: 80}, {name: b, port: 80}]}\n", victim: "[] [{a tcp 80}]",
		want: []string{"bad.yaml: document 1, line 4: Service default/victim: spec.ports[1].port: 80/tcp is there already"}},
	{name: "protocol", text: svcHead + "spec: {ports: [{port: 80, protocol: ICMP}]}\n", victim: "[] []",
		want: []string{`bad.yaml: document 1, line 4: Service default/victim: spec.ports[0].protocol: "ICMP" is not TCP, UDP or SCTP`}},
	{name: "loopback", text: svcHead + "spec: {clusterIP: 127.0.0.1, ports: [{port: 80}]}\n", victim: "[] [{ tcp 80}]",
		want: []string{`bad.yaml: document 1, line 4: Service default/victim: spec.clusterIP: "127.0.0.1" is a loopback address`}},
	{name: "not an address", text: svcHead + "spec: {clusterIP: 10.96.0.1.1, ports: [{port: 80}]}\n", victim: "[] [{ tcp 80}]",
		want: []string{`bad.yaml: document 1, line 4: Service default/victim: spec.clusterIP: "10.96.0.1.1" is not an IP address`}},
	{name: "leading zeros", text: svcHead + "spec: {clusterIP: 010.096.000.001}\n", victim: "[10.96.0.1] []",
		want: []string{`bad.yaml: document 1, line 4: Service default/victim: spec.clusterIP: "010.096.000.001" has leading zeros, read as 10.96.0.1`}},
	{name: "external parts", text: svcHead + "spec:\n  type: LoadBalancer\n  externalIPs: [127.0.0.1, 1.2.3.4]\n  loadBalancerSourceRanges: [10.0.0.0/8, 10.0.0.0/33]\n" +
		"  ports:\n  - {port: 80, nodePort: 30080}\nstatus:\n  loadBalancer:\n    ingress:\n    - {ip: 1.2.3.5, ipMode: Proxy}\n",
		victim: "[] [{ tcp 80:30080}] external [1.2.3.4] balancer [{1.2.3.5 true}] for [10.0.0.0/8]",
		want: []string{
			`bad.yaml: document 1, line 6: Service default/victim: spec.externalIPs[0]: "127.0.0.1" is a loopback address`,
			`bad.yaml: document 1, line 7: Service default/victim: spec.loadBalancerSourceRanges[1]: "10.0.0.0/33" is not a network`}},
	{name: "affinity", text: svcHead + "spec: {sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: -1}}}\n", victim: "[] []",
		want: []string{"bad.yaml: document 1, line 4: Service default/victim: spec.sessionAffinityConfig.clientIP.timeoutSeconds: -1 is not within 1-86400, taken as 10800"}},
	{name: "name of 300", text: "apiVersion: v1\nkind: Service\nmetadata: {name: " + long + "}\n",
		want: []string{"bad.yaml: document 1, line 3: Service default/" + long + ": metadata.name: 300 characters, at most 63: the object is not used"}},
	{name: "two Services with one name", text: service("victim", 81) + "---\n" + service("victim", 82), victim: "[10.96.0.1] [{ tcp 81}]",
		want: []string{"bad.yaml: document 2, line 9: Service default/victim: defined already in bad.yaml (document 1), which is used"}},
	{name: "name of another file", text: service("victim", 81) + "---\n" + service("good", 82), victim: "[10.96.0.1] [{ tcp 81}]",
		want: []string{"good.yaml: document 1, line 1: Service default/good: defined already in bad.yaml (document 2), which is used"}},
	{name: "a field that is newer", text: "apiVersion: v1\nkind: Service\nmetadata: {name: victim, uid: 3d0c}\nspec:\n  clusterIP: 10.96.0.1\n  newer: 7\n  ports: [{port: 81}]\n",
		victim: "[10.96.0.1] [{ tcp 81}]",
		want:   []string{"bad.yaml: document 1, line 6: Service default/victim: spec.newer: a field that this version does not know: it is ignored"}},
	{name: "FQDN slice", text: service("victim", 81) + "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: s, labels: {kubernetes.io/service-name: victim}}\naddressType: FQDN\n",
		victim: "[10.96.0.1] [{ tcp 81}]",
		want:   []string{"bad.yaml: document 2, line 13: EndpointSlice default/s: addressType: FQDN: host names are not served, no endpoint is used"}},
	{name: "comments only", text: "# nothing\n---\n# here\n...\n%YAML 1.1\n---\n"},
	{name: "byte order mark", text: "\ufeff" + service("victim", 81), victim: "[10.96.0.1] [{ tcp 81}]"},
	{name: "CRLF", text: strings.ReplaceAll("---\n"+service("victim", 81)+"---\n"+service("other", 82), "\n", "\r\n"), victim: "[10.96.0.1] [{ tcp 81}]"},
	{name: "other kinds", text: "apiVersion: apps/v1\nkind: Deployment\nspec: 7\n---\n" + service("victim", 81), victim: "[10.96.0.1] [{ tcp 81}]"},
	{name: "a Service of another group", text: "apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: victim}\n---\n" + service("victim", 81), victim: "[10.96.0.1] [{ tcp 81}]"},
}

// TestBadInput: every kind of bad input is told clearly, leaves the last good
// content of its file in force, and does not keep another file from changing.
func TestBadInput(t *testing.T) {
	for _, tt := range badFiles {
		tt.victim = "[10.96.0.1] [{ tcp 80}]"
		t.Run(tt.name, func(t *testing.T) { tt.check(t) })
	}
	for _, tt := range badParts {
		tt.used = true
		t.Run(tt.name, func(t *testing.T) { tt.check(t) })
	}
}

func (tt badInput) check(t *testing.T) {
	if tt.file == "" {
		tt.file = "bad.yaml"
	}
	g := newRig(t, "", quick)
	g.write("good.yaml", service("good", 80))
	g.write(tt.file, tt.initial())
	g.run().untilState(source.Complete)
	g.sink.takeCalls()

	g.write(tt.file, tt.text)
	want := strings.Join(tt.want, "\n")
	g.until("the problem is told", func() bool { return tt.told(g) })
	if diff := cmp.Diff(want, strings.TrimSpace(g.problems())); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	for _, p := range g.source.Status().Problems {
		if p.BadFile == tt.used {
			t.Errorf("bad file is %t: %s", p.BadFile, p)
		}
	}
	g.until("the victim is as expected", func() bool { return g.sink.has("service default/victim") == tt.victim })

	g.write("good2.yaml", service("good2", 83))
	g.until("another file works", func() bool { return g.sink.has("service default/good2") == "[10.96.0.1] [{ tcp 83}]" })
	if g.sink.has("service default/victim") != tt.victim || g.sink.has("service default/good") == "" {
		t.Errorf("in force after all: %s", g.sink.names())
	}
	if got := g.sink.now(); got != source.Complete {
		t.Errorf("state %s, want complete: the last good content is all there is", got)
	}
}

// initial is the good content that the file has at first.
func (tt badInput) initial() string {
	if strings.HasSuffix(tt.file, ".json") {
		return `{"apiVersion":"v1","kind":"Service","metadata":{"name":"victim"},"spec":{"clusterIP":"10.96.0.1","ports":[{"port":80}]}}`
	}
	return service("victim", 80)
}

// told: the new content has been delivered in some form.
func (tt badInput) told(g *rig) bool {
	if len(tt.want) > 0 {
		return g.problems() != ""
	}
	return g.sink.has("service default/victim") == tt.victim
}

// TestBadInputFromTheStart: a file that never was good is told in the same words
// by Load, and makes the source Partial as its contents are not known.
func TestBadInputFromTheStart(t *testing.T) {
	for _, tt := range badFiles {
		t.Run(tt.name, func(t *testing.T) {
			if tt.file == "" {
				tt.file = "bad.yaml"
			}
			g := newRig(t, "", quick)
			g.write("good.yaml", service("good", 80))
			g.write(tt.file, tt.text)
			objects, problems, err := file.Load(g.dir)
			if err != nil || len(objects.Services) != 1 || objects.Services[0].ID.Name != "good" {
				t.Errorf("loaded %v, error %v; want the good Service", objects, err)
			}
			if diff := cmp.Diff(strings.Join(tt.want, "\n"), strings.TrimSpace(problemLines(problems))); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			g.run().untilState(source.Partial)
			g.untilHas("service default/good")
			g.write(tt.file, tt.initial())
			g.untilState(source.Complete)
			g.untilHas("service default/good, service default/victim")
		})
	}
}

// TestFilesThatCannotBeRead: the disk, not the text, is at fault.
func TestFilesThatCannotBeRead(t *testing.T) {
	tests := []struct {
		name string
		// spoil takes the place of bad.yaml, which was good.
		spoil func(g *rig, path string) error
		want  string
	}{
		{"a directory", func(_ *rig, path string) error { return os.Mkdir(path, 0o700) }, "bad.yaml: not a regular file (a directory)"},
		{"a dangling symlink", func(_ *rig, path string) error { return os.Symlink("nowhere", path) },
			"bad.yaml: dangling symlink: stat PATH: no such file or directory"},
		{"a symlink to itself", func(_ *rig, path string) error { return os.Symlink("bad.yaml", path) },
			"bad.yaml: stat PATH: too many levels of symbolic links"},
		{"a read error", func(_ *rig, path string) error { return os.WriteFile(path, []byte("unreadable"), 0o600) },
			"bad.yaml: read PATH: permission denied"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t, "", quick)
			path := filepath.Join(g.dir, "bad.yaml")
			g.source.SetReadFile(func(name string) ([]byte, error) {
				data, err := file.ReadFile(name)
				if string(data) == "unreadable" {
					return nil, &os.PathError{Op: "read", Path: name, Err: os.ErrPermission}
				}
				return data, err
			})
			g.write("bad.yaml", service("victim", 80))
			g.write("good.yaml", service("good", 80))
			g.run().untilState(source.Complete)

			tmp := filepath.Join(t.TempDir(), "bad.yaml")
			g.must(os.Rename(path, tmp))
			g.must(tt.spoil(g, path))
			g.until("the problem is told", func() bool { return g.problems() != "" })
			want := strings.ReplaceAll(tt.want, "PATH", path) + "\n"
			if diff := cmp.Diff(want, g.problems()); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			g.write("good.yaml", service("good", 81))
			g.until("another file works", func() bool { return g.sink.has("service default/good") == "[10.96.0.1] [{ tcp 81}]" })

			g.must(os.Remove(path))
			g.must(os.Rename(tmp, path))
			g.until("the file is good again", func() bool { return g.problems() == "" })
			g.untilHas("service default/good, service default/victim")
		})
	}
}

// TestFileThatGoesWhileItIsRead: a file was listed but is missing when it is opened. The directory
// is listed again first, so that a new name of the file is found before its old content is dropped.
func TestFileThatGoesWhileItIsRead(t *testing.T) {
	g := newRig(t, "", quick)
	g.write("a.yaml", service("moving", 80))
	g.write("good.yaml", service("good", 80))
	moved := errors.New("not yet")
	g.source.SetReadFile(func(name string) ([]byte, error) {
		if filepath.Base(name) == "a.yaml" && moved != nil {
			moved = os.Rename(name, filepath.Join(g.dir, "b.yaml"))
		}
		return file.ReadFile(name)
	})
	g.run().untilState(source.Complete)
	g.untilHas("service default/good, service default/moving")
	for _, call := range g.sink.takeCalls() {
		if strings.HasPrefix(call, "delete") {
			t.Errorf("call %q, want no deletion", call)
		}
	}
	if p := g.problems(); p != "" {
		t.Errorf("problems: %s", p)
	}
	if told := g.logs.FilterMessage("manifest not usable").All(); len(told) > 0 {
		t.Errorf("a file that moved was told to be unusable: %v", told)
	}
}
