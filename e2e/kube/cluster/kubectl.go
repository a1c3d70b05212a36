package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Kubectl runs kubectl as Admin and returns its standard output. On failure the error holds what it said on standard error.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.kubectl(ctx, "", args...)
}

// Apply gives manifests, in YAML, to "kubectl apply", which may get more flags.
func (c *Cluster) Apply(ctx context.Context, manifests string, flags ...string) error {
	return apply(ctx, c.kubectl, manifests, flags)
}

// Token makes a token for a ServiceAccount, which has to exist, through the TokenRequest API. It lasts an hour.
func (c *Cluster) Token(ctx context.Context, namespace, account string) (string, error) {
	return token(ctx, c.kubectl, namespace, account)
}

func (c *Cluster) kubectl(ctx context.Context, input string, args ...string) (string, error) {
	own := []string{"--kubeconfig=" + c.AdminKubeconfig(), "--cache-dir=" + filepath.Join(c.dir, "kubectl")}
	cmd := exec.CommandContext(ctx, c.binaries.Kubectl, append(own, args...)...)
	cmd.Env = append(os.Environ(), "KUBERC=off", "HTTPS_PROXY=", "https_proxy=")
	cmd.Stdin = strings.NewReader(input)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

// runner is kubectl, here or on the host.
type runner func(ctx context.Context, input string, args ...string) (string, error)

func apply(ctx context.Context, kubectl runner, manifests string, flags []string) error {
	_, err := kubectl(ctx, manifests, append([]string{"apply", "--filename=-"}, flags...)...)
	return err
}

func token(ctx context.Context, kubectl runner, namespace, account string) (string, error) {
	text, err := kubectl(ctx, "", "create", "token", account, "--namespace="+namespace, "--duration=1h")
	return strings.TrimSpace(text), err
}
