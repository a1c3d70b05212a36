package events

import (
	"cmp"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/cache"
)

// Limits bound what one agent may cost the API server, and its own memory. A field that
// is zero has its default. The package comment has their meaning for a large cluster.
type Limits struct {
	// Burst Events about Services may go out at once, then one in each Every.
	Burst int           // 10
	Every time.Duration // 10 s
	// SubjectBurst Events of a kind about one object, then one in each SubjectEvery.
	SubjectBurst int           // 5
	SubjectEvery time.Duration // 5 min
	// Repeat is how long the same text of a kind about an object is not said again.
	Repeat time.Duration // 10 min
	// Queue is how many messages wait at most, of Services and of the Node each.
	Queue int // 512
	// Subjects is how many objects, times kinds, are kept for the limits above.
	Subjects int // 4,096
	// MaxAge is when a message that could not be sent is dropped.
	MaxAge time.Duration // 1 h
	// Timeout bounds one call to the API server.
	Timeout time.Duration // 10 s
}

func (l Limits) withDefaults() Limits {
	return Limits{
		Burst:        cmp.Or(l.Burst, 10),
		Every:        cmp.Or(l.Every, 10*time.Second),
		SubjectBurst: cmp.Or(l.SubjectBurst, 5),
		SubjectEvery: cmp.Or(l.SubjectEvery, 5*time.Minute),
		Repeat:       cmp.Or(l.Repeat, 10*time.Minute),
		Queue:        cmp.Or(l.Queue, 512),
		Subjects:     cmp.Or(l.Subjects, 4096),
		MaxAge:       cmp.Or(l.MaxAge, time.Hour),
		Timeout:      cmp.Or(l.Timeout, 10*time.Second),
	}
}

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
