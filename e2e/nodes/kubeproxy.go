package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/e2e/kube/binaries"
)

// proxyManifest is what kubeadm makes beside the DaemonSet of manifests/testdata/kubeadm.yaml: the account and its rights, and the
// ConfigMap with both files.
const proxyManifest = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: kube-proxy, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: kubeadm:node-proxier}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:node-proxier}
subjects: [{kind: ServiceAccount, name: kube-proxy, namespace: kube-system}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: kube-proxy, namespace: kube-system, labels: {app: kube-proxy}}
data:
  config.conf: |
    apiVersion: kubeproxy.config.k8s.io/v1alpha1
    kind: KubeProxyConfiguration
    mode: %s
    clusterCIDR: 10.244.0.0/16,fd00:10:244::/48
    bindAddress: 0.0.0.0
    clientConnection: {kubeconfig: /var/lib/kube-proxy/kubeconfig.conf}
    conntrack: {maxPerCore: 0}
  kubeconfig.conf: |
    apiVersion: v1
    kind: Config
    clusters:
    - name: default
      cluster: {certificate-authority: /var/run/secrets/kubernetes.io/serviceaccount/ca.crt, server: %q}
    contexts:
    - {name: default, context: {cluster: default, namespace: default, user: default}}
    current-context: default
    users:
    - {name: default, user: {tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token}}
---
`

// The commands of manifests/docs/migrate.md, with the image by its name on the nodes.
const (
	swapScript = `
kubectl -n kube-system get ds kube-proxy -o yaml >before.yaml
kubectl kustomize "$MANIFESTS/overlays/kubeadm" >swap.yaml
if [ "$MODE" != ipvs ]; then sed -i 's/^\( *\)\(- \)\?image: .*/&\n        args: [--proxy-mode=ipvs]/' swap.yaml; fi
kubectl -n kube-system patch ds kube-proxy -p '{"spec":{"updateStrategy":{"type":"OnDelete"}}}'
kubectl -n kube-system patch ds kube-proxy --patch-file swap.yaml
kubectl -n kube-system delete pod -l k8s-app=kube-proxy --field-selector spec.nodeName=node1
sleep 20
kubectl -n kube-system patch ds kube-proxy -p '{"spec":{"updateStrategy":{"type":"RollingUpdate"}}}'
kubectl -n kube-system rollout status ds/kube-proxy --timeout=5m
for pod in $(kubectl -n kube-system get pods -l k8s-app=kube-proxy -o name); do
	kubectl -n kube-system exec "$pod" -- kube-ipvs show status
done
`
	backToIPVSScript = `
kubectl kustomize "$MANIFESTS/overlays/kubeadm-rollback" >clean.yaml
sed -e '/^  resourceVersion:/d' -e '/^  uid:/d' before.yaml |
  kubectl patch --local -f - --patch-file clean.yaml -o yaml | kubectl replace -f -
kubectl -n kube-system rollout status ds/kube-proxy --timeout=5m
`
	backScript = `
sed -e '/^  resourceVersion:/d' -e '/^  uid:/d' before.yaml | kubectl replace -f -
kubectl -n kube-system rollout status ds/kube-proxy --timeout=5m
kubectl kustomize "$MANIFESTS/overlays/cleanup" |
  sed -e "s|- cleanup$|&\n        - --for=$MODE|" | kubectl apply -f -
kubectl -n kube-system rollout status ds/kube-ipvs-cleanup --timeout=5m
kubectl delete -k "$MANIFESTS/overlays/cleanup"
`
	// leaveScript removes everything of one proxy before the next; no load is on.
	leaveScript = `
kubectl -n kube-system delete ds --ignore-not-found --wait kube-ipvs kube-proxy
kubectl -n kube-system wait pod -l 'k8s-app in (kube-ipvs,kube-proxy)' --for=delete --timeout=2m
kubectl apply -k "$MANIFESTS/overlays/cleanup"
kubectl -n kube-system rollout status ds/kube-ipvs-cleanup --timeout=5m
kubectl delete -k "$MANIFESTS/overlays/cleanup"
`
)

// swap gives the cluster to the real kube-proxy, then to kube-ipvs by the overlay, one node first, and back. Both ways are under load.
func swap(mode string) func(context.Context, *world) (string, error) {
	return func(ctx context.Context, w *world) (note string, err error) {
		if err := w.makeProxyImage(ctx); err != nil {
			return "", err
		}
		if err := w.giveToKubeProxy(ctx, mode); err != nil {
			return "", err
		}
		there, err := w.underLoad(ctx, func() error { return w.shell(ctx, mode, swapScript) })
		if err != nil {
			return "", fmt.Errorf("to kube-ipvs: %w", err)
		}
		script := backScript
		if mode == "ipvs" {
			script = backToIPVSScript
		}
		back, lost, err := w.loaded(ctx, w.all(), endlessly, asked, func() error { return w.shell(ctx, mode, script) })
		switch {
		case lost == nil:
			back += ", 0 failed"
		case mode == "nftables":
			// kube-proxy removes IPVS before it writes its rules (platformCleanup, cmd/kube-proxy/app).
			back, lost = back+" answered; kube-proxy removed IPVS first: "+failures(lost.Error()), w.ask(ctx, asked...)
		}
		if err = errors.Join(err, lost); err != nil {
			return "", fmt.Errorf("back to kube-proxy: %w", err)
		}
		if err := w.shell(ctx, mode, leaveScript); err != nil {
			return "", err
		}
		_, err = install(ctx, w)
		return there + "; back: " + back, err
	}
}

// failures are the lines of tallies that say when requests failed.
func failures(tallies string) string {
	var out []string
	for line := range strings.Lines(tallies) {
		if line = strings.TrimSpace(line); strings.Contains(line, ", the first: ") {
			line, _, _ = strings.Cut(line, ", the first: ")
			out = append(out, line)
		}
	}
	return strings.Join(out, ", ")
}

// giveToKubeProxy takes kube-ipvs away and starts kube-proxy in its place.
func (w *world) giveToKubeProxy(ctx context.Context, mode string) error {
	if err := w.shell(ctx, mode, leaveScript); err != nil {
		return err
	}
	text, err := os.ReadFile("manifests/testdata/kubeadm.yaml")
	if err != nil {
		return err
	}
	// Nodes reach nothing through a proxy of HTTP here.
	daemonSet, err := edited(string(text), `        - {name: HTTPS_PROXY, value: "http://proxy.example:3128"}`+"\n", "")
	if err != nil {
		return err
	}
	if err := w.plane.Apply(ctx, fmt.Sprintf(proxyManifest, mode, w.plane.Server(w.machine()))+daemonSet); err != nil {
		return err
	}
	if err := w.rolledOut(ctx, "daemonset/kube-proxy", system); err != nil {
		return err
	}
	// It has no readiness probe: its rules come later.
	return until(ctx, "kube-proxy serves", func(ctx context.Context) error { return w.ask(ctx, asked...) })
}

// shell runs commands as an operator does, with kubectl in the path, in a directory of the mode. The file "log"
// there gets their output, with the times.
func (w *world) shell(ctx context.Context, mode, script string) error {
	manifests, err := filepath.Abs("manifests")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "bash", "-exuo", "pipefail", "-c", "PS4='+ $(date +%T.%3N) '\n"+script)
	cmd.Dir = filepath.Join(w.o.dir, "swap-"+mode)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.plane.AdminKubeconfig(), "MANIFESTS="+manifests, "MODE="+mode, "HELM="+w.o.helm,
		"PATH="+filepath.Dir(w.set.Kubectl)+":"+os.Getenv("PATH"))
	if err := os.MkdirAll(cmd.Dir, 0o755); err != nil {
		return err
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w:\n%s", err, out)
	}
	log, failed := os.OpenFile(filepath.Join(cmd.Dir, "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if failed != nil {
		return errors.Join(err, failed)
	}
	_, failed = log.Write(out)
	return errors.Join(err, failed, log.Close())
}

// makeProxyImage puts kube-proxy into an image, with iptables under its plain names and with nft, which nftables mode launches. The
// libraries of nft are those of this machine.
func (w *world) makeProxyImage(ctx context.Context) error {
	return w.makeImage(ctx, "docker.io/library/kube-proxy:"+binaries.Kubernetes, w.set.Proxy, `
for name in ip{,6}tables{,-save,-restore}; do ln -s xtables-nft-multi "$base/usr/sbin/$name"; done
nft=$(command -v nft)
for file in "$nft" $(ldd "$nft" | grep -o '/[^ ]*'); do
	[ -e "$base$file" ] || cp -L --parents "$file" "$base"
done
`)
}

// makeImage makes an image of a program and the base of our own image, to which a script may add, and imports it on each node. It
// makes an image once.
func (w *world) makeImage(ctx context.Context, name, program, more string) error {
	file := filepath.Join("images", strings.NewReplacer("/", "_", ":", "_").Replace(name)+".tar")
	path := filepath.Join(w.o.dir, file)
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	script := `
base=$(mktemp -d)
trap 'rm -rf "$base" "$base.oci"' EXIT
manifests/image/base.sh amd64 "$base"
` + more + `
go run ./e2e/image -name "$NAME" -date 2026-01-01T00:00:00Z -out "$base.oci" "linux/amd64=$base=$PROGRAM"
tar -cf "$FILE.new" -C "$base.oci" .
mv "$FILE.new" "$FILE"
`
	cache, err := filepath.Abs(filepath.Dir(filepath.Dir(w.set.Proxy)))
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	cmd.Env = append(os.Environ(), "CACHE="+cache, "NAME="+name, "PROGRAM="+program, "FILE="+path)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("image %s: %w: %s", name, err, out)
	}
	var errs []error
	for _, i := range w.all() {
		out, err := w.onNode(ctx, i, "ctr -n k8s.io images import --local --snapshotter "+snapshotter+" /run/cluster/"+file+" && ctr -n k8s.io images ls -q")
		if err == nil && !strings.Contains(out, name) {
			err = fmt.Errorf("no image %s: %s", name, out)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
