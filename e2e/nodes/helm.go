package main

import (
	"context"
	"errors"
	"fmt"
)

// The commands of manifests/docs/helm.md and of the notes of the release, with the images by their names on the nodes.
const (
	// helmBefore removes what install.yaml left, which Helm would not take for its own.
	helmBefore = `
kubectl delete --ignore-not-found -f "$MANIFESTS/install.yaml"
`
	helmTakeover = `
"$HELM" install kube-ipvs "$MANIFESTS/chart" --namespace kube-system --set kubeProxy.takeover=true
kubectl -n kube-system patch ds kube-proxy -p '{"spec":{"template":{"spec":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"kube-ipvs.io/proxy","operator":"NotIn","values":["kube-ipvs"]}]}]}}}}}}}'
kubectl -n kube-system rollout status ds/kube-proxy --timeout=5m
for node in $(kubectl get nodes -o name); do
	kubectl label "$node" kube-ipvs.io/proxy=kube-ipvs
	sleep 5
	kubectl -n kube-system rollout status ds/kube-ipvs --timeout=5m
done
[ "$(kubectl -n kube-system get ds kube-ipvs -o 'jsonpath={.status.numberReady}')" = "$(kubectl get nodes -o name | wc -l)" ]
[ "$(kubectl -n kube-system get ds kube-proxy -o 'jsonpath={.status.desiredNumberScheduled}')" = 0 ]
`
	helmUpgrade = `
"$HELM" upgrade kube-ipvs "$MANIFESTS/chart" --namespace kube-system --reuse-values --set image.repository=localhost/kube-ipvs,image.tag=next
kubectl -n kube-system rollout status ds/kube-ipvs --timeout=5m
"$HELM" rollback kube-ipvs --namespace kube-system
kubectl -n kube-system rollout status ds/kube-ipvs --timeout=5m
`
	helmUninstall = `
"$HELM" uninstall kube-ipvs --namespace kube-system --wait
kubectl -n kube-system wait pod -l k8s-app=kube-ipvs --for=delete --timeout=2m
`
	// helmLeave takes the labels away, so that the overlay and the next check find nodes as they were.
	helmLeave = `
kubectl -n kube-system delete ds --ignore-not-found --wait kube-proxy
kubectl label nodes --all kube-ipvs.io/proxy-
`
)

// chart installs the chart in place of a kube-proxy in ipvs mode, node by node, upgrades, rolls back and uninstalls it, each under load.
func chart(ctx context.Context, w *world) (note string, err error) {
	if w.o.helm == "" {
		return "", errors.New("no program helm is named; make e2e-cluster builds it")
	}
	if err := errors.Join(w.makeProxyImage(ctx), w.tagNext(ctx)); err != nil {
		return "", err
	}
	if err := errors.Join(w.giveToKubeProxy(ctx, "ipvs"), w.shell(ctx, "ipvs", helmBefore)); err != nil {
		return "", err
	}
	for _, step := range []struct{ name, script string }{{"takeover", helmTakeover}, {"upgrade, rollback", helmUpgrade}, {"uninstall", helmUninstall}} {
		done, err := w.underLoad(ctx, func() error { return w.shell(ctx, "ipvs", step.script) })
		if err != nil {
			return "", fmt.Errorf("%s: %w", step.name, err)
		}
		note += step.name + ": " + done + "; "
	}
	if err := errors.Join(w.shell(ctx, "ipvs", helmLeave), w.shell(ctx, "ipvs", leaveScript)); err != nil {
		return "", err
	}
	_, err = install(ctx, w)
	return note, err
}
