package logsink

import (
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// Most is how many bytes of lines a Sink keeps.
const Most = 1 << 20

// syncWithin bounds Sync.
const syncWithin = time.Second

// Sink implements zapcore.WriteSyncer; a call of Write is one line. It never waits and never
// fails.
type Sink struct {
	to      io.Writer
	most    int
	wake    chan struct{}
	end     chan struct{}
	dropped atomic.Uint64

	mu   sync.Mutex
	kept []byte
	// writing: some lines have been taken and are not written yet.
	writing bool
	idle    *sync.Cond
}

// New returns a Sink that writes to another writer and keeps so many bytes. Close ends it.
func New(to io.Writer, most int) *Sink {
	s := &Sink{to: to, most: most, wake: make(chan struct{}, 1), end: make(chan struct{})}
	s.idle = sync.NewCond(&s.mu)
	go s.run()
	return s
}

// Write takes a line, or drops it where too much is kept already.
func (s *Sink) Write(line []byte) (int, error) {
	s.mu.Lock()
	fits := len(s.kept)+len(line) <= s.most
	if fits {
		s.kept = append(s.kept, line...)
	}
	s.mu.Unlock()
	if !fits {
		s.dropped.Add(1)
		return len(line), nil
	}
	select {
	case s.wake <- struct{}{}:
	default: // it will look anyway
	}
	return len(line), nil
}

// Dropped is the number of lines that were dropped.
func (s *Sink) Dropped() uint64 { return s.dropped.Load() }

// Sync waits until all is written, for a second at most. It never fails: a reader that stalls is
// no reason to.
func (s *Sink) Sync() error {
	late := false
	timer := time.AfterFunc(syncWithin, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		late = true
		s.idle.Broadcast()
	})
	defer timer.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for !late && (s.writing || len(s.kept) > 0) {
		s.idle.Wait()
	}
	return nil
}

// Close writes what there is, like Sync. Later log lines are lost.
func (s *Sink) Close() {
	_ = s.Sync()
	close(s.end)
}

func (s *Sink) run() {
	for {
		select {
		case <-s.wake:
		case <-s.end:
			return
		}
		for lines := s.take(); lines != nil; lines = s.take() {
			_, _ = s.to.Write(lines) // there is no other place to tell
		}
	}
}

// take returns all lines that are kept, and nil where there are none.
func (s *Sink) take() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := s.kept
	s.kept, s.writing = nil, len(lines) > 0
	if !s.writing {
		s.idle.Broadcast()
		return nil
	}
	return lines
}
