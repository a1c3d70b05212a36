package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// neighbour is a program of another project that runs on each node beside the agents, from the manifest that its project publishes.
type neighbour struct {
	name, image   string
	program       string // file
	dir, module   string // the module that pins it, below e2e/kube, and its project's
	manifest      string // file of the project's module
	kustomization string // what is changed of it
	namespace     string
	daemonSet     string
	enter         string // script that a node runs before, if any
	ready         string // script that fails on a node until it has written its rows
	rows          string // script that prints these, always in the same order
	leave         string // script that removes from a node what it leaves, and undoes enter
}

// ourRows prints the rows of agents on a node, each table sorted.
const ourRows = `
for ip in iptables ip6tables; do $ip-save | grep -- '^-A.*KUBE-' | grep -vE 'KUBE-(ROUTER|POD-FW|NWPLCY)|FLANNEL' | sed "s/^/$ip /" | sort; done
ipset save | grep KUBE- | grep -vE 'KUBE-(SRC|DST)|inet6:' | sed 's/ bucketsize [0-9]* initval [^ ]*//' | sort
ipvsadm -Sn | sort
ip -o address show dev kube-ipvs0 | sed 's/^[0-9]*: //; s/\\.*//' | sort
`

// with deploys a neighbour, does something, and removes the neighbour and all that it left.
func (w *world) with(ctx context.Context, n neighbour, do func() error) (err error) {
	// The image has the program under our name; a process has the name that it is started by.
	names := `
for name in ip{,6}tables{,-save,-restore}; do ln -s xtables-nft-multi "$base/usr/sbin/$name"; done
mkdir -p "$base/usr/local/bin"
ln -s kube-ipvs "$base/usr/local/bin/` + filepath.Base(n.program) + "\"\n"
	if err := w.makeImage(ctx, n.image, n.program, names); err != nil {
		return err
	}
	dir, err := w.kustomize(ctx, n)
	if err != nil {
		return err
	}
	defer func() {
		ctx := context.WithoutCancel(ctx)
		_, gone := w.kubectl(ctx, "delete", "-k", dir, "--ignore-not-found", "--timeout=2m")
		_, left := w.rowsOf(ctx, n.leave)
		err = errors.Join(err, gone, left)
	}()
	if _, err := w.rowsOf(ctx, n.enter); err != nil {
		return err
	}
	if _, err := w.kubectl(ctx, "apply", "-k", dir); err != nil {
		return err
	}
	if err := errors.Join(w.rolledOut(ctx, "daemonset/"+n.daemonSet, n.namespace), w.readyOn(ctx, n)); err != nil {
		return err
	}
	return do()
}

// readyOn waits until a neighbour has written its rows on each node. An error has the end of its log.
func (w *world) readyOn(ctx context.Context, n neighbour) error {
	err := until(ctx, n.name+" is ready", func(ctx context.Context) error {
		_, err := w.rowsOf(ctx, n.ready)
		return err
	})
	if err != nil {
		log, _ := w.kubectl(ctx, "logs", "-n", n.namespace, "daemonset/"+n.daemonSet, "--tail=30")
		err = fmt.Errorf("%w\n%s", err, log)
	}
	return err
}

// kustomize makes a directory of a neighbour's manifest and what is changed of it.
func (w *world) kustomize(ctx context.Context, n neighbour) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", n.module)
	cmd.Dir = filepath.Join("e2e/kube", n.dir)
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	root := strings.TrimSpace(string(out))
	if root == "" {
		return "", fmt.Errorf("%s is not on this machine; go -C %s mod download brings it", n.module, cmd.Dir)
	}
	dir := filepath.Join(w.o.dir, n.name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	if err := copyFile(filepath.Join(root, n.manifest), filepath.Join(dir, "published.yaml")); err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(n.kustomization), 0o600)
}

// rowsOf are the lines that a script prints on each node.
func (w *world) rowsOf(ctx context.Context, script string) (string, error) {
	var all strings.Builder
	for _, i := range w.all() {
		out, err := w.onNode(ctx, i, script)
		if err != nil {
			return "", err
		}
		for line := range strings.Lines(out) {
			all.WriteString(nodeName(i) + " " + line)
		}
	}
	return all.String(), nil
}

// keeps does something, and expects that scripts print the same rows afterwards.
func (w *world) keeps(ctx context.Context, scripts []string, do func() error) error {
	var before []string
	for _, script := range scripts {
		rows, err := w.rowsOf(ctx, script)
		if err != nil {
			return err
		}
		before = append(before, rows)
	}
	if err := do(); err != nil {
		return err
	}
	for i, script := range scripts {
		err := until(ctx, "the rows are as before", func(ctx context.Context) error {
			after, err := w.rowsOf(ctx, script)
			if err == nil && after != before[i] {
				err = fmt.Errorf("gone:\n%s\nnew:\n%s", without(before[i], after), without(after, before[i]))
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// without are the lines of a text that another text lacks.
func without(text, other string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if !strings.Contains(other, line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// restarts restarts a neighbour and then the agents, each under load. No request fails, and afterwards the rows of both are as before.
func (w *world) restarts(ctx context.Context, n neighbour) (note string, err error) {
	for _, one := range []struct{ daemonSet, namespace string }{{n.daemonSet, n.namespace}, {"kube-ipvs", system}} {
		err := w.keeps(ctx, []string{ourRows, n.rows}, func() error {
			answered, err := w.underLoad(ctx, func() error {
				if _, err := w.kubectl(ctx, "rollout", "restart", "-n", one.namespace, "daemonset/"+one.daemonSet); err != nil {
					return err
				}
				return w.rolledOut(ctx, "daemonset/"+one.daemonSet, one.namespace)
			})
			note += one.daemonSet + ": " + answered + "; "
			return err
		})
		if err != nil {
			return "", fmt.Errorf("restart of %s: %w", one.daemonSet, err)
		}
	}
	return note, nil
}

// leaveRules removes chains of iptables by what their names begin with, and the jumps to them. It fails when a chain stays. The program
// that made them may still remove some.
const leaveRules = `
for ip in iptables ip6tables; do for table in filter nat; do
	chains=$($ip-save -t $table | sed -nE 's/^:((%[1]s)[^ ]*) .*/\1/p')
	$ip-save -t $table | grep -E -- '-j (%[1]s)' | grep -vE '^-A (%[1]s)' | while read -r add rule; do eval "$ip -t $table -D $rule"; done
	for chain in $chains; do $ip -t $table -F "$chain"; done
	for chain in $chains; do $ip -t $table -X "$chain"; done
	if $ip-save -t $table | grep -E '^:(%[1]s)'; then exit 1; fi
done; done
`

// Routes between pods of nodes, as inside.sh makes them, and without them.
const (
	podRoutes = `
for other in $(seq "$NODES"); do
	[ "$other" = "$INDEX" ] && continue
	ip route replace "10.244.$other.0/24" via "172.30.0.1$other"
	ip -6 route replace "fd00:10:244:$other::/64" via "fd00:30::1$other"
done
`
	noPodRoutes = `
for other in $(seq "$NODES"); do
	[ "$other" = "$INDEX" ] && continue
	ip route delete "10.244.$other.0/24"
	ip -6 route delete "fd00:10:244:$other::/64"
done
`
)

const flannelKustomization = `
resources: [published.yaml]
images: [{name: ghcr.io/flannel-io/flannel, newName: localhost/flannel, newTag: e2e}]
patches:
- target: {kind: DaemonSet}
  patch: |
    - {op: remove, path: /spec/template/spec/initContainers}
    - {op: replace, path: /spec/template/spec/containers/0/command, value: [/usr/local/bin/flanneld]}
- target: {kind: ConfigMap}
  patch: |
    - op: replace
      path: /data/net-conf.json
      value: '{"Network": "10.244.0.0/16", "EnableIPv6": true, "IPv6Network": "fd00:10:244::/48", "Backend": {"Type": "host-gw"}}'
`

// flannel: flanneld makes the routes between nodes in place of the plain ones, and its own rules. It reaches the API server by the Service
// "kubernetes".
func flannel(ctx context.Context, w *world) (note string, err error) {
	if w.o.nodes < 2 {
		return "", needsNodes(2)
	}
	n := neighbour{
		name: "flannel", image: "localhost/flannel:e2e", program: w.beside.Flanneld, dir: "flannel", module: "github.com/flannel-io/flannel",
		manifest: "Documentation/kube-flannel.yml", kustomization: flannelKustomization, namespace: "kube-flannel", daemonSet: "kube-flannel-ds",
		enter: noPodRoutes,
		ready: `[ "$(ip route | grep -c '^10.244.*via')" = $((NODES - 1)) ] && [ "$(ip -6 route | grep -c '^fd00:10:244.*via')" = $((NODES - 1)) ] && iptables-save | grep -q FLANNEL-FWD`,
		rows: `
for ip in iptables ip6tables; do $ip-save | grep -- '^-A.*FLANNEL' | sed "s/^/$ip /"; done
ip route | grep '^10.244.*via'; ip -6 route | grep '^fd00:10:244.*via'
`,
		leave: podRoutes + fmt.Sprintf(leaveRules, "FLANNEL"),
	}
	err = w.keeps(ctx, []string{ourRows}, func() error {
		return w.with(ctx, n, func() error {
			if err := errors.Join(w.ask(ctx, asked...), w.askNodePort(ctx, 30080)); err != nil {
				return err
			}
			if note, err = w.restarts(ctx, n); err != nil {
				return err
			}
			return w.askNodePort(ctx, 30080)
		})
	})
	return note, err
}

const routerKustomization = `
resources: [published.yaml]
images: [{name: docker.io/cloudnativelabs/kube-router, newName: localhost/kube-router, newTag: e2e}]
patches:
- target: {kind: DaemonSet}
  patch: |
    - {op: remove, path: /spec/template/spec/initContainers}
    - {op: replace, path: /spec/template/spec/containers/0/imagePullPolicy, value: Never}
    - {op: add, path: /spec/template/spec/containers/0/command, value: [/usr/local/bin/kube-router]}
    - op: replace
      path: /spec/template/spec/containers/0/args
      value: [--run-router=false, --run-firewall=true, --run-service-proxy=false, --service-cluster-ip-range=10.96.0.0/16]
`

// policyManifest lets one range of addresses ask the workload. A range covers new pods at once; kube-router adds them seconds later to what a
// label selects.
const policyManifest = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web}
spec:
  podSelector: {matchLabels: {app: web}}
  policyTypes: [Ingress]
  ingress:
  - from:
    - {ipBlock: {cidr: %s}}
`

// networkPolicy: kube-router enforces a policy on requests to a Service.
func networkPolicy(ctx context.Context, w *world) (note string, err error) {
	n := neighbour{
		name: "kube-router", image: "localhost/kube-router:e2e", program: w.beside.KubeRouter, dir: "kuberouter", module: "github.com/cloudnativelabs/kube-router/v2",
		manifest: "daemonset/kubeadm-kuberouter.yaml", kustomization: routerKustomization, namespace: system, daemonSet: "kube-router",
		ready: "iptables-save | grep -q KUBE-ROUTER-INPUT",
		rows: `
for ip in iptables ip6tables; do $ip-save -t filter | grep -E -- '^-A.*KUBE-(ROUTER|POD-FW|NWPLCY)' | sed "s/^/$ip /"; done | sed -E 's/(KUBE-[A-Z-]*)-[A-Z0-9]{16}/\1/g' | sort
ipset save | grep -E 'KUBE-(SRC|DST)-' | sed -E 's/(KUBE-[A-Z-]*)-[A-Z0-9]{16}/\1/; s/ (bucketsize|initval) [^ ]*//g' | sort
`,
		leave: fmt.Sprintf(leaveRules, "KUBE-(ROUTER|POD-FW|NWPLCY)") + `
for set in $(ipset list -n | grep -E '^(inet6:)?KUBE-(SRC|DST)-'); do ipset destroy "$set"; done
`,
	}
	err = w.keeps(ctx, []string{ourRows}, func() error {
		return w.with(ctx, n, func() (err error) {
			defer func() { err = errors.Join(err, w.remove(ctx, "networkpolicy/web")) }()
			if err := w.policyBlocks(ctx); err != nil {
				return err
			}
			note, err = w.restarts(ctx, n)
			return err
		})
	})
	return note, err
}

// policyBlocks has a policy for another range block all requests, and leaves one that lets them pass. Requests of IPv6 always pass.
func (w *world) policyBlocks(ctx context.Context) error {
	if err := w.plane.Apply(ctx, fmt.Sprintf(policyManifest, "192.0.2.0/24")); err != nil {
		return err
	}
	policed := []string{"http 10.96.0.80:80", "udp 10.96.0.80:80"}
	err := until(ctx, "the policy blocks", func(ctx context.Context) error {
		logs, err := w.askWho(ctx, policed...)
		switch {
		case err == nil || len(answeredBy(logs)) > 0:
			return fmt.Errorf("pods are answered: %s", logs)
		case logs == "": // nothing was asked
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := w.plane.Apply(ctx, fmt.Sprintf(policyManifest, "10.244.0.0/16")); err != nil {
		return err
	}
	return until(ctx, "the policy lets requests pass", func(ctx context.Context) error { return w.ask(ctx, policed...) })
}

const speakerKustomization = `
resources: [published.yaml]
images: [{name: quay.io/metallb/speaker, newName: localhost/metallb-speaker, newTag: e2e}]
secretGenerator: [{name: memberlist, namespace: metallb-system, literals: [secretkey=e2e], options: {disableNameSuffixHash: true}}]
patches:
- patch: '{apiVersion: apps/v1, kind: Deployment, metadata: {name: controller, namespace: metallb-system}, $patch: delete}'
- patch: '{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: metallb-webhook-configuration}, $patch: delete}'
- target: {kind: DaemonSet}
  patch: |
    - {op: add, path: /spec/template/spec/containers/0/command, value: [/usr/local/bin/speaker]}
`

// edgeManifest is a Service with an address for MetalLB to announce. The controller of MetalLB, which would choose the address, does not run.
const edgeManifest = `
apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata: {name: edge, namespace: metallb-system}
spec: {addresses: [172.30.0.200/32]}
---
apiVersion: metallb.io/v1beta1
kind: L2Advertisement
metadata: {name: edge, namespace: metallb-system}
spec: {ipAddressPools: [edge], nodeSelectors: [{matchLabels: {kubernetes.io/hostname: %s}}]}
---
apiVersion: v1
kind: Service
metadata: {name: edge}
spec:
  type: LoadBalancer
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
`

const edgeAddr = "172.30.0.200"

// layerTwo: the speaker of MetalLB answers ARP for an address that agents have on each node with strict ARP. The node that answers
// changes as MetalLB is told.
func layerTwo(ctx context.Context, w *world) (note string, err error) {
	if w.o.nodes < 2 {
		return "", needsNodes(2)
	}
	n := neighbour{
		name: "metallb", image: "localhost/metallb-speaker:e2e", program: w.beside.Speaker, dir: "metallb", module: "go.universe.tf/metallb",
		manifest: "config/manifests/metallb-native.yaml", kustomization: speakerKustomization, namespace: "metallb-system", daemonSet: "speaker",
		ready: "true", rows: "sysctl net.ipv4.conf.all.arp_ignore net.ipv4.conf.all.arp_announce", leave: "true",
	}
	manifest, err := w.installManifest()
	if err != nil {
		return "", err
	}
	strict, err := edited(manifest, "strictARP: false", "strictARP: true")
	if err != nil {
		return "", err
	}
	if err := w.applyAndRestart(ctx, strict); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, w.applyAndRestart(ctx, manifest)) }()
	err = w.with(ctx, n, func() (err error) {
		defer func() { err = errors.Join(err, w.remove(ctx, "service/edge")) }()
		if err := w.announcedBy(ctx, 1); err != nil {
			return err
		}
		if note, err = w.restarts(ctx, n); err != nil {
			return err
		}
		return errors.Join(w.announcedBy(ctx, 1), w.announcedBy(ctx, 2))
	})
	return note, err
}

// announcedBy has MetalLB announce the address from one node, and asks it from this machine, which finds that node by ARP each time.
func (w *world) announcedBy(ctx context.Context, i int) error {
	if err := w.plane.Apply(ctx, fmt.Sprintf(edgeManifest, nodeName(i))); err != nil {
		return err
	}
	status := `{"status":{"loadBalancer":{"ingress":[{"ip":"` + edgeAddr + `"}]}}}`
	if _, err := w.kubectl(ctx, "patch", "service", "edge", "--subresource=status", "-p", status); err != nil {
		return err
	}
	asked := func(ctx context.Context) error {
		if out, err := exec.CommandContext(ctx, "ip", "neighbour", "flush", "to", edgeAddr, "dev", "nodes").CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		answers, err := w.backend(ctx, "ask", "-proto", "http", "-n", "10", "-timeout", "5s", edgeAddr+":80")
		if err != nil {
			return fmt.Errorf("%w: %s", err, answers)
		}
		out, err := exec.CommandContext(ctx, "ip", "neighbour", "show", "to", edgeAddr, "dev", "nodes").CombinedOutput()
		if err == nil && !strings.Contains(string(out), fmt.Sprintf("02:00:00:30:00:1%d", i)) {
			err = fmt.Errorf("it is at %s", out)
		}
		return err
	}
	if err := until(ctx, nodeName(i)+" announces "+edgeAddr, asked); err != nil {
		return err
	}
	for range 4 { // with strict ARP no other node answers any more
		if err := asked(ctx); err != nil {
			return fmt.Errorf("%s announced %s, and then: %w", nodeName(i), edgeAddr, err)
		}
	}
	return nil
}

// wantsNeighbours reports whether a check needs programs of other projects.
func (o options) wantsNeighbours() bool {
	return o.only.MatchString(besideFlannel) || o.only.MatchString(besideRouter) || o.only.MatchString(besideSpeaker)
}
