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
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: web}}}
      containers:
      - name: web
        image: localhost/backend:e2e
        imagePullPolicy: Never
        args: [serve, -tcp, ":8080", -http, ":8080", -udp, ":8080"]
        readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 2}
        lifecycle: {preStop: {sleep: {seconds: 5}}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {maxUnavailable: 1, selector: {matchLabels: {app: web}}}
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
  hostNetwork: %t
  restartPolicy: Never
  terminationGracePeriodSeconds: 10
  containers:
  - name: load
    image: localhost/backend:e2e
    imagePullPolicy: Never
    args: [ask, -proto, %s, -timeout, 5s, %s, %q]
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
	if err := w.ask(ctx, asked...); err != nil {
		return "", err
	}
	return "", w.askNodePort(ctx, 30080)
}

// askNodePort asks the NodePort of each node from this machine, by both families.
func (w *world) askNodePort(ctx context.Context, port int) error {
	for _, i := range w.all() {
		for _, target := range []string{fmt.Sprintf("%s:%d", nodeAddr(i), port), fmt.Sprintf("[fd00:30::1%d]:%d", i, port)} {
			if out, err := w.backend(ctx, "ask", "-proto", "http", "-n", "10", "-timeout", "5s", target); err != nil {
				return fmt.Errorf("NodePort %s from outside: %w: %s", target, err, out)
			}
		}
	}
	return nil
}

// asked is what every load of a check asks: a protocol and an address, and the word host for pods in the network of their node.
var asked = []string{"http 10.96.0.80:80", "tcp [fd00:10:96::80]:80", "udp 10.96.0.80:80"}

// How pods ask: for a while or until they are told to end, with their rate in requests a second. A node computes slowly: its system
// calls cost tens of microseconds.
const (
	briefly   = `-duration=5s, "-rate=5"`
	endlessly = `-stream, "-rate=10"`
)

// all are the numbers of all nodes.
func (w *world) all() []int { return w.first(w.o.nodes) }

// first are the numbers of the first n nodes.
func (w *world) first(n int) []int {
	var list []int
	for i := 1; i <= n; i++ {
		list = append(list, i)
	}
	return list
}

// ask runs pods that ask for five seconds, one for each target on each node.
func (w *world) ask(ctx context.Context, targets ...string) error {
	_, err := w.askWho(ctx, targets...)
	return err
}

// askWho is ask, and returns the tallies with the names of those that answered.
func (w *world) askWho(ctx context.Context, targets ...string) (logs string, err error) {
	if err := w.startLoad(ctx, w.all(), briefly, targets...); err != nil {
		return "", err
	}
	_, logs, err = w.endLoad(ctx)
	return logs, err
}

// settleTime is how long load goes on after a change, while replaced pods end.
const settleTime = 15 * time.Second

// underLoad does something while pods on all nodes ask, and fails when one request did. The note has the count.
func (w *world) underLoad(ctx context.Context, do func() error) (string, error) {
	return w.underLoadOf(ctx, w.all(), endlessly, asked, do)
}

// underLoadOf is underLoad with pods on some nodes, which ask as the caller says.
func (w *world) underLoadOf(ctx context.Context, nodes []int, how string, targets []string, do func() error) (string, error) {
	note, lost, err := w.loaded(ctx, nodes, how, targets, do)
	return note + ", 0 failed", errors.Join(err, lost)
}

// loaded is underLoadOf that returns apart what of the load failed.
func (w *world) loaded(ctx context.Context, nodes []int, how string, targets []string, do func() error) (note string, lost, err error) {
	if err := w.startLoad(ctx, nodes, how, targets...); err != nil {
		return "", nil, err
	}
	begin := time.Now()
	err = do()
	err = errors.Join(err, sleep(ctx, settleTime))
	took := time.Since(begin)
	for _, i := range nodes {
		_, stopped := w.onNode(ctx, i, `pkill -TERM -f "^/backend ask"`)
		err = errors.Join(err, stopped)
	}
	answered, _, lost := w.endLoad(ctx)
	return fmt.Sprintf("%d requests in %.0fs", answered, took.Seconds()), lost, err
}

// startLoad returns when every pod asks.
func (w *world) startLoad(ctx context.Context, nodes []int, how string, targets ...string) error {
	var pods strings.Builder
	for _, i := range nodes {
		for t, target := range targets {
			words := strings.Fields(target)
			fmt.Fprintf(&pods, loadPod, fmt.Sprintf("load-%d-%d", i, t), nodeName(i), len(words) > 2, words[0], how, words[1])
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
func (w *world) endLoad(ctx context.Context) (answered int, logs string, err error) {
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
		return 0, "", err
	}
	for line := range strings.Lines(out) {
		name, phase, _ := strings.Cut(strings.TrimSpace(line), " ")
		log, unread := w.kubectl(ctx, "logs", name)
		n, counted := answers(log)
		answered += n
		logs += log
		if phase != "Succeeded" || unread != nil || !counted {
			err = errors.Join(err, unread, fmt.Errorf("%s: %s: %s", name, phase, log))
		}
	}
	return answered, logs, err
}

// answers reads the first line of a tally: 7 requests, 7 answered, 0 failed.
func answers(log string) (answered int, ok bool) {
	var requests, lost int
	n, _ := fmt.Sscanf(log, "%d requests, %d answered, %d failed", &requests, &answered, &lost)
	return answered, n == 3 && answered > 0 && lost == 0 && requests == answered
}

// answeredBy are the names of those that answered, by the lines of tallies that begin with the word backend.
func answeredBy(logs string) map[string]bool {
	names := map[string]bool{}
	for line := range strings.Lines(logs) {
		if words := strings.Fields(line); len(words) > 2 && words[0] == "backend" {
			names[words[1]] = true
		}
	}
	return names
}

// backend runs the client of the workload on this machine.
func (w *world) backend(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, filepath.Join(w.o.dir, "backend"), args...).CombinedOutput()
	return string(out), err
}
