package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
)

// logged is what a log has on standard error.
func logged(t *testing.T, format string, use func(*logging)) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	before := os.Stderr
	os.Stderr = w
	l, err := newLogger(config.Config{LogLevel: "info", LogFormat: format})
	os.Stderr = before
	if err != nil {
		t.Fatal(err)
	}
	all := make(chan []byte)
	go func() {
		text, _ := io.ReadAll(r)
		all <- text
	}()
	use(l)
	l.sink.Close()
	w.Close()
	return string(<-all)
}

// obeyed finds what a terminal would obey in a text.
func obeyed(text string) int {
	return strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' && r != '\t' })
}

// TestStrangersCannotSpeakThroughTheLog: names from manifests and error texts have control characters
// escaped, a line stays a line, and JSON stays JSON.
func TestStrangersCannotSpeakThroughTheLog(t *testing.T) {
	const evil = "a\x1b[31m\u009b2J\x7f\u202e\U000e0001"
	for _, format := range []string{"json", "text"} {
		text := logged(t, format, func(l *logging) { l.Warn("from "+evil, zap.String("name", evil+"\nforged")) })
		if at := obeyed(text); at >= 0 || strings.Count(text, "\n") != 1 {
			t.Errorf("%s: %q has what a terminal obeys at %d", format, text, at)
		}
		if format == "json" {
			var line struct{ Name string }
			if err := json.Unmarshal([]byte(text), &line); err != nil || line.Name != evil+"\nforged" {
				t.Errorf("read %q, error %v", line.Name, err)
			}
		}
	}
}

// TestSameLinesAreBounded: of many lines with the same message the first come out, and the rest is counted.
func TestSameLinesAreBounded(t *testing.T) {
	var missing uint64
	text := logged(t, "text", func(l *logging) {
		for i := range 4 * sameLines {
			l.Info("a Service is strange", zap.Int("service", i))
		}
		l.Info("another line")
		missing = l.dropped()["repeated"]
	})
	if n := uint64(strings.Count(text, "a Service is strange")); n < sameLines || n+missing != 4*sameLines || !strings.Contains(text, "another line") {
		t.Errorf("%d lines came out, and %d are missing", n, missing)
	}
}

// evilManifest has control characters wherever a file may have them.
const evilManifest = `
apiVersion: v1
kind: Service
metadata: {name: "ev\e[31mil\u009b", namespace: "n\e[2Js", labels: {service.kubernetes.io/service-proxy-name: "\e[31m"}}
spec: {clusterIP: 10.96.0.3, ports: [{name: "\e[31m", port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: good, namespace: shop, annotations: {"kube-ipvs.io/\e[31mfoo\u009b": "a\e[32m", "kube-ipvs.io/scheduler": "\e[31m"}}
spec: {type: LoadBalancer, clusterIP: 10.96.0.4, externalIPs: ["\e[31m"], ports: [{name: "\e[31m", port: 80}, {name: b, port: 81}]}
---
apiVersion: v1
kind: Service
metadata: {name: others, namespace: shop, labels: {service.kubernetes.io/service-proxy-name: "\e[31m\u009b"}}
spec: {clusterIP: 10.96.0.5, ports: [{port: 80}]}
---
apiVersion: "v\e[31m"
kind: "K\e[31m"
metadata: {name: x}
`

// TestManifestsCannotSpeakToTheTerminal: what a manifest is called and what it says comes out escaped.
func TestManifestsCannotSpeakToTheTerminal(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a.yaml", "b\x1b[31m\u009b.yaml"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(evilManifest), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, verb := range [][]string{{"plan"}, {"plan", "--proxy-mode", "iptables"}, {"plan", "--diff-against", t.TempDir()}} {
		out, errors := runProgram(t.Context(), append(verb, "--source-dir", dir, "--hostname-override", "a")...)
		if at := obeyed(out); at >= 0 {
			t.Errorf("%v: standard output %q has what a terminal obeys at %d", verb, out, at)
		}
		if at := obeyed(errors); at >= 0 || !strings.Contains(errors, `\u009b`) {
			t.Errorf("%v: standard error %q has what a terminal obeys at %d", verb, errors, at)
		}
	}
}

// runProgram runs this program as a process of its own.
func runProgram(ctx context.Context, args ...string) (out, errors string) {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run() // some of these end with status 1
	return stdout.String(), stderr.String()
}
