package linktest

import (
	"context"
	"fmt"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
)

// ListAnnounced does what link.Handle.ListAnnounced does.
func (f *Fake) ListAnnounced(ctx context.Context, table uint32) (map[link.Announcement]struct{}, error) {
	if err := f.enter(ctx, ListAnnounced); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ourAnnouncements(table), nil
}

// RulesTo does what link.Handle.RulesTo does, with the rules of LeadTo.
func (f *Fake) RulesTo(ctx context.Context, table uint32) ([]uint32, error) {
	if err := f.enter(ctx, RulesTo); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rules[table], nil
}

// LeadTo has rules with these priorities lead to a table, and no others.
func (f *Fake) LeadTo(table uint32, priorities ...uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules[table] = priorities
}

// ourAnnouncements are those of one table, or of all for 0. The caller holds the lock.
func (f *Fake) ourAnnouncements(table uint32) map[link.Announcement]struct{} {
	out := map[link.Announcement]struct{}{}
	for a, ours := range f.announced {
		if ours && (table == 0 || a.Table == table) {
			out[a] = struct{}{}
		}
	}
	return out
}

// WriteAnnounced does what link.Handle.WriteAnnounced does.
func (f *Fake) WriteAnnounced(ctx context.Context, changes []link.AnnounceChange) []error {
	whole := f.enter(ctx, WriteAnnounced)
	f.mu.Lock()
	defer f.mu.Unlock()
	errs, failed := make([]error, len(changes)), 0
	for i, c := range changes {
		if err := f.announce(c, whole); err != nil {
			errs[i] = fmt.Errorf("%s: %w", c, err)
			failed++
		}
	}
	f.count.Rows += uint64(len(changes))
	f.count.Failed += uint64(failed)
	if failed == 0 {
		return nil
	}
	return errs
}

// announce does one row. The caller holds the lock.
func (f *Fake) announce(c link.AnnounceChange, whole error) error {
	if err := c.Check(); err != nil {
		return err
	}
	if whole != nil {
		return whole
	}
	if err := f.plan.row(c.Addr); err != nil {
		return err
	}
	ours, there := f.announced[c.Announcement]
	switch {
	case c.Op == link.Add && there && !ours:
		return fmt.Errorf("a route of another program to it %w", link.ErrExist)
	case c.Op == link.Add:
		f.announced[c.Announcement] = true
	case ours:
		delete(f.announced, c.Announcement)
	}
	return nil
}

// LoseAnnouncement removes an announcement of ours as another program would, and notifies the watch.
func (f *Fake) LoseAnnouncement(a link.Announcement) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.announced[a] {
		delete(f.announced, a)
		f.send(link.Event{Kind: link.OurAnnouncementLost, Announced: a})
	}
}

// AnnounceByHand adds a route that is not ours to an address; where there is one of ours it changes
// nothing.
func (f *Fake) AnnounceByHand(a link.Announcement) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, there := f.announced[a]; !there {
		f.announced[a] = false
	}
}

// RemoveAnnouncedByHand removes a route that is not ours.
func (f *Fake) RemoveAnnouncedByHand(a link.Announcement) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ours, there := f.announced[a]; there && !ours {
		delete(f.announced, a)
	}
}
