package ipsettest

import (
	"context"
	"errors"
	"fmt"
	"math/bits"

	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// Create makes an empty set, like Handle.Create.
func (f *Fake) Create(ctx context.Context, s ipset.Set) error {
	return f.named(ctx, ipset.OpCreate, s.Name, func() error {
		if err := s.Validate(); err != nil {
			return err
		}
		if _, err := f.find(s.Name); err == nil {
			return fmt.Errorf("set %w", ipset.ErrExist)
		}
		f.insert(rounded(s.WithDefaults()))
		return nil
	})
}

// CreateAll is Create for several sets, like Handle.CreateAll.
func (f *Fake) CreateAll(ctx context.Context, sets ...ipset.Set) []error {
	errs := make([]error, len(sets))
	for i, s := range sets {
		errs[i] = f.Create(ctx, s)
	}
	if errors.Join(errs...) == nil {
		return nil
	}
	return errs
}

// rounded gives a hash size as the kernel stores it: a power of two from 64.
func rounded(s ipset.Set) ipset.Set {
	if s.Type.Hash() {
		s.HashSize = 1 << bits.Len32(max(s.HashSize, 64)-1)
	}
	return s
}

// Destroy removes a set, like Handle.Destroy.
func (f *Fake) Destroy(ctx context.Context, name string) error {
	return f.named(ctx, ipset.OpDestroy, name, func() error {
		s, err := f.find(name)
		if err != nil {
			return err
		}
		if s.references > 0 {
			return fmt.Errorf("set is %w", ipset.ErrBusy)
		}
		f.remove(name)
		return nil
	})
}

// Flush removes all entries of a set, like Handle.Flush.
func (f *Fake) Flush(ctx context.Context, name string) error {
	return f.named(ctx, ipset.OpFlush, name, func() error {
		s, err := f.find(name)
		if err == nil {
			clear(s.members)
			clear(s.expires)
		}
		return err
	})
}

// Swap exchanges the content of two sets, like Handle.Swap. References stay with
// the names.
func (f *Fake) Swap(ctx context.Context, a, b string) error {
	return f.pair(ctx, ipset.OpSwap, a, b, func() error {
		x, err := f.find(a)
		if err != nil {
			return err
		}
		y, err := f.find(b)
		if err != nil {
			return fmt.Errorf("second %w", err)
		}
		if x.header.Type != y.header.Type || x.header.Family != y.header.Family {
			return fmt.Errorf("swap of different types is %w", ipset.ErrUnsupported)
		}
		x.header, y.header = y.header, x.header
		x.header.Name, y.header.Name = a, b
		x.members, y.members = y.members, x.members
		x.expires, y.expires = y.expires, x.expires
		return nil
	})
}

// Rename gives a set a new name, like Handle.Rename.
func (f *Fake) Rename(ctx context.Context, from, to string) error {
	return f.pair(ctx, ipset.OpRename, from, to, func() error {
		s, err := f.find(from)
		if err != nil {
			return err
		}
		if s.references > 0 {
			return fmt.Errorf("set is %w", ipset.ErrBusy)
		}
		if _, err := f.find(to); err == nil {
			return fmt.Errorf("new name %w", ipset.ErrExist)
		}
		s.header.Name = to
		return nil
	})
}

// Replace changes header and entries without a gap, like Handle.Replace. It is
// made of the fake's other calls, and their faults apply.
func (f *Fake) Replace(ctx context.Context, s ipset.Set, entries []ipset.Entry) error {
	return ipset.Replace(ctx, f, s, entries)
}

// ListSets returns all headers, like Handle.ListSets.
func (f *Fake) ListSets(ctx context.Context) ([]ipset.Set, error) {
	infos, err := f.Stat(ctx)
	if err != nil {
		return nil, err
	}
	sets := make([]ipset.Set, len(infos))
	for i := range infos {
		sets[i] = infos[i].Set
	}
	return sets, nil
}

// Stat returns all headers with counts, like Handle.Stat. Memory stays 0.
func (f *Fake) Stat(ctx context.Context) ([]ipset.Info, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.enter(ctx, ipset.OpList, "", ""); err != nil {
		return nil, &ipset.Error{Op: ipset.OpList, Set: "all sets", Err: err}
	}
	infos := []ipset.Info{}
	for _, s := range f.live() {
		infos = append(infos, ipset.Info{
			Set: s.header, Revision: 1, Elements: uint32(len(s.members)), References: s.references,
		})
	}
	return infos, nil
}

// List returns one set, like Handle.List. Entries come in order, less those that
// a Fault drops.
func (f *Fake) List(ctx context.Context, name string) (ipset.Set, []ipset.Entry, error) {
	var s *set
	var entries []ipset.Entry
	err := f.named(ctx, ipset.OpList, name, func() (err error) {
		if s, err = f.find(name); err != nil {
			return err
		}
		if !s.header.Type.Supported() {
			return fmt.Errorf("members of type %s: %w", s.header.Type, ipset.ErrUnsupported)
		}
		entries = f.dropped(name, s.list())
		return nil
	})
	if s == nil {
		return ipset.Set{}, nil, err
	}
	return s.header, entries, err
}

// named runs a call about one set under the lock, after the fault plan.
func (f *Fake) named(ctx context.Context, op ipset.Op, name string, do func() error) error {
	return f.run(ctx, &ipset.Error{Op: op, Set: name}, do)
}

// pair is named for two sets.
func (f *Fake) pair(ctx context.Context, op ipset.Op, a, b string, do func() error) error {
	return f.run(ctx, &ipset.Error{Op: op, Set: a, Other: b}, do)
}

func (f *Fake) run(ctx context.Context, where *ipset.Error, do func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := badName(where.Set); err != nil {
		where.Err = err
		return where
	}
	if where.Err = f.enter(ctx, where.Op, where.Set, where.Entry); where.Err == nil {
		where.Err = do()
	}
	if where.Err == nil {
		return nil
	}
	return where
}

// badName refuses what Handle refuses before it asks the kernel.
func badName(name string) error {
	probe := ipset.Set{Name: name, Type: ipset.BitmapPort}
	return probe.Validate()
}
