package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// webManifest is the workload: backends that go on answering while their end is made known, and a Service with fixed addresses.
const webManifest = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  strategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 15
      containers:
      - name: web
        image: localhost/backend:e2e
        imagePullPolicy: Never
        args: [serve, -tcp, ":8080", -http, ":8080", -udp, ":8080"]
        readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 2}
        lifecycle: {preStop: {sleep: {seconds: 5}}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  clusterIP: 10.96.0.80
  clusterIPs: [10.96.0.80, "fd00:10:96::80"]
  ipFamilyPolicy: RequireDualStack
  selector: {app: web}
  ports:
  - {name: tcp, port: 80, targetPort: 8080, nodePort: 30080}
  - {name: udp, port: 80, targetPort: 8080, nodePort: 30080, protocol: UDP}
`

// loadPod asks one address at a rate until it is told to end, and exits with status 0 if each request was answered.
const loadPod = `
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: load}}
spec:
  nodeName: %s
  restartPolicy: Never
  terminationGracePeriodSeconds: 10
  containers:
  - name: load
    image: localhost/backend:e2e
    imagePullPolicy: Never
    args: [ask, -proto, %s, -rate, "%d", -timeout, 5s, %s, %q]
---
`

func (w *world) webAddr() string     { return "10.96.0.80" }
func (w *world) machine() netip.Addr { return netip.MustParseAddr(machineAddr) }

// serve starts the workload and asks it by its cluster addresses from a pod of each node, and by the NodePort of each node from this
// machine.
func serve(ctx context.Context, w *world) (string, error) {
	if err := w.plane.Apply(ctx, webManifest); err != nil {
		return "", err
	}
	if err := w.rolledOut(ctx, "deployment/web", "default"); err != nil {
		return "", err
	}
	if err := w.ask(ctx, "http "+w.webAddr()+":80", "tcp [fd00:10:96::80]:80", "udp "+w.webAddr()+":80"); err != nil {
		return "", err
	}
	for i := 1; i <= w.o.nodes; i++ {
		for _, target := range []string{nodeAddr(i) + ":30080", fmt.Sprintf("[fd00:30::1%d]:30080", i)} {
			if out, err := w.backend(ctx, "ask", "-proto", "http", "-n", "10", "-timeout", "5s", target); err != nil {
				return "", fmt.Errorf("NodePort %s from outside: %w: %s", target, err, out)
			}
		}
	}
	return "", nil
}

// asked is what every load of a check asks.
var asked = []string{"http 10.96.0.80:80", "tcp [fd00:10:96::80]:80", "udp 10.96.0.80:80"}

// Rates of load, in requests a second of each pod. A node computes slowly: its system calls cost tens of microseconds.
const (
	briefRate = 5
	loadRate  = 10
)

// ask runs pods that ask for five seconds, one for each target on each node. A target is a protocol and an address.
func (w *world) ask(ctx context.Context, targets ...string) error {
	if err := w.startLoad(ctx, "-duration=5s", briefRate, targets...); err != nil {
		return err
	}
	_, err := w.endLoad(ctx)
	return err
}

// settleTime is how long load goes on after a change, while replaced pods end.
const settleTime = 15 * time.Second

// underLoad does something while pods on all nodes ask, and fails when one request did. The note has the count.
func (w *world) underLoad(ctx context.Context, do func() error) (string, error) {
	if err := w.startLoad(ctx, "-stream", loadRate, asked...); err != nil {
		return "", err
	}
	begin := time.Now()
	err := do()
	err = errors.Join(err, sleep(ctx, settleTime))
	took := time.Since(begin)
	for i := 1; i <= w.o.nodes; i++ {
		_, stopped := w.onNode(ctx, i, `pkill -TERM -f "^/backend ask"`)
		err = errors.Join(err, stopped)
	}
	answered, lost := w.endLoad(ctx)
	return fmt.Sprintf("%d requests in %.0fs, 0 failed", answered, took.Seconds()), errors.Join(err, lost)
}

// startLoad returns when every pod asks.
func (w *world) startLoad(ctx context.Context, how string, rate int, targets ...string) error {
	var pods strings.Builder
	for i := 1; i <= w.o.nodes; i++ {
		for t, target := range targets {
			proto, addr, _ := strings.Cut(target, " ")
			fmt.Fprintf(&pods, loadPod, fmt.Sprintf("load-%d-%d", i, t), nodeName(i), proto, rate, how, addr)
		}
	}
	if err := w.plane.Apply(ctx, pods.String()); err != nil {
		return err
	}
	return until(ctx, "load starts", func(ctx context.Context) error {
		out, err := w.phases(ctx)
		if err == nil && strings.Contains(out, "Pending") {
			err = errors.New(oneLine(out))
		}
		return err
	})
}

// phases are the load's pods, a line each with its phase.
func (w *world) phases(ctx context.Context) (string, error) {
	return w.kubectl(ctx, "get", "pods", "-l", "app=load", "-o", `jsonpath={range .items[*]}{.metadata.name} {.status.phase}{"\n"}{end}`)
}

// endLoad waits until every pod has ended, and fails with the tallies of those whose requests failed.
func (w *world) endLoad(ctx context.Context) (answered int, err error) {
	defer func() {
		_, gone := w.kubectl(context.WithoutCancel(ctx), "delete", "pod", "-l", "app=load", "--now", "--timeout=2m")
		err = errors.Join(err, gone)
	}()
	var out string
	err = until(ctx, "load ends", func(ctx context.Context) (err error) {
		out, err = w.phases(ctx)
		if err == nil && (strings.Contains(out, "Running") || strings.Contains(out, "Pending")) {
			err = errors.New(oneLine(out))
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(out) {
		name, phase, _ := strings.Cut(strings.TrimSpace(line), " ")
		log, unread := w.kubectl(ctx, "logs", name)
		n, counted := answers(log)
		answered += n
		if phase != "Succeeded" || unread != nil || !counted {
			err = errors.Join(err, unread, fmt.Errorf("%s: %s: %s", name, phase, log))
		}
	}
	return answered, err
}

// answers reads the first line of a tally: 7 requests, 7 answered, 0 failed.
func answers(log string) (answered int, ok bool) {
	var requests, lost int
	n, _ := fmt.Sscanf(log, "%d requests, %d answered, %d failed", &requests, &answered, &lost)
	return answered, n == 3 && answered > 0 && lost == 0 && requests == answered
}

// backend runs the client of the workload on this machine.
func (w *world) backend(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, filepath.Join(w.o.dir, "backend"), args...).CombinedOutput()
	return string(out), err
}
