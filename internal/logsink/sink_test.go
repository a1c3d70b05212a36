package logsink_test

import (
	"bytes"
	"os"
	"strings"
	"sync"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/kube-ipvs/kube-ipvs/internal/logsink"
)

// stalled is a reader that reads nothing until it is released.
type stalled struct {
	free chan struct{}

	mu   sync.Mutex
	text bytes.Buffer
}

func (s *stalled) Write(p []byte) (int, error) {
	<-s.free
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

// TestStalledReaderStopsNothing: lines are kept up to the bound, the others are counted, and what was kept
// comes out in order when it is read again.
func TestStalledReaderStopsNothing(t *testing.T) {
	to := &stalled{free: make(chan struct{})}
	sink := logsink.New(to, 100)
	defer sink.Close()
	line := []byte("0123456789")
	for range 1000 {
		if n, err := sink.Write(line); n != len(line) || err != nil {
			t.Fatalf("Write = %d, %v", n, err)
		}
	}
	// The first lines may have been taken already, to be written.
	if dropped := sink.Dropped(); dropped < 980 || dropped > 990 {
		t.Errorf("%d lines of 1000 dropped, with room for 10, and 10 at most under way", dropped)
	}
	close(to.free)
	_ = sink.Sync()
	to.mu.Lock()
	defer to.mu.Unlock()
	if got, want := uint64(to.text.Len()/len(line)), 1000-sink.Dropped(); got != want || strings.Trim(to.text.String(), "0123456789") != "" {
		t.Errorf("%d lines written, want %d", got, want)
	}
}

// TestSyncIsBounded: the end of the program does not wait for a reader that stalls.
func TestSyncIsBounded(t *testing.T) {
	to := &stalled{free: make(chan struct{})}
	defer close(to.free)
	sink := logsink.New(to, 100)
	defer sink.Close()
	_, _ = sink.Write([]byte("a line"))
	if err := sink.Sync(); err != nil {
		t.Error(err)
	}
}

// TestLoggerOverAFullPipe: a logger goes on over a pipe that is read by no process.
func TestLoggerOverAFullPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	sink := logsink.New(w, logsink.Most)
	defer sink.Close()
	log := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), sink, zap.InfoLevel))
	for range 100_000 {
		log.Info("a line of a hundred bytes, more or less, as the agent writes them when it says what it does")
	}
	if sink.Dropped() == 0 {
		t.Error("all lines fitted, so nothing was tried")
	}
}
