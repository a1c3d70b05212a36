package events

import (
	"context"
	"slices"
	"sync"
	"time"
)

// object is the object of an Event: Kind "Service" or "Node" of the core API.
type object struct{ kind, namespace, name string }

// subject is the unit of the limits: an object and a group of kinds.
type subject struct {
	object
	Kind
}

// message is an Event before it is sent. At is when it was said.
type message struct {
	subject
	text string
	at   time.Time
}

// queue holds what waits to be sent, one message of each subject: new words take the
// place of old ones. Kinds take turns, so a flood of one neither delays nor pushes out
// another. Any goroutine may call its methods.
type queue struct {
	limit int
	wake  chan struct{} // one slot, filled by push

	mu    sync.Mutex
	size  int
	lanes []*lane
	next  int // the lane whose turn it is
}

// lane is the part of a queue that holds one kind, oldest first.
type lane struct {
	kind    Kind
	order   []object
	waiting map[object]message
}

func newQueue(limit int) *queue {
	return &queue{limit: limit, wake: make(chan struct{}, 1)}
}

// push adds a message and reports whether it had to drop one: the oldest of the kind with the most
// messages.
func (q *queue) push(m message) (dropped bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lane(m.Kind)
	if _, waits := l.waiting[m.object]; !waits {
		l.order = append(l.order, m.object)
		q.size++
	}
	l.waiting[m.object] = m
	if q.size > q.limit {
		q.longest().shift()
		q.size--
		dropped = true
	}
	select {
	case q.wake <- struct{}{}:
	default: // another call wakes Run already
	}
	return dropped
}

// take waits for a message. It returns false when ctx ends.
func (q *queue) take(ctx context.Context) (message, bool) {
	for ctx.Err() == nil {
		if m, ok := q.pop(); ok {
			return m, true
		}
		select {
		case <-q.wake:
		case <-ctx.Done():
		}
	}
	return message{}, false
}

// pop takes the oldest message of the kind whose turn it is, if any waits.
func (q *queue) pop() (message, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for range q.lanes {
		l := q.lanes[q.next]
		q.next = (q.next + 1) % len(q.lanes)
		if len(l.order) > 0 {
			q.size--
			return l.shift(), true
		}
	}
	return message{}, false
}

// lane finds the lane of a kind, or opens it.
func (q *queue) lane(k Kind) *lane {
	i := slices.IndexFunc(q.lanes, func(l *lane) bool { return l.kind == k })
	if i >= 0 {
		return q.lanes[i]
	}
	l := &lane{kind: k, waiting: map[object]message{}}
	q.lanes = append(q.lanes, l)
	return l
}

func (q *queue) longest() *lane {
	return slices.MaxFunc(q.lanes, func(a, b *lane) int { return len(a.order) - len(b.order) })
}

// shift takes the oldest message out of a lane that is not empty.
func (l *lane) shift() message {
	o := l.order[0]
	l.order = l.order[1:]
	m := l.waiting[o]
	delete(l.waiting, o)
	return m
}
