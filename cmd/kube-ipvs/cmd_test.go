package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// manifest is one Service with one endpoint.
const manifest = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  clusterIP: 10.96.0.10
  ports: [{port: 80}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: "", port: 8080}]
endpoints: [{addresses: [10.244.0.5]}]
`

// directory writes files into a new directory.
func directory(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestPlan(t *testing.T) {
	dir := directory(t, map[string]string{"web.yaml": manifest})
	out := execute(t, "plan", "--source-dir", dir, "--hostname-override", "node-a")
	for _, want := range []string{
		"# servers\n-A -t 10.96.0.10:80 -s rr\n-a -t 10.96.0.10:80 -r 10.244.0.5:8080 -m -w 1\n",
		"add KUBE-CLUSTER-IP 10.96.0.10,tcp:80\n",
		"*nat\n", "-j MARK --set-xmark 0x4000/0x4000\n",
		"ip addr add 10.96.0.10/32 dev kube-ipvs0\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("plan lacks %q:\n%s", want, out)
		}
	}
}

func TestPlanOfOneKindIsReplayable(t *testing.T) {
	dir := directory(t, map[string]string{"web.yaml": manifest})
	out := execute(t, "plan", "--source-dir", dir, "--hostname-override", "node-a", "--show", "servers", "--ipvs-scheduler", "mh")
	want := "-A -t 10.96.0.10:80 -s mh -b mh-fallback,mh-port\n-a -t 10.96.0.10:80 -r 10.244.0.5:8080 -m -w 1\n"
	if out != want {
		t.Errorf("got\n%swant\n%s", out, want)
	}
}

// Who loses to whom is told as it stands when all Services are known, and nothing
// of the order in which they came.
func TestPlanTellsConflictsThatStand(t *testing.T) {
	service := func(name, created string) string {
		return "apiVersion: v1\nkind: Service\nmetadata: {name: " + name + ", namespace: default, creationTimestamp: \"" + created +
			"\"}\nspec:\n  clusterIP: 10.96.0.10\n  ports: [{port: 80}]\n---\n"
	}
	dir := directory(t, map[string]string{"all.yaml": service("a", "2023-01-01T00:00:00Z") + service("b", "2022-01-01T00:00:00Z") + service("c", "2021-01-01T00:00:00Z")})
	_, notes, err := talk("plan", "--source-dir", dir, "--hostname-override", "node-a")
	if err != nil {
		t.Fatal(err)
	}
	var conflicts []string
	for line := range strings.Lines(notes) {
		if who, _, ok := strings.Cut(line, ","); ok && strings.Contains(line, "belongs to") {
			conflicts = append(conflicts, who)
		}
	}
	want := []string{"default/a: 10.96.0.10:80/tcp belongs to default/c", "default/b: 10.96.0.10:80/tcp belongs to default/c"}
	if diff := cmp.Diff(want, conflicts); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
}

func TestMistakesAreClear(t *testing.T) {
	broken := directory(t, map[string]string{"a.yaml": manifest, "b.yaml": "kind: Service\napiVersion: v1\nspec: {portz: 1}\n"})
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"no source", []string{"plan"}, "nothing says what to serve"},
		{"no source to run", nil, "nothing says what to serve"},
		{"strange kind", []string{"plan", "--source-dir", broken, "--show", "pods"}, `"pods" is not one of servers, sets, rules, addresses`},
		{"strange verb", []string{"plam"}, `"plam" is no verb and no flag`},
		{"argument", []string{"plan", "now"}, `"now" is no verb and no flag`},
		{"strange flag", []string{"--colour"}, "unknown flag: --colour"},
		{"two mistakes at once", []string{"--ipvs-scheduler=best", "--proxy-mode=magic"}, `"magic" is not one of ipvs`},
		{"bad file", []string{"plan", "--source-dir", broken}, "files that cannot be read: 1"},
		{"nothing there", []string{"plan", "--source-dir", broken + "/none"}, "no such file or directory"},
		{"no agent", []string{"show", "status", "--run-dir", t.TempDir()}, "no agent is running"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := try(tt.args...); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func TestUnderscoresInFlagNames(t *testing.T) {
	dir := directory(t, map[string]string{"web.yaml": manifest})
	execute(t, "plan", "--source_dir", dir, "--hostname_override", "node-a")
}

func TestVersion(t *testing.T) {
	if out := execute(t, "version"); !strings.HasPrefix(out, "kube-ipvs ") || strings.Count(out, " ") != 3 {
		t.Errorf("version %q", out)
	}
}

func TestHelpHasExamples(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"plan", "--help"}, {"show", "status", "--help"}, {"check", "--help"}, {"cleanup", "--help"}} {
		if out := execute(t, args...); !strings.Contains(out, "Examples:\n") {
			t.Errorf("%v: no examples in\n%s", args, out)
		}
	}
}

// BenchmarkPlan is the whole way from manifests on disk to the printed plan.
func BenchmarkPlan(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		b.Run(fmt.Sprintf("services=%d", n), func(b *testing.B) {
			dir := directory(b, map[string]string{"services.json": manyServices(n)})
			for b.Loop() {
				if _, err := try("plan", "--source-dir", dir, "--hostname-override", "node-a"); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(n), "us/service")
		})
	}
}

// manyServices is a stream of JSON objects: n Services with ten endpoints each.
func manyServices(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"apiVersion":"v1","kind":"Service","metadata":{"name":"s%d","namespace":"ns"},"spec":{"clusterIP":"10.%d.%d.%d","ports":[{"port":80}]}}`+"\n",
			i, 96+i>>16, i>>8&255, i&255)
		fmt.Fprintf(&b, `{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"s%d","namespace":"ns","labels":{"kubernetes.io/service-name":"s%d"}},"addressType":"IPv4","ports":[{"name":"","port":8080}],"endpoints":[`, i, i)
		for e := range 10 {
			if e > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `{"addresses":["10.%d.%d.%d"],"nodeName":"node-%d"}`, 128+i>>14, i>>6&255, i<<2&252+e, e)
		}
		b.WriteString("]}\n")
	}
	return b.String()
}
