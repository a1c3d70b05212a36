package conntrack

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"go.uber.org/zap"
)

// batchFlows is how many deletions are collected before they are sent. It is looked
// at after each datagram, which has up to about 200 flows: no batch is larger than
// 1,024, or than a socket takes at once.
const batchFlows = 800

// sweep is one pass over the table for the orders of one family.
type sweep struct {
	*Handle
	*hand
	wanted
	outcome Outcome
	batch   batch    // the message in hand.out
	refused refusals // refusals of deletions, by the kernel
}

// batch is a run of deletions that were not sent yet.
type batch struct {
	count       int
	first, last uint32 // numbers of its messages, among those of dumps
	offset      int    // offset of the last message
	fleeting    bool   // one of them goes only as long as it carries no connection
}

// refusals are deletions that the kernel did not do, for another reason than that
// the flow is gone.
type refusals struct {
	count int
	first syscall.Errno
}

// note counts an answer. A flow that is gone already counts as deleted.
func (r *refusals) note(errno syscall.Errno) {
	if errno == syscall.ENOENT {
		return
	}
	if r.count == 0 {
		r.first = errno
	}
	r.count++
}

func (r refusals) err() error {
	if r.count == 0 {
		return nil
	}
	return fmt.Errorf("delete %d flows: %w", r.count, r.first)
}

// errRefused: the kernel knows of filters and not of this one.
var errRefused = errors.New("filtered dump refused")

func (s *sweep) run(ctx context.Context) error {
	s.out = s.out[:0]
	err := s.read(ctx)
	// Flows that were found before a failure are deleted all the same.
	if flushErr := s.flush(ctx); flushErr != nil && err == nil {
		err = flushErr
	}
	return errors.Join(err, s.refused.err())
}

// read goes through the flows that are asked for. A kernel that does not filter is
// asked for everything, once.
func (s *sweep) read(ctx context.Context) error {
	queries := s.queries(s.opts.FilteredPorts, s.few)
	if s.all.Load() {
		queries = []query{everything}
	}
	for _, q := range queries {
		err := s.dump(ctx, q)
		if errors.Is(err, errRefused) {
			s.log.Info("kernel refuses filtered dumps, all flows are read", zap.Error(err))
			return s.dump(ctx, everything)
		}
		if err != nil || s.all.Load() {
			return err // all: this one dump gave everything
		}
		if err := s.flush(ctx); err != nil {
			return err // the flows to one port do not wait for those to another to be found
		}
	}
	return nil
}

// dump reads until the kernel gives a consistent answer.
func (s *sweep) dump(ctx context.Context, q query) error {
	pause := 20 * time.Millisecond
	for attempt := 1; ; attempt++ {
		err := s.dumpOnce(ctx, q)
		if err == nil || !errors.Is(err, ErrInterrupted) {
			return err
		}
		if attempt == s.opts.Attempts {
			return fmt.Errorf("%d attempts: %w", attempt, err)
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
		pause *= 2
	}
}

func (s *sweep) dumpOnce(ctx context.Context, q query) error {
	if err := s.ready(&s.dumps); err != nil {
		return err
	}
	s.seq++
	d := dump{sweep: s, query: q, seq: s.seq, seen: s.outcome.Seen, pace: newPace(s.opts.Rate)}
	known := s.all.Load()
	err := s.exchange(ctx, s.dumps, s.opts.DumpDeadline, q.appendDump(nil, d.seq, s.family), func(datagram []byte) (bool, error) {
		if done, err := digest(datagram, d.seq, d.seq, d.visit); done || err != nil {
			return done, err
		}
		if s.batch.count >= batchFlows || s.batch.fleeting {
			if err := s.flush(ctx); err != nil {
				return false, err
			}
		}
		return false, d.pace.rest(ctx, s.outcome.Seen-d.seen)
	})
	switch {
	case err != nil:
		s.drop(&s.dumps)
		return err
	case d.errno == syscall.EINTR || d.errno == 0 && d.interrupted:
		return ErrInterrupted
	case q != everything && (d.errno == syscall.EINVAL || d.errno == syscall.EOPNOTSUPP):
		return fmt.Errorf("%w: %w", errRefused, d.errno)
	case d.errno != 0:
		return fmt.Errorf("dump: %w", d.errno)
	}
	if q.whole() || s.all.Load() {
		s.outcome.Whole++
	}
	if q.match == matchProtocol {
		s.remember(q, s.outcome.Seen-d.seen)
	}
	if s.all.Load() && !known {
		s.log.Info("kernel does not filter dumps (it is older than 5.8), all flows are read")
	}
	return nil
}

// size is how many flows a dump of one protocol gave.
type size struct {
	family uint8
	query
}

// remember keeps the size of what a later sweep may want to read at once.
func (s *sweep) remember(q query, flows int) {
	q.few = false
	s.sizes.Store(size{s.family, q}, flows)
}

// few reports whether the last query of this kind returned few flows.
func (s *sweep) few(q query) bool {
	flows, known := s.sizes.Load(size{s.family, q})
	return known && flows.(int) <= fewFlows
}

// dump is one list that the kernel gives.
type dump struct {
	*sweep
	query       query
	seq         uint32
	seen        int // flows before it
	pace        *pace
	interrupted bool
	errno       syscall.Errno
}

func (d *dump) visit(m message) (done bool, err error) {
	d.interrupted = d.interrupted || m.flags&flagInterrupted != 0
	if m.kind != typeDone && m.kind != typeError {
		return false, d.meet(m.body)
	}
	d.errno = m.verdict()
	return true, nil
}

// meet looks at one flow. Orders for other keys than the one that was asked for
// are carried out too, so that a kernel that does not filter is asked once only.
func (d *dump) meet(body []byte) error {
	f, err := decodeFlow(body)
	if err != nil {
		return err
	}
	d.outcome.Seen++
	if f.destination.Addr().IsValid() && !d.query.answeredBy(f.tuple) {
		d.all.Store(true)
	}
	stale, err := d.stale(f)
	if err != nil || !stale {
		return err
	}
	d.outcome.Stale++
	if d.orders[f.key()].SparesConnections() {
		d.batch.fleeting = true // the answer may be on its way
	}
	return d.collect(f)
}

// stale reports whether a flow is to be deleted: because of the address that answers it, or because
// it keeps its client out.
func (w wanted) stale(f flow) (bool, error) {
	o, ours := w.orders[f.key()]
	_, fresh := w.fresh[f.sender()]
	if !ours && !fresh {
		return false, nil
	}
	reply, err := f.reply()
	if err != nil || !reply.source.IsValid() {
		return false, err
	}
	if ours {
		if !o.Stale(f.source.Addr(), reply.source) {
			return false, nil
		}
		if o.SparesConnections() {
			return f.idle()
		}
		return true, nil
	}
	unanswered, err := f.unanswered()
	return unanswered && reply == f.back(), err
}

// collect puts a deletion into the batch.
func (s *sweep) collect(f flow) error {
	mark := len(s.out)
	out, ok, err := f.appendDeletion(s.out, s.seq+1, s.family)
	if !ok {
		return err
	}
	s.seq++
	if s.batch.count == 0 {
		s.batch.first = s.seq
	}
	s.batch.count++
	s.batch.last, s.batch.offset, s.out = s.seq, mark, out
	return nil
}

// flush sends the batch. The kernel works through it in order and answers only
// what it refuses, and the last deletion, which is the one that asks for it.
func (s *sweep) flush(ctx context.Context) error {
	b, out := s.batch, s.out
	if b.count == 0 {
		return nil
	}
	s.batch, s.out = batch{}, s.out[:0]
	if err := s.ready(&s.kills); err != nil {
		return err
	}
	addFlag(out[b.offset:], flagAck)
	failed := 0
	err := s.exchange(ctx, s.kills, s.opts.Deadline, out, func(datagram []byte) (bool, error) {
		return digest(datagram, b.first, b.last, func(m message) (bool, error) {
			if m.kind != typeError {
				return false, nil
			}
			if errno := m.verdict(); errno != 0 {
				failed++
				s.refused.note(errno)
			}
			return m.seq == b.last, nil
		})
	})
	if err != nil {
		s.drop(&s.kills)
		s.out = nil // an abandoned call may still send it
		return fmt.Errorf("delete %d flows: %w", b.count, err)
	}
	s.outcome.Deleted += b.count - failed
	return nil
}
