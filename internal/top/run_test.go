package top_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/kube-ipvs/kube-ipvs/internal/top"
)

// screenText is what a terminal was sent.
type screenText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *screenText) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *screenText) has(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.text.String(), text)
}

// keyboard is a pipe that ends with the test: a terminal's reader waits for what is no
// terminal until then.
func keyboard(t *testing.T) (io.Reader, io.Writer) {
	t.Helper()
	keys, press := io.Pipe()
	t.Cleanup(func() { _ = press.Close() })
	return keys, press
}

// The whole of it, on a terminal that is a pipe: samples come, keys are heard, q ends it.
func TestRunOnATerminal(t *testing.T) {
	n := newNode(t)
	keys, press := keyboard(t)
	var shown screenText
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- top.RunWith(ctx, n.source(), top.Screen{Every: 10 * time.Millisecond, Sort: top.ByName},
			tea.WithInput(keys), tea.WithOutput(&shown), tea.WithWindowSize(110, 12), tea.WithoutSignals(), tea.WithEnvironment([]string{"TERM=xterm"}))
	}()
	for _, step := range []struct{ wait, keys string }{{"shop/cart", "jj\r"}, {"10.244.1.7:8080", "q"}} {
		for !shown.has(step.wait) {
			select {
			case err := <-done:
				t.Fatalf("ended before %s was shown: %v", step.wait, err)
			case <-ctx.Done():
				t.Fatalf("%s was never shown", step.wait)
			case <-time.After(time.Millisecond):
			}
		}
		if _, err := io.WriteString(press, step.keys); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	keys, _ := keyboard(t)
	err := top.RunWith(ctx, newNode(t).source(), top.Screen{Every: time.Second}, tea.WithInput(keys), tea.WithOutput(io.Discard), tea.WithoutSignals())
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
}
