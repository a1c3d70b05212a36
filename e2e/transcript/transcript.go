// Package transcript keeps what a program prints, for tests that look at it while the program runs.
package transcript

import (
	"bytes"
	"strings"
	"sync"
)

// Transcript is a writer that several goroutines may use. Its zero value is empty.
type Transcript struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (t *Transcript) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.Write(p)
}

// String returns all of it.
func (t *Transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}

// Tail returns its last 60 lines.
func (t *Transcript) Tail() string {
	lines := strings.Split(t.String(), "\n")
	return strings.Join(lines[max(0, len(lines)-60):], "\n")
}
