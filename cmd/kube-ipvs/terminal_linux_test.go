package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
)

// obeyed finds what a terminal would obey in a text.
func obeyed(text string) int {
	return strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' && r != '\t' })
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

// TestManifestsCannotSpeakToTheTerminal: the name and the texts of a manifest come out escaped.
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
