package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// fault is something that is wrong on one node, made by hand. The first screens of kubectl ipvs name the node with these words.
type fault struct {
	name, status, explain string
	make, mend            func(ctx context.Context, w *world, i int) error
}

// again runs a command on a node again and again, because an agent repairs what it notices.
func again(command string) func(context.Context, *world, int) error {
	return func(ctx context.Context, w *world, i int) error {
		_, err := w.onNode(ctx, i, "(while sleep 0.1; do "+command+"; done) >/dev/null 2>&1 & echo $! >/run/fault")
		return err
	}
}

// once runs a command on a node.
func once(command string) func(context.Context, *world, int) error {
	return func(ctx context.Context, w *world, i int) error {
		_, err := w.onNode(ctx, i, command)
		return err
	}
}

// stopAgain ends what again has begun.
var stopAgain = once("kill $(cat /run/fault)")

const oldImage = "localhost/kube-ipvs:old"

func faults() []fault {
	return []fault{
		{"a deleted server", "the kernel lacks", "10.96.0.80:80", again("ipvsadm -D -t 10.96.0.80:80"), stopAgain},
		{"a flushed set", "the kernel lacks", "KUBE-CLUSTER-IP", again("ipset flush KUBE-CLUSTER-IP"), stopAgain},
		{"an old version", "runs version v0.0.9", "runs version v0.0.9", only(`{"name":"kube-ipvs","image":"` + oldImage + `"}`), mendOnly},
		{
			"iptables mode", "is in iptables mode", "is in iptables mode",
			only(`{"name":"kube-ipvs","args":["--config=/var/lib/kube-proxy/config.conf","--hostname-override=$(NODE_NAME)","--proxy-mode=iptables"]}`), mendOnly,
		},
		{"a paused agent", "has not answered", "has not answered", once("pkill -STOP -x kube-ipvs"), once("pkill -CONT -x kube-ipvs")},
	}
}

// only gives the agent of one node other values of its container, by the update strategy OnDelete.
func only(container string) func(context.Context, *world, int) error {
	return func(ctx context.Context, w *world, i int) error {
		patch := `{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null},"template":{"spec":{"containers":[` + container + `]}}}}`
		if _, err := w.kubectl(ctx, "patch", "ds", "kube-ipvs", "-n", system, "-p", patch); err != nil {
			return err
		}
		if _, err := w.kubectl(ctx, "delete", "pod", "-n", system, "-l", agents, "--field-selector", "spec.nodeName="+nodeName(i)); err != nil {
			return err
		}
		return until(ctx, "the agent of "+nodeName(i)+" is Ready", w.agentsReady)
	}
}

// mendOnly installs all agents as the manifest has them.
func mendOnly(ctx context.Context, w *world, _ int) error {
	_, err := install(ctx, w)
	return err
}

// agentsReady fails until each node has an agent that is Ready.
func (w *world) agentsReady(ctx context.Context) error {
	pods, err := w.agentPods(ctx)
	for _, pod := range pods {
		if s := pod.Status.ContainerStatuses; pod.DeletionTimestamp != nil || len(s) != 1 || !s[0].Ready {
			err = errors.Join(err, fmt.Errorf("%s is not Ready", pod.Name))
		}
	}
	return err
}

// faultsByHand makes one fault after the other on the last node. kubectl ipvs names each on the first screen of status and of explain.
func faultsByHand(ctx context.Context, w *world) (string, error) {
	if w.o.nodes < 3 {
		return "", needsNodes(3)
	}
	if err := w.makeOldImage(ctx); err != nil {
		return "", err
	}
	var errs []error
	for _, f := range faults() {
		if err := w.named(ctx, f); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.name, err))
		}
	}
	return "", errors.Join(errs...)
}

// named makes one fault, asks, and takes the fault away until nothing is found any more.
func (w *world) named(ctx context.Context, f fault) error {
	i := w.o.nodes
	if err := f.make(ctx, w, i); err != nil {
		return err
	}
	var errs []error
	for _, verb := range []struct {
		args  []string
		words string
	}{{[]string{"status"}, f.status}, {[]string{"explain", "default/web"}, f.explain}} {
		out, err := w.ipvs(ctx, verb.args...)
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			errs = append(errs, err)
		}
		if !names(firstScreen(out), nodeName(i), verb.words) {
			errs = append(errs, fmt.Errorf("kubectl ipvs %s does not name %s with %q:\n%s", strings.Join(verb.args, " "), nodeName(i), verb.words, out))
		}
	}
	errs = append(errs, f.mend(ctx, w, i), until(ctx, "all is well again", func(ctx context.Context) error {
		out, err := w.ipvs(ctx, "status")
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	}))
	return errors.Join(errs...)
}

// ipvs runs kubectl ipvs on this machine.
func (w *world) ipvs(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(w.o.dir, "kube-ipvs"), append([]string{"cluster"}, append(args, "--kubeconfig", w.plane.AdminKubeconfig())...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// screenLines is the height of a terminal.
const screenLines = 24

func firstScreen(text string) string {
	lines := strings.SplitAfter(text, "\n")
	return strings.Join(lines[:min(len(lines), screenLines)], "")
}

// names reports whether a line of a text has the node and the words.
func names(text, node, words string) bool {
	for line := range strings.Lines(text) {
		if strings.Contains(line, node) && strings.Contains(line, words) {
			return true
		}
	}
	return false
}

// makeOldImage puts a program of an earlier release into an image, and imports it on each node.
func (w *world) makeOldImage(ctx context.Context) error {
	program := filepath.Join(w.o.dir, "kube-ipvs-old")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-X main.version=v0.0.9", "-o", program, "./cmd/kube-ipvs")
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build an old version: %w: %s", err, out)
	}
	return w.makeImage(ctx, oldImage, program, "")
}
