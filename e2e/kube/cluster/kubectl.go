package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Kubectl runs kubectl as Admin and returns its standard output. On failure the error holds what it said on standard error.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.kubectl(ctx, "", args...)
}

// Apply gives manifests, in YAML, to "kubectl apply".
func (c *Cluster) Apply(ctx context.Context, manifests string) error {
	_, err := c.kubectl(ctx, manifests, "apply", "-f", "-")
	return err
}

// Token makes a token for a ServiceAccount, which has to exist, through the TokenRequest API. It lasts an hour.
func (c *Cluster) Token(ctx context.Context, namespace, account string) (string, error) {
	token, err := c.kubectl(ctx, "", "create", "token", account, "--namespace="+namespace, "--duration="+time.Hour.String())
	return strings.TrimSpace(token), err
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
