package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
)

// Client asks a running agent.
type Client struct {
	path string
	http http.Client
}

// patience is longer than the server takes to say that the loop is stuck, so only
// a process that does not run at all (SIGSTOP, a freezer) uses it up.
const patience = 2 * answerWithin

// NewClient returns a client for the agent at a socket. A question takes no longer
// than ten seconds.
func NewClient(path string) *Client {
	c := &Client{path: path}
	c.http.Timeout = patience
	c.http.Transport = &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		},
		DisableKeepAlives: true,
	}
	return c
}

// Status asks for the state of the loop.
func (c *Client) Status(ctx context.Context) (agent.Status, error) {
	var s agent.Status
	body, err := c.get(ctx, pathStatus)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(body, &s); err != nil {
		return s, fmt.Errorf("read status: %w", err)
	}
	return s, nil
}

func (c *Client) get(ctx context.Context, path string) ([]byte, error) {
	return c.ask(ctx, http.MethodGet, path)
}

func (c *Client) ask(ctx context.Context, method, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.explain(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, c.explain(err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the agent reports: %s", strings.TrimSpace(string(body)))
	}
	return body, nil
}

// explain turns an error of dialling into a remedy.
func (c *Client) explain(err error) error {
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no agent is running at %s (is --run-dir right?)", c.path)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("open %s: only root may ask the agent", c.path)
	case os.IsTimeout(err):
		return fmt.Errorf("the agent at %s does not answer: its process is stopped or stuck", c.path)
	}
	return fmt.Errorf("ask the agent: %w", err)
}
