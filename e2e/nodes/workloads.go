package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// longManifest is a Deployment whose pods serve, after they are told to end, for longer than a connection of the load lives.
const longManifest = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: long}
spec:
  replicas: 3
  selector: {matchLabels: {app: long}}
  strategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}
  template:
    metadata: {labels: {app: long}}
    spec:
      terminationGracePeriodSeconds: 40
      containers:
      - name: long
        image: localhost/backend:e2e
        imagePullPolicy: Never
        args: [serve, -tcp, ":8080"]
        readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 2}
        lifecycle: {preStop: {sleep: {seconds: 25}}}
---
apiVersion: v1
kind: Service
metadata: {name: long}
spec:
  clusterIP: 10.96.0.81
  selector: {app: long}
  ports:
  - {port: 80, targetPort: 8080}
`

// longCount is how many connections are open at a time. Each lives for 15 seconds and carries a request every other second.
const longCount = 200

// longConnections replaces all pods of a Deployment while clients keep connections to it. Connections of a pod that ends go on until
// their clients close them, and no new one reaches it.
func longConnections(ctx context.Context, w *world) (note string, err error) {
	if err := w.plane.Apply(ctx, longManifest); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, w.remove(ctx, "deployment/long", "service/long")) }()
	if err := w.rolledOut(ctx, "deployment/long", "default"); err != nil {
		return "", err
	}
	how := fmt.Sprintf(`-stream, "-connections=%d", -life=15s, "-rate=0.5"`, (longCount+w.o.nodes-1)/w.o.nodes)
	return w.underLoadOf(ctx, w.all(), how, []string{"tcp 10.96.0.81:80"}, func() error {
		if _, err := w.kubectl(ctx, "rollout", "restart", "deployment/long"); err != nil {
			return err
		}
		if err := w.rolledOut(ctx, "deployment/long", "default"); err != nil {
			return err
		}
		return until(ctx, "replaced pods have ended", func(ctx context.Context) error {
			out, err := w.kubectl(ctx, "get", "pods", "-l", "app=long", "-o", "name")
			if err == nil && strings.Count(out, "\n") != 3 {
				err = errors.New(oneLine(out))
			}
			return err
		})
	})
}

// remove deletes objects of the namespace default, or of another after a flag, and waits until they are gone.
func (w *world) remove(ctx context.Context, objects ...string) error {
	_, err := w.kubectl(context.WithoutCancel(ctx), append([]string{"delete", "--timeout=2m"}, objects...)...)
	return err
}

// drainAndReboot drains the last node, starts it again from nothing, and lets pods come back.
func drainAndReboot(ctx context.Context, w *world) (string, error) {
	i := w.o.nodes
	if i < 2 {
		return "", needsNodes(2)
	}
	note, err := w.underLoadOf(ctx, w.first(i-1), endlessly, asked, func() error {
		if _, err := w.kubectl(ctx, "drain", nodeName(i), "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=3m"); err != nil {
			return err
		}
		if err := w.rebooted(ctx, i); err != nil {
			return err
		}
		_, err := w.kubectl(ctx, "uncordon", nodeName(i))
		return err
	})
	return note, errors.Join(err, w.ask(ctx, asked...), w.askNodePort(ctx, 30080))
}

// oneWithoutIPVS boots the last node with a kernel without IPVS. It serves by iptables, the others go on with IPVS, and kubectl ipvs
// names it.
func oneWithoutIPVS(ctx context.Context, w *world) (note string, err error) {
	i := w.o.nodes
	if i < 2 {
		return "", needsNodes(2)
	}
	w.kernel[i] = kernelWithoutIPVS
	defer func() {
		delete(w.kernel, i)
		err = errors.Join(err, w.rebooted(context.WithoutCancel(ctx), i))
	}()
	if err := w.rebooted(ctx, i); err != nil {
		return "", err
	}
	if err := errors.Join(w.ask(ctx, asked...), w.askNodePort(ctx, 30080)); err != nil {
		return "", err
	}
	out, _ := w.ipvs(ctx, "status") // its exit status is that of the finding
	if !names(firstScreen(out), nodeName(i), "iptables") {
		return "", fmt.Errorf("kubectl ipvs status does not name %s:\n%s", nodeName(i), out)
	}
	return "", nil
}

// rebooted boots a node again, and returns when it and all agents are Ready.
func (w *world) rebooted(ctx context.Context, i int) error {
	node := nodeName(i)
	before, err := w.bootID(ctx, node)
	if err != nil {
		return err
	}
	last, err := w.agentPods(ctx)
	if err != nil {
		return err
	}
	if err := w.reboot(ctx, i); err != nil {
		return err
	}
	err = until(ctx, node+" has booted", func(ctx context.Context) error {
		id, err := w.bootID(ctx, node)
		if err == nil && id == before {
			err = errors.New("it reports its last boot")
		}
		return errors.Join(err, w.nodesReady(ctx))
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, w.logs())
	}
	return until(ctx, "agents are Ready", func(ctx context.Context) error {
		if w.samePods(ctx, last) == nil {
			return fmt.Errorf("the agent of %s has not started", node)
		}
		return w.agentsReady(ctx)
	})
}

func (w *world) bootID(ctx context.Context, node string) (string, error) {
	return w.kubectl(ctx, "get", "node", node, "-o", "jsonpath={.status.nodeInfo.bootID}")
}

// hostManifest serves in the network of each node.
const hostManifest = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: host}
spec:
  selector: {matchLabels: {app: host}}
  template:
    metadata: {labels: {app: host}}
    spec:
      hostNetwork: true
      terminationGracePeriodSeconds: 1
      containers:
      - name: host
        image: localhost/backend:e2e
        imagePullPolicy: Never
        args: [serve, -tcp, ":8181", -http, ":8181", -udp, ":8181"]
        readinessProbe: {tcpSocket: {port: 8181}, periodSeconds: 2}
---
apiVersion: v1
kind: Service
metadata: {name: host}
spec:
  type: NodePort
  clusterIP: 10.96.0.82
  clusterIPs: [10.96.0.82, "fd00:10:96::82"]
  ipFamilyPolicy: RequireDualStack
  selector: {app: host}
  ports:
  - {name: tcp, port: 80, targetPort: 8181, nodePort: 30082}
  - {name: udp, port: 80, targetPort: 8181, nodePort: 30082, protocol: UDP}
`

// hostNetwork: pods in the network of their node ask Services, and are asked as their endpoints.
func hostNetwork(ctx context.Context, w *world) (note string, err error) {
	if err := w.plane.Apply(ctx, hostManifest); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, w.remove(ctx, "daemonset/host", "service/host")) }()
	if err := w.rolledOut(ctx, "daemonset/host", "default"); err != nil {
		return "", err
	}
	own := []string{"http 10.96.0.82:80", "tcp [fd00:10:96::82]:80", "udp 10.96.0.82:80"}
	targets := slices.Clone(own)
	for _, target := range slices.Concat(own, asked) {
		targets = append(targets, target+" host")
	}
	logs, err := w.askWho(ctx, targets...)
	for _, i := range w.all() {
		if err == nil && !answeredBy(logs)[nodeName(i)] {
			err = fmt.Errorf("%s answered no request:\n%s", nodeName(i), logs)
		}
	}
	return "", errors.Join(err, w.askNodePort(ctx, 30082))
}

// The cluster's DNS, and the cache for it that listens on each node on an address of its own, as NodeLocal DNSCache does with IPVS. Its
// link has the address of the Service, too, as it has with iptables.
const (
	dnsManifest = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: dns}
spec:
  replicas: 2
  selector: {matchLabels: {app: dns}}
  template:
    metadata: {labels: {app: dns}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: dns
        image: localhost/backend:e2e
        imagePullPolicy: Never
        args: [serve, -name, cluster, -tcp, ":8053", -udp, ":8053"]
        readinessProbe: {tcpSocket: {port: 8053}, periodSeconds: 2}
---
apiVersion: v1
kind: Service
metadata: {name: dns}
spec:
  clusterIP: 10.96.0.10
  selector: {app: dns}
  ports:
  - {name: tcp, port: 53, targetPort: 8053}
  - {name: udp, port: 53, targetPort: 8053, protocol: UDP}
`
	cacheManifest = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: cache}
spec:
  selector: {matchLabels: {app: cache}}
  template:
    metadata: {labels: {app: cache}}
    spec:
      hostNetwork: true
      terminationGracePeriodSeconds: 1
      containers:
      - name: cache
        image: localhost/backend:e2e
        imagePullPolicy: Never
        args: [serve, -name, node, -tcp, "169.254.20.10:53", -udp, "169.254.20.10:53"]
`
	cacheLink = `
ip link add nodelocaldns type dummy
ip address add 169.254.20.10/32 dev nodelocaldns
ip address add 10.96.0.10/32 dev nodelocaldns
`
)

// nodeLocalDNS: the cache answers on its own address, and the endpoints on the address of the Service, also while a link of each node
// has that address.
func nodeLocalDNS(ctx context.Context, w *world) (note string, err error) {
	if err := w.plane.Apply(ctx, dnsManifest); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, w.remove(ctx, "deployment/dns", "service/dns")) }()
	if err := w.rolledOut(ctx, "deployment/dns", "default"); err != nil {
		return "", err
	}
	shared := []string{"tcp 10.96.0.10:53", "udp 10.96.0.10:53", "udp 10.96.0.10:53 host"}
	if err := w.askOnly(ctx, "cluster", shared...); err != nil {
		return "", fmt.Errorf("before the cache: %w", err)
	}
	for _, i := range w.all() {
		if _, err := w.onNode(ctx, i, cacheLink); err != nil {
			return "", err
		}
	}
	if err := w.withCache(ctx, shared); err != nil {
		return "", err
	}
	if err := w.askOnly(ctx, "cluster", shared...); err != nil {
		return "", fmt.Errorf("after the cache: %w", err)
	}
	return "", nil
}

// withCache asks while the cache runs, and takes it and its links away.
func (w *world) withCache(ctx context.Context, shared []string) (err error) {
	defer func() {
		err = errors.Join(err, w.remove(ctx, "daemonset/cache"))
		for _, i := range w.all() {
			_, gone := w.onNode(context.WithoutCancel(ctx), i, "ip link delete nodelocaldns; sleep 3")
			err = errors.Join(err, gone)
		}
	}()
	if err := w.plane.Apply(ctx, cacheManifest); err != nil {
		return err
	}
	if err := w.rolledOut(ctx, "daemonset/cache", "default"); err != nil {
		return err
	}
	own := []string{"udp 169.254.20.10:53", "tcp 169.254.20.10:53 host"}
	if err := errors.Join(w.askOnly(ctx, "node", own...), w.askOnly(ctx, "cluster", shared...)); err != nil {
		return fmt.Errorf("with the cache: %w", err)
	}
	return nil
}

// askOnly fails unless all answers come from one name.
func (w *world) askOnly(ctx context.Context, name string, targets ...string) error {
	logs, err := w.askWho(ctx, targets...)
	if names := answeredBy(logs); err == nil && (len(names) != 1 || !names[name]) {
		err = fmt.Errorf("answers come from %s, want %s alone:\n%s", strings.Join(slices.Sorted(maps.Keys(names)), ", "), name, logs)
	}
	return err
}
