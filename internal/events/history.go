package events

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/cache"
)

// history keeps what was said last about each subject and how often, as far as it
// limits what may be said next. The least recently used subject is dropped when there
// are too many, each when its limits are full again: then nothing tells it from a new one.
type history struct {
	limits Limits

	mu       sync.Mutex // guards the entries, not just the cache
	subjects *cache.LRUExpireCache
}

type entry struct {
	text   string
	at     time.Time
	bucket *rate.Limiter
}

// verdict is the decision about a message.
type verdict int

const (
	admitted  verdict = iota
	repeated          // the same was said a moment ago
	excessive         // too much was said of this subject
)

func newHistory(l Limits) *history {
	return &history{limits: l, subjects: cache.NewLRUExpireCache(l.Subjects)}
}

// repeats reports whether the message was sent within the time of Limits.Repeat.
func (h *history) repeats(m message) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	e, ok := h.get(m.subject)
	return ok && h.same(e, m)
}

// admit decides about a message, and keeps it if it is to be sent.
func (h *history) admit(m message) verdict {
	h.mu.Lock()
	defer h.mu.Unlock()
	e, ok := h.get(m.subject)
	switch {
	case !ok:
		e = &entry{bucket: rate.NewLimiter(rate.Every(h.limits.SubjectEvery), h.limits.SubjectBurst)}
	case h.same(e, m):
		return repeated
	}
	if !e.bucket.Allow() {
		return excessive
	}
	e.text, e.at = m.text, m.at
	h.subjects.Add(m.subject, e, h.memory())
	return admitted
}

func (h *history) get(s subject) (*entry, bool) {
	v, ok := h.subjects.Get(s)
	if !ok {
		return nil, false
	}
	return v.(*entry), true
}

func (h *history) same(e *entry, m message) bool {
	return e.text == m.text && m.at.Sub(e.at) < h.limits.Repeat
}

// memory is how long an entry can matter: until its bucket is full and its text may be
// repeated.
func (h *history) memory() time.Duration {
	return max(h.limits.SubjectEvery*time.Duration(h.limits.SubjectBurst), h.limits.Repeat)
}
