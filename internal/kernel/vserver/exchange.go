package vserver

import (
	"context"
	"fmt"
	"slices"
	"syscall"
)

// chunk is a run of messages that go out in one system call. Message i of it
// has the sequence number first+i.
type chunk struct {
	first uint32
	count int
	last  int // offset of the last message
}

// begin opens the next message of a chunk.
func (h *Handle) begin(c *chunk, cmd uint8) int {
	h.seq++
	if c.count == 0 {
		c.first, h.out = h.seq, h.out[:0]
	}
	c.count++
	c.last = h.out.begin(h.family, nlRequest, h.seq, cmd)
	return c.last
}

// undo takes the last message back, for the case that it made the chunk too
// large for the socket. The offset of the one before is the caller's.
func (h *Handle) undo(c *chunk, previous int) {
	h.out = h.out[:c.last]
	h.seq--
	c.count--
	c.last = previous
}

// exchange sends a chunk and collects the answer to each message. The last one
// is acknowledged, which means that all before it are done; data is called with
// answers that carry rows. On an error the answers that did arrive are known
// and the others are not. The answers are good until the next exchange.
func (h *Handle) exchange(ctx context.Context, c chunk, data func(i int, m message) error) ([]answer, error) {
	h.answers = slices.Grow(h.answers[:0], c.count)[:c.count]
	answers := h.answers
	clear(answers)
	h.out.setFlag(c.last, nlAck)
	err := h.transact(ctx, c.count, c.first, func(m message) (bool, error) {
		i := int(m.seq - c.first)
		if m.kind != nlError {
			return false, data(i, m)
		}
		a, err := m.answer()
		answers[i] = a
		return i == c.count-1, err
	})
	if err != nil {
		return answers, err
	}
	for i := range answers {
		answers[i].known = true
	}
	return answers, nil
}

// noData is for exchanges that expect verdicts only.
func noData(int, message) error {
	return fmt.Errorf("%w: unexpected row", errMalformed)
}

// resolve asks for the family's number. The question makes the kernel load
// ip_vs by itself where module autoloading works.
func (h *Handle) resolve(ctx context.Context) error {
	h.family = nlCtrl
	var c chunk
	mark := h.begin(&c, ctrlGetFamily)
	h.family = 0
	h.out.name(ctrlFamilyName, familyName)
	h.out.end(mark)
	answers, err := h.exchange(ctx, c, func(_ int, m message) error { return h.readFamily(m) })
	switch {
	case err != nil:
		return fmt.Errorf("find family %s: %w", familyName, err)
	case answers[0].errno == syscall.ENOENT:
		return fmt.Errorf("find family %s: %w", familyName, ErrUnsupported)
	case answers[0].errno != 0:
		return fmt.Errorf("find family %s: %w", familyName, answers[0].fault())
	case h.family == 0:
		return fmt.Errorf("find family %s: %w: no number", familyName, errMalformed)
	}
	return nil
}

func (h *Handle) readFamily(m message) error {
	body, err := m.attributes()
	if err != nil {
		return err
	}
	f, err := readFields(body)
	if err != nil {
		return err
	}
	h.family, err = f.u16(ctrlFamilyID)
	return err
}

// doubtFamily looks up the family again before the next call if an answer may mean that the module
// was unloaded. Generic netlink answers ENOENT for a missing family, which IPVS itself seldom does.
func (h *Handle) doubtFamily(errno syscall.Errno) {
	if errno == syscall.ENOENT {
		h.family = 0
	}
}
