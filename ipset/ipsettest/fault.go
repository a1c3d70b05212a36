package ipsettest

import (
	"context"
	"os"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// Fault is one line of a fault plan. It applies to calls that match all of Op,
// Set and Entry, where zero values match everything. Rows of a Write are calls
// of OpAdd or OpDelete with their entry.
type Fault struct {
	Op    ipset.Op
	Set   string
	Entry string // text of the entry

	// Nth makes only the nth matching call fail, counted from 1; 0 means all.
	Nth int

	// One of the following happens. Err is returned and the call has no effect.
	// Hang waits until the call's context ends. Drop hides entries from a list.
	Err  error
	Hang bool
	Drop func(ipset.Entry) bool
}

// armed is a fault and how many calls it has matched.
type armed struct {
	Fault
	seen int
}

// Inject adds faults to the plan. The first that applies to a call decides.
func (f *Fake) Inject(faults ...Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fault := range faults {
		f.faults = append(f.faults, &armed{Fault: fault})
	}
}

// Heal removes all faults.
func (f *Fake) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = nil
}

// enter counts a call and applies the plan to it. The lock is held, and let go
// while the call hangs.
func (f *Fake) enter(ctx context.Context, op ipset.Op, name, entry string) error {
	if f.closed {
		return os.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	f.counts.Calls[op]++
	fault := f.match(op, name, entry)
	switch {
	case fault == nil:
		return nil
	case fault.Hang:
		f.mu.Unlock()
		<-ctx.Done()
		f.mu.Lock()
		return ctx.Err()
	}
	return fault.Err
}

// match counts the call for every fault that covers it and returns the first
// whose turn it is. Faults that only shorten lists are left to dropped.
func (f *Fake) match(op ipset.Op, name, entry string) *armed {
	var hit *armed
	for _, a := range f.faults {
		if a.Drop != nil || !a.covers(op, name, entry) {
			continue
		}
		a.seen++
		if hit == nil && (a.Nth == 0 || a.Nth == a.seen) {
			hit = a
		}
	}
	return hit
}

func (a *armed) covers(op ipset.Op, name, entry string) bool {
	return (a.Op == 0 || a.Op == op) && (a.Set == "" || a.Set == name) && (a.Entry == "" || a.Entry == entry)
}

// dropped returns the entries that no fault hides.
func (f *Fake) dropped(name string, entries []ipset.Entry) []ipset.Entry {
	for _, a := range f.faults {
		if a.Drop == nil || !a.covers(ipset.OpList, name, "") {
			continue
		}
		a.seen++
		if a.Nth == 0 || a.Nth == a.seen {
			entries = slices.DeleteFunc(entries, a.Drop)
		}
	}
	return entries
}
