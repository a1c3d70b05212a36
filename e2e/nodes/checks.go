package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// checks in the order in which they run. Each leaves the cluster as it found it, but for the needed ones.
var checks = []check{
	{"install.yaml is Ready on each node", true, install},
	{"Services answer from pods and nodes", true, serve},
	{"rights: nothing forbidden, two capabilities", false, rights},
	{"show, explain, check, top by kubectl exec", false, verbs},
	{"kube-ipvs cluster status", false, clusterStatus},
	{"rolling update of a Deployment under load", false, rollingUpdate},
	{"rolling update under 200 long connections", false, longConnections},
	{"pods in the network of their node", false, hostNetwork},
	{"NodeLocal DNSCache", false, nodeLocalDNS},
	{"ConfigMap: another scheduler, without a restart", false, configMap},
	{"routes for the ServiceCIDRs, and back, under load", false, serviceRoutes},
	{"DaemonSet: upgrade and rollback under load", false, upgrade},
	{"kubelet restarts under load", false, kubeletRestart},
	{"API server away under load", false, apiServerAway},
	{"a node is drained and rebooted under load", false, drainAndReboot},
	{lacksIPVS, false, oneWithoutIPVS},
	{"kubectl ipvs names five faults", false, faultsByHand},
	{besideFlannel, false, flannel},
	{besideRouter, false, networkPolicy},
	{besideSpeaker, false, layerTwo},
	{"kube-proxy in ipvs mode, the overlay, and back", false, swap("ipvs")},
	{"kube-proxy in iptables mode, the overlay, and back", false, swap("iptables")},
	{"kube-proxy in nftables mode, the overlay, and back", false, swap("nftables")},
	{"Helm: takeover, upgrade, rollback, uninstall under load", false, chart},
}

// lacksIPVS is the name of the check that needs a second kernel.
const lacksIPVS = "a node whose kernel lacks IPVS"

// Names of the checks that need programs of other projects.
const (
	besideFlannel = "flanneld beside the agents, under load"
	besideRouter  = "network policies of kube-router beside the agents, under load"
	besideSpeaker = "MetalLB's speaker beside the agents, in layer 2 mode"
)

const (
	system = "kube-system"
	agents = "k8s-app=kube-ipvs"
)

// oneLine joins the lines of a text.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// installManifest is manifests/install.yaml with the two values that its comments ask for: how nodes reach the API server, and the
// networks of pods.
func (w *world) installManifest() (string, error) {
	text, err := os.ReadFile("manifests/install.yaml")
	if err != nil {
		return "", err
	}
	return edited(string(text), "https://control-plane.invalid:6443", w.plane.Server(w.machine()), `clusterCIDR: ""`, `clusterCIDR: 10.244.0.0/16,fd00:10:244::/48`)
}

// edited replaces pairs of texts, each of which has to be there.
func edited(text string, pairs ...string) (string, error) {
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			return "", fmt.Errorf("the manifest lacks %q", pairs[i])
		}
		text = strings.ReplaceAll(text, pairs[i], pairs[i+1])
	}
	return text, nil
}

func install(ctx context.Context, w *world) (string, error) {
	manifest, err := w.installManifest()
	if err != nil {
		return "", err
	}
	if err := w.plane.Apply(ctx, manifest); err != nil {
		return "", err
	}
	if err := w.rolledOut(ctx, "daemonset/kube-ipvs", system); err != nil {
		return "", err
	}
	memory, err := w.memory(ctx)
	return "resident: " + memory, err
}

// rolledOut waits for a rollout; after a failure the error has the pods and their Events.
func (w *world) rolledOut(ctx context.Context, object, namespace string) error {
	_, err := w.kubectl(ctx, "rollout", "status", object, "-n", namespace, "--timeout="+readyLimit.String())
	if err == nil {
		return nil
	}
	pods, _ := w.kubectl(ctx, "get", "pods", "-n", namespace, "-o", "wide")
	events, _ := w.kubectl(ctx, "get", "events", "-n", namespace, "--field-selector", "type!=Normal")
	logs, _ := w.kubectl(ctx, "logs", "-n", namespace, object, "--tail=30", "--all-containers")
	return fmt.Errorf("%w\n%s\n%s\n%s", err, pods, events, logs)
}

// agentPods are the pods of the DaemonSet, by node.
func (w *world) agentPods(ctx context.Context) ([]corev1.Pod, error) {
	out, err := w.kubectl(ctx, "get", "pods", "-n", system, "-l", agents, "-o", "json")
	if err != nil {
		return nil, err
	}
	var list corev1.PodList
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return nil, err
	}
	if len(list.Items) != w.o.nodes {
		return nil, fmt.Errorf("%d pods of kube-ipvs on %d nodes", len(list.Items), w.o.nodes)
	}
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int { return strings.Compare(a.Spec.NodeName, b.Spec.NodeName) })
	return list.Items, nil
}

// inAgent runs a command in the container of an agent.
func (w *world) inAgent(ctx context.Context, pod string, command ...string) (string, error) {
	return w.kubectl(ctx, append([]string{"exec", "-n", system, pod, "--"}, command...)...)
}

// memory is the resident memory of each agent.
func (w *world) memory(ctx context.Context) (string, error) {
	pods, err := w.agentPods(ctx)
	if err != nil {
		return "", err
	}
	var all []string
	for _, pod := range pods {
		status, err := w.inAgent(ctx, pod.Name, "/bin/busybox", "grep", "VmRSS", "/proc/1/status")
		if err != nil {
			return "", err
		}
		all = append(all, strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(status), "VmRSS:")))
	}
	return strings.Join(all, ", "), nil
}

// capabilities are NET_ADMIN and NET_RAW, bits 12 and 13 (linux/capability.h).
const capabilities = "0000000000003000"

// rights: the API server refused nothing, and each agent has the capabilities of the manifest and no more.
func rights(ctx context.Context, w *world) (string, error) {
	pods, err := w.agentPods(ctx)
	if err != nil {
		return "", err
	}
	refused := regexp.MustCompile(`(?i)forbidden|unauthorized|permission denied|not permitted`)
	var errs []error
	for _, pod := range pods {
		for _, c := range pod.Spec.Containers {
			if s := c.SecurityContext; s == nil || s.Privileged == nil || *s.Privileged {
				errs = append(errs, fmt.Errorf("%s: container %s is privileged", pod.Name, c.Name))
			}
		}
		log, err := w.kubectl(ctx, "logs", "-n", system, pod.Name)
		if err != nil {
			return "", err
		}
		for line := range strings.Lines(log) {
			if refused.MatchString(line) {
				errs = append(errs, fmt.Errorf("%s: %s", pod.Spec.NodeName, strings.TrimSpace(line)))
			}
		}
		status, err := w.inAgent(ctx, pod.Name, "/bin/busybox", "grep", "CapEff", "/proc/1/status")
		if err != nil || !strings.Contains(status, capabilities) {
			errs = append(errs, fmt.Errorf("%s: capabilities %s, want %s: %w", pod.Name, oneLine(status), capabilities, err))
		}
	}
	return "", errors.Join(errs...)
}

// verbs: what an operator types gets an answer in each container.
func verbs(ctx context.Context, w *world) (string, error) {
	pods, err := w.agentPods(ctx)
	if err != nil {
		return "", err
	}
	var errs []error
	for _, pod := range pods {
		for _, words := range []string{"show status", "show services", "show kernel servers", "explain default/web", "check", "top --once"} {
			out, err := w.inAgent(ctx, pod.Name, append([]string{"kube-ipvs"}, strings.Fields(words)...)...)
			if err == nil && strings.TrimSpace(out) == "" {
				err = errors.New("no output")
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: kube-ipvs %s: %w: %s", pod.Spec.NodeName, words, err, oneLine(out)))
			}
		}
	}
	return "", errors.Join(errs...)
}

// clusterStatus asks the agents of all nodes from here, as kubectl ipvs does.
func clusterStatus(ctx context.Context, w *world) (string, error) {
	out, err := w.ipvs(ctx, "status")
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	for _, i := range w.all() {
		if !strings.Contains(out, nodeName(i)) {
			return "", fmt.Errorf("no word about %s:\n%s", nodeName(i), out)
		}
	}
	return "", nil
}

// rollingUpdate replaces all pods of the Deployment.
func rollingUpdate(ctx context.Context, w *world) (string, error) {
	return w.underLoad(ctx, func() error {
		if _, err := w.kubectl(ctx, "rollout", "restart", "deployment/web"); err != nil {
			return err
		}
		return w.rolledOut(ctx, "deployment/web", "default")
	})
}

// configMap changes the scheduler in the ConfigMap, and expects it in the kernel of each node without a restart.
func configMap(ctx context.Context, w *world) (string, error) {
	before, err := w.agentPods(ctx)
	if err != nil {
		return "", err
	}
	manifest, err := w.installManifest()
	if err != nil {
		return "", err
	}
	begin := time.Now()
	for _, scheduler := range []string{"wlc", "rr"} {
		changed, err := edited(manifest, "scheduler: rr", "scheduler: "+scheduler)
		if err != nil {
			return "", err
		}
		if err := w.plane.Apply(ctx, changed); err != nil {
			return "", err
		}
		for _, pod := range before {
			err := until(ctx, scheduler+" on "+pod.Spec.NodeName, func(ctx context.Context) error {
				out, err := w.inAgent(ctx, pod.Name, "ipvsadm", "-Ln", "-t", w.webAddr()+":80")
				if err == nil && !slices.Contains(strings.Fields(out), scheduler) {
					err = errors.New(oneLine(out))
				}
				return err
			})
			if err != nil {
				return "", err
			}
		}
	}
	return fmt.Sprintf("there and back in %.0fs", time.Since(begin).Seconds()), w.samePods(ctx, before)
}

// samePods fails when an agent was replaced or started again. The number of restarts does not show that: a node that boots forgets it.
func (w *world) samePods(ctx context.Context, before []corev1.Pod) error {
	after, err := w.agentPods(ctx)
	if err != nil {
		return err
	}
	for i, pod := range after {
		if pod.UID != before[i].UID || pod.Status.ContainerStatuses[0].ContainerID != before[i].Status.ContainerStatuses[0].ContainerID {
			err = errors.Join(err, fmt.Errorf("the agent of %s is another one", pod.Spec.NodeName))
		}
	}
	return err
}

// serviceRoutes allows agents to list ServiceCIDRs, as manifests/docs/scale.md does, and has them route these ranges.
func serviceRoutes(ctx context.Context, w *world) (note string, err error) {
	manifest, err := w.installManifest()
	if err != nil {
		return "", err
	}
	routed, err := edited(manifest, "# vipBinding: address", "vipBinding: route # address")
	if err != nil {
		return "", err
	}
	for _, words := range []string{
		"create clusterrole kube-ipvs-ranges --verb=list --resource=servicecidrs.networking.k8s.io",
		"create clusterrolebinding kube-ipvs-ranges --clusterrole=kube-ipvs-ranges --serviceaccount=kube-system:kube-ipvs",
	} {
		if _, err := w.kubectl(ctx, strings.Fields(words)...); err != nil {
			return "", err
		}
	}
	defer func() {
		err = errors.Join(err, w.remove(ctx, "clusterrole/kube-ipvs-ranges", "clusterrolebinding/kube-ipvs-ranges"))
	}()
	return w.underLoad(ctx, func() error {
		if err := w.applyAndRestart(ctx, routed); err != nil {
			return err
		}
		var errs []error
		for _, i := range w.all() {
			out, err := w.onNode(ctx, i, "ip route show table local proto 73; ip -6 route show table local proto 73")
			if err == nil && (!strings.Contains(out, "10.96.0.0/16") || !strings.Contains(out, "fd00:10:96::/112")) {
				err = fmt.Errorf("%s has no routes for the ServiceCIDRs: %s", nodeName(i), oneLine(out))
			}
			errs = append(errs, err)
		}
		return errors.Join(append(errs, w.applyAndRestart(ctx, manifest))...)
	})
}

// applyAndRestart gives all agents a manifest, and starts them again for the settings that are read at the start.
func (w *world) applyAndRestart(ctx context.Context, manifest string) error {
	if err := w.plane.Apply(ctx, manifest); err != nil {
		return err
	}
	if _, err := w.kubectl(ctx, "rollout", "restart", "-n", system, "daemonset/kube-ipvs"); err != nil {
		return err
	}
	return w.rolledOut(ctx, "daemonset/kube-ipvs", system)
}

const nextImage = "localhost/kube-ipvs:next"

// tagNext gives the image of the agent another name on each node, that of the next version.
func (w *world) tagNext(ctx context.Context) error {
	var errs []error
	for _, i := range w.all() {
		_, err := w.onNode(ctx, i, "ctr -n k8s.io images tag --force docker.io/library/kube-ipvs:dev "+nextImage)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// upgrade gives the DaemonSet another image and takes it back.
func upgrade(ctx context.Context, w *world) (string, error) {
	if err := w.tagNext(ctx); err != nil {
		return "", err
	}
	return w.underLoad(ctx, func() error {
		if _, err := w.kubectl(ctx, "set", "image", "-n", system, "daemonset/kube-ipvs", "kube-ipvs="+nextImage); err != nil {
			return err
		}
		if err := w.rolledOut(ctx, "daemonset/kube-ipvs", system); err != nil {
			return err
		}
		if _, err := w.kubectl(ctx, "rollout", "undo", "-n", system, "daemonset/kube-ipvs"); err != nil {
			return err
		}
		return w.rolledOut(ctx, "daemonset/kube-ipvs", system)
	})
}

// kubeletRestart kills each kubelet. Pods go on, and the kubelet that follows finds them.
func kubeletRestart(ctx context.Context, w *world) (string, error) {
	before, err := w.agentPods(ctx)
	if err != nil {
		return "", err
	}
	return w.underLoad(ctx, func() error {
		for _, i := range w.all() {
			if _, err := w.onNode(ctx, i, "pkill -KILL -x kubelet"); err != nil {
				return err
			}
		}
		if err := sleep(ctx, 20*time.Second); err != nil {
			return err
		}
		if err := until(ctx, "nodes are Ready", w.nodesReady); err != nil {
			return err
		}
		return w.samePods(ctx, before)
	})
}

// apiServerAway kills the API server for longer than watches live without it.
func apiServerAway(ctx context.Context, w *world) (string, error) {
	before, err := w.agentPods(ctx)
	if err != nil {
		return "", err
	}
	return w.underLoad(ctx, func() error {
		if err := w.plane.KillAPIServer(ctx); err != nil {
			return err
		}
		slept := sleep(ctx, w.o.outage)
		if err := errors.Join(slept, w.plane.StartAPIServer(ctx)); err != nil {
			return err
		}
		if err := until(ctx, "nodes are Ready", w.nodesReady); err != nil {
			return err
		}
		return w.samePods(ctx, before)
	})
}

// sleep waits, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func nodeAddr(i int) string { return "172.30.0.1" + strconv.Itoa(i) }
