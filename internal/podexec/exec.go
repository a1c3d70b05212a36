package podexec

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	clientexec "k8s.io/client-go/util/exec"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/kube-ipvs/kube-ipvs/internal/cluster"
)

// largestNotes bounds what is kept of standard error, in bytes.
const largestNotes = 4 << 10

// errTooLarge ends a verb that prints more than its limit.
var errTooLarge = errors.New("the answer is too large")

// Ask runs a verb in the pod of a node; it is a cluster.Asker. Nodes comes first.
func (c *Client) Ask(ctx context.Context, n cluster.Node, args []string, limit int64) (cluster.Answer, error) {
	t, known := c.targets[n.Name]
	switch {
	case !known:
		return cluster.Answer{}, fmt.Errorf("no pod on node %s", n.Name)
	case t.pod.Status.Phase != "Running":
		return cluster.Answer{}, fmt.Errorf("its pod %s is %s", t.pod.Metadata.Name, t.pod.Status.Phase)
	}
	u := c.path("pods", t.pod.Metadata.Name, "exec")
	u.RawQuery = url.Values{"container": {t.container}, "command": t.line(args), "stdout": {"true"}, "stderr": {"true"}}.Encode()
	executor, err := executorFor(c.config, u)
	if err != nil {
		return cluster.Answer{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out := &bounded{limit: limit, full: func() { cancel(fmt.Errorf("%w: more than %d bytes", errTooLarge, limit)) }}
	notes := &bounded{limit: largestNotes}
	// client-go logs a connection that it closes itself as an error.
	err = executor.StreamWithContext(klog.NewContext(ctx, klog.Logger{}), remotecommand.StreamOptions{Stdout: out, Stderr: notes})
	answer := cluster.Answer{Out: out.take(), Notes: string(notes.take())}
	var status clientexec.CodeExitError
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errTooLarge):
		return cluster.Answer{}, cause
	case errors.As(err, &status):
		answer.Status = status.Code
		return answer, nil
	case err != nil:
		return cluster.Answer{}, fmt.Errorf("exec in pod %s: %w", t.pod.Metadata.Name, err)
	}
	return answer, nil
}

// executorFor returns an executor over WebSocket, and over SPDY for an API server that refuses that.
func executorFor(config *rest.Config, u *url.URL) (remotecommand.Executor, error) {
	first, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, u.String())
	if err != nil {
		return nil, err
	}
	second, err := remotecommand.NewSPDYExecutor(config, http.MethodPost, u)
	if err != nil {
		return nil, err
	}
	return remotecommand.NewFallbackExecutor(first, second, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
}

// bounded keeps the first bytes that are written to it. The executor may write while Ask returns.
type bounded struct {
	limit int64
	full  func() // called at the first byte beyond the limit; nil is not

	mu    sync.Mutex
	kept  bytes.Buffer
	taken bool
}

// Write implements io.Writer and never fails.
func (b *bounded) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	room := b.limit - int64(b.kept.Len())
	if b.taken {
		room = 0
	}
	b.kept.Write(p[:min(int64(len(p)), room)])
	if int64(len(p)) > room && b.full != nil && !b.taken {
		b.full()
	}
	return len(p), nil
}

// take returns what was kept. Later writes are dropped.
func (b *bounded) take() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken = true
	return b.kept.Bytes()
}
