package rules

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// toolError is a tool's failure with its message, ready for classification.
type toolError struct {
	tool   string
	status int    // exit status, -1 when killed or not started
	text   string // stderr, trimmed
	kind   error  // sentinel, or nil
	cause  error
}

func (e *toolError) Error() string {
	return fmt.Sprintf("%s: %s", e.tool, e.text)
}

func (e *toolError) Unwrap() []error {
	return []error{e.kind, e.cause}
}

// run starts one process and waits for it, at most timeout and at most as
// long as ctx lives; then the process is killed. It runs in the network
// namespace of the calling thread.
func run(ctx context.Context, timeout time.Duration, stdin io.Reader, tool string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, tool, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C") // messages are read
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	cmd.WaitDelay = time.Second // a grandchild may hold the pipes open
	if err := cmd.Run(); err != nil {
		return nil, newToolError(ctx, tool, stderr.String(), err)
	}
	return stdout.Bytes(), nil
}

// run is run for a Handle, which tells what each process took.
func (h *Handle) run(ctx context.Context, timeout time.Duration, stdin io.Reader, tool string, args ...string) ([]byte, error) {
	start := time.Now()
	out, err := run(ctx, timeout, stdin, tool, args...)
	if h.opts.Called != nil {
		h.opts.Called(time.Since(start), err)
	}
	return out, err
}

func newToolError(ctx context.Context, tool, stderr string, err error) error {
	e := &toolError{tool: tool, status: -1, text: strings.TrimSpace(stderr), cause: err}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		e.cause = ctx.Err()
		e.text = strings.TrimSpace("killed: " + ctx.Err().Error() + " " + e.text)
		return e
	case errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist):
		e.kind, e.text = ErrUnsupported, err.Error()
		return e
	case errors.As(err, &exit):
		e.status = exit.ExitCode()
	}
	e.kind = classify(e.status, e.text)
	if strings.Contains(e.text, setMessage) {
		e.text += " (" + setFix + ")"
	}
	if e.text == "" {
		e.text = err.Error()
	}
	return e
}
