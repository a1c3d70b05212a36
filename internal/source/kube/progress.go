package kube

import (
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// Progress is the state of one kind of objects.
type Progress struct {
	// Synced: all objects of the kind were delivered once.
	Synced bool
	// Heard is the time of the server's last answer about the kind. Answers are a list, an event, a
	// bookmark (one a minute on an idle watch), or the start of a watch (every five to ten minutes
	// without bookmarks).
	Heard time.Time
	// Err is why the last call failed, with a remedy, wrapped around the error of client-go; nil
	// while the kind is watched.
	Err error
	// Reason is Err in one word, empty without one.
	Reason Reason
	// Since is when the calls began to fail; the zero time without Err.
	Since time.Time
}

// record is the Progress of a kind, and what was logged about it.
type record struct {
	Progress
	told map[Reason]time.Time
	// announced: a failure was logged, and its end was not.
	announced bool
}

// Progress returns the state of each kind. It may be called from any goroutine.
func (s *Source) Progress() map[string]Progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]Progress, len(s.kinds))
	for name, r := range s.kinds {
		out[name] = r.Progress
	}
	return out
}

func (s *Source) begin(kinds []kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range kinds {
		s.kinds[k.name] = &record{told: map[Reason]time.Time{}}
	}
}

// markSeen records an answer of the server. A list does not end an outage: lists succeed while
// watches fail.
func (s *Source) markSeen(kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kinds[kind].Heard = time.Now()
}

// markHealthy records that a kind is watched, which ends an outage.
func (s *Source) markHealthy(kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.kinds[kind]
	r.Heard = time.Now()
	if r.Err == nil {
		return
	}
	if r.announced {
		s.log.Info("the API server answers again", zap.String("kind", kind), zap.Duration("after", r.Heard.Sub(r.Since)))
	}
	r.announced = false
	r.Err, r.Reason, r.Since = nil, "", time.Time{}
}

// synced records that all objects of a kind were delivered.
func (s *Source) synced(kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.kinds[kind]
	if kind == nodes && !r.Synced {
		close(s.haveNodes)
	}
	r.Heard, r.Synced = time.Now(), true
}

// failed records a failed call; the reflector tries again. Each reason is logged when it begins, and
// every few minutes while it lasts or comes back.
func (s *Source) failed(kind, verb string, err error) {
	reason, err := explain(verb, kind, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	r, now := s.kinds[kind], time.Now()
	if r.Err == nil {
		r.Since = now
	}
	r.Err, r.Reason = err, reason
	if last, told := r.told[reason]; told && now.Sub(last) < logRepeatInterval {
		return
	}
	r.told[reason], r.announced = now, true
	s.log.Warn("calls to the API server fail, will be tried again", zap.String("kind", kind), zap.String("reason", string(reason)),
		zap.Bool("synced", r.Synced), zap.Duration("for", now.Sub(r.Since)), zap.Error(err))
}

// report passes on to the Sink what has been delivered: Nodes, then everything. A state is never
// taken back, because objects that an outage of the server hides later are not gone.
func (s *Source) report(sink source.Sink) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := source.Complete
	for kind, r := range s.kinds {
		switch {
		case kind == nodes && !r.Synced:
			return
		case !r.Synced:
			state = source.Listing
		}
	}
	if state > s.state {
		s.state = state
		sink.SetState(model.FromKube, state)
	}
}
