package kube

import (
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// Progress is how far one kind of object has come.
type Progress struct {
	// Synced: all objects of the kind were delivered once.
	Synced bool
	// Heard is when the server last said something about the kind: a list, an event,
	// a bookmark, of which a quiet watch has one a minute, or that a watch may begin,
	// which a server without bookmarks says every five to ten minutes.
	Heard time.Time
	// Err is why the last call failed and what helps, wrapped around the error of
	// client-go; nil while the kind is watched.
	Err error
	// Reason is Err in one word, empty without one.
	Reason Reason
	// Since is when the calls began to fail; the zero time without Err.
	Since time.Time
}

// record is the Progress of a kind and what the log was told of it.
type record struct {
	Progress
	told map[Reason]time.Time
	// announced: the log has a failure that it has not seen the end of.
	announced bool
}

// Progress tells how far each kind has come. It may be called from anywhere.
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

// heard notes that the server spoke. A list that came does not end an outage: where
// watches alone fail, lists succeed in between.
func (s *Source) heard(kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kinds[kind].Heard = time.Now()
}

// well notes that a kind is watched, which ends an outage.
func (s *Source) well(kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.kinds[kind]
	r.Heard = time.Now()
	if r.Err == nil {
		return
	}
	if r.announced {
		s.log.Info("API server answers again", zap.String("kind", kind), zap.Duration("after", r.Heard.Sub(r.Since)))
	}
	r.announced = false
	r.Err, r.Reason, r.Since = nil, "", time.Time{}
}

// synced notes that all objects of a kind were delivered.
func (s *Source) synced(kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.kinds[kind]
	if kind == nodes && !r.Synced {
		close(s.haveNodes)
	}
	r.Heard, r.Synced = time.Now(), true
}

// failed notes that a call failed; the reflector tries again. The log hears of each
// reason when it comes up, and every few minutes while it lasts or comes back.
func (s *Source) failed(kind, verb string, err error) {
	reason, err := explain(verb, kind, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	r, now := s.kinds[kind], time.Now()
	if r.Err == nil {
		r.Since = now
	}
	r.Err, r.Reason = err, reason
	if last, told := r.told[reason]; told && now.Sub(last) < remind {
		return
	}
	r.told[reason], r.announced = now, true
	s.log.Warn("API server does not answer as it should, will try again", zap.String("kind", kind), zap.String("reason", string(reason)),
		zap.Bool("synced", r.Synced), zap.Duration("for", now.Sub(r.Since)), zap.Error(err))
}

// tell tells the Sink what has been delivered: Nodes, then everything. What an outage of
// the server later hides is not gone, so this is never taken back.
func (s *Source) tell(sink source.Sink) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := source.Complete
	for kind, r := range s.kinds {
		switch {
		case kind == nodes && !r.Synced:
			return
		case !r.Synced:
			state = source.Coming
		}
	}
	if state > s.state {
		s.state = state
		sink.SetState(model.FromKube, state)
	}
}
