package file

import (
	"context"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// Source watches manifests and keeps a Sink up to date with them.
type Source struct {
	log    *zap.Logger
	opts   Options
	store  *store
	status atomic.Pointer[Status]
}

var _ source.Source = (*Source)(nil)

// Status is what the source knows about its files at one moment.
type Status struct {
	Path  string       `json:"path"`
	State source.State `json:"-"`
	// Files is how many manifests there are, Objects how many objects are in force.
	Files   int `json:"files"`
	Objects int `json:"objects"`
	// Trouble is why the files cannot be listed at all, empty when they can.
	Trouble string `json:"trouble,omitempty"`
	// Problems are sorted by file and place.
	Problems []Problem `json:"problems,omitempty"`
}

// New makes a source of the manifests at path, a directory or one file. Nothing
// is read before Run, and path need not exist yet. If path itself goes, that is
// trouble and no deletion; a file that goes from a directory takes its objects
// with it.
func New(log *zap.Logger, path string, opts Options) *Source {
	log = log.Named("file").With(zap.String("path", path))
	s := &Source{log: log, opts: opts.orDefaults(), store: newStore(log, path)}
	s.status.Store(&Status{Path: path})
	return s
}

// Status is safe to call at any time. The returned value is never changed.
func (s *Source) Status() Status { return *s.status.Load() }

// Unreadable names what cannot be read or is not valid as it is now: the path itself, or files
// of it, a line each with the first reason. The last good content of each stays in force. It is
// safe to call at any time.
func (s *Source) Unreadable() []string {
	now := s.Status()
	if now.Trouble != "" {
		return []string{now.Path + ": " + now.Trouble}
	}
	var out []string
	last := ""
	for _, p := range now.Problems { // sorted by file
		if p.BadFile && (out == nil || last != p.File) {
			out, last = append(out, p.String()), p.File
		}
	}
	return out
}

// Run delivers what is there, then every change, until ctx ends. It is called once. It returns nil:
// Status and the log report files that cannot be read.
func (s *Source) Run(ctx context.Context, sink source.Sink) error {
	w := newWatcher(s.log, s.store.path)
	defer w.close()
	poll := time.NewTicker(s.opts.Poll)
	defer poll.Stop()
	for {
		w.arm()
		s.sync(sink)
		if !s.wait(ctx, w.changes(), poll.C) {
			return nil
		}
	}
}

// wait returns when it is time to look again, false when ctx ended. After a
// change it waits until the files are left alone, though not for ever.
func (s *Source) wait(ctx context.Context, changes <-chan struct{}, poll <-chan time.Time) bool {
	select {
	case <-ctx.Done():
		return false
	case <-poll:
		return true
	case <-changes:
	}
	end := time.Now().Add(s.opts.Patience)
	quiet := time.NewTimer(min(s.opts.Quiet, s.opts.Patience))
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-quiet.C:
			return true
		case <-changes:
			quiet.Reset(min(s.opts.Quiet, time.Until(end)))
		}
	}
}

// sync looks at the files once and delivers what is different.
func (s *Source) sync(sink source.Sink) {
	before := s.status.Load()
	changed, err := s.store.refresh()
	if err != nil {
		s.trouble(before, err, sink)
		return
	}
	state := source.Partial
	if s.store.complete() {
		state = source.Complete
	}
	if !changed && before.Trouble == "" && before.State == state {
		return
	}
	set, deleted := s.store.registry.flush(sink)
	s.store.logClashes()
	s.publish(state, "")
	s.logSync(before, set, deleted)
	sink.SetState(origin, state)
}

// trouble keeps everything as it is. At the start it lets the other sources continue: nothing will
// be removed, because not all inputs are known.
func (s *Source) trouble(before *Status, err error, sink source.Sink) {
	state := max(before.State, source.Partial)
	if before.Trouble != err.Error() {
		s.log.Error("manifests not readable, last good content stays",
			zap.Int("kept", len(s.store.registry.sent)), zap.Error(err))
		s.publish(state, err.Error())
	}
	sink.SetState(origin, state)
}

func (s *Source) publish(state source.State, trouble string) {
	s.status.Store(&Status{
		Path: s.store.path, State: state, Trouble: trouble,
		Files: len(s.store.files), Objects: len(s.store.registry.sent),
		Problems: s.store.problems(),
	})
}

func (s *Source) logSync(before *Status, set, deleted int) {
	now := s.status.Load()
	if set+deleted > 0 || before.Trouble != "" {
		s.log.Info("manifests read", zap.Int("files", now.Files), zap.Int("objects", now.Objects),
			zap.Int("set", set), zap.Int("deleted", deleted), zap.Stringer("state", now.State))
	}
	if !s.store.everSeen && (before.State == source.Starting || before.Files != now.Files) {
		s.log.Warn("no manifests of Services, EndpointSlices or Nodes")
	}
}
