package file_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/source/file"
)

// pair writes a Service and its slice with ten endpoints as YAML.
func pair(b *strings.Builder, i int) {
	fmt.Fprintf(b, `---
apiVersion: v1
kind: Service
metadata:
  name: svc-%d
  namespace: bench
  labels:
    app: svc-%d
spec:
  clusterIP: 10.%d.%d.%d
  ports:
  - name: http
    port: 80
    protocol: TCP
    targetPort: 8080
  selector:
    app: svc-%d
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: svc-%d-abcde
  namespace: bench
  labels:
    kubernetes.io/service-name: svc-%d
addressType: IPv4
ports:
- name: http
  port: 8080
  protocol: TCP
endpoints:
`, i, i, 96+i>>16, i>>8&255, i&255, i, i, i)
	for e := range 10 {
		n := i*10 + e
		fmt.Fprintf(b, "- addresses:\n  - 10.%d.%d.%d\n  conditions:\n    ready: true\n    serving: true\n    terminating: false\n  nodeName: node-%d\n  zone: a\n",
			128+n>>16, n>>8&255, n&255, n%500)
	}
}

// pairJSON writes the same as two JSON objects.
func pairJSON(b *strings.Builder, i int) {
	fmt.Fprintf(b, `{"apiVersion":"v1","kind":"Service","metadata":{"name":"svc-%d","namespace":"bench"},"spec":{"clusterIP":"10.%d.%d.%d","ports":[{"name":"http","port":80}]}}`+"\n",
		i, 96+i>>16, i>>8&255, i&255)
	fmt.Fprintf(b, `{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"svc-%d-abcde","namespace":"bench","labels":{"kubernetes.io/service-name":"svc-%d"}},"addressType":"IPv4","ports":[{"name":"http","port":8080}],"endpoints":[`, i, i)
	for e := range 10 {
		n := i*10 + e
		fmt.Fprintf(b, `{"addresses":["10.%d.%d.%d"],"conditions":{"ready":true,"serving":true,"terminating":false},"nodeName":"node-%d","zone":"a"}`,
			128+n>>16, n>>8&255, n&255, n%500)
		if e < 9 {
			b.WriteByte(',')
		}
	}
	b.WriteString("]}\n")
}

// listed writes the pair as two items of one big List.
func listed(b *strings.Builder, i int) {
	if i == 0 {
		b.WriteString("apiVersion: v1\nkind: List\nitems:\n")
	}
	var one strings.Builder
	pair(&one, i)
	for doc := range strings.SplitSeq(strings.TrimPrefix(one.String(), "---\n"), "---\n") {
		b.WriteString("- " + strings.ReplaceAll(strings.TrimSpace(doc), "\n", "\n  ") + "\n")
	}
}

const benchServices = 10_000

// writeBench writes benchServices pairs into so many files.
func writeBench(b *testing.B, files int, ext string, one func(*strings.Builder, int)) string {
	dir := b.TempDir()
	for f := range files {
		var text strings.Builder
		for i := f; i < benchServices; i += files {
			one(&text, i)
		}
		name := filepath.Join(dir, fmt.Sprintf("%04d%s", f, ext))
		if err := os.WriteFile(name, []byte(text.String()), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	return dir
}

// BenchmarkLoad reads 10,000 Services with slices of ten endpoints.
func BenchmarkLoad(b *testing.B) {
	for _, shape := range []struct {
		name, ext string
		files     int
		one       func(*strings.Builder, int)
	}{
		{"yaml, 1000 files", ".yaml", 1000, pair},
		{"yaml, 1 file", ".yaml", 1, pair},
		{"json, 1000 files", ".json", 1000, pairJSON},
		{"json, 1 file", ".json", 1, pairJSON},
		{"yaml, 1 list", ".yaml", 1, listed},
	} {
		b.Run(shape.name, func(b *testing.B) {
			dir := writeBench(b, shape.files, shape.ext, shape.one)
			for b.Loop() {
				objects, problems, err := file.Load(dir)
				if err != nil || len(problems) > 0 || len(objects.Services) != benchServices || len(objects.Slices) != benchServices {
					b.Fatalf("%d services, %d slices, problems %v, error %v", len(objects.Services), len(objects.Slices), problems, err)
				}
			}
		})
	}
}
