package rules

import (
	"context"
	"strings"
	"sync"
)

// keptListings are the last listings of families, for as long as nobody has written
// rules since: a process less where nothing has changed. Whether something has, the
// generation tells (Options.Generation); the tools' own lock is held by one writer at a
// time, and other writers of nftables count in the same number.
type keptListings struct {
	mu sync.Mutex
	by map[Family]*keptListing
}

// keptListing is one listing and the generations of which it is true.
type keptListing struct {
	out    []byte
	tables []SaveTable
	// all is the generation that the whole listing is of, and hooks the one up to which
	// built-in chains are as they are in it; 0 is none.
	all, hooks uint64
}

// keep remembers a small listing of generation g.
func (k *keptListings) keep(f Family, g uint64, out []byte, tables []SaveTable) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.by, f)
	if g != 0 && len(out) <= smallListing {
		if k.by == nil {
			k.by = map[Family]*keptListing{}
		}
		k.by[f] = &keptListing{out: out, tables: tables, all: g, hooks: g}
	}
}

// find returns the listing that is true of generation g, of its built-in chains at least
// if hooks says so; nil for none.
func (k *keptListings) find(f Family, g uint64, hooks bool) *keptListing {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.by[f]
	if l == nil || g == 0 || l.all != g && (!hooks || l.hooks != g) {
		return nil
	}
	return l
}

// wrote notes that rules of a family were written by us alone between two generations:
// other families are as they were, and our own built-in chains, too, if hooks is false.
func (k *keptListings) wrote(f Family, before, after uint64, hooks bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for g, l := range k.by {
		if l.all == before && g != f {
			l.all = after
		}
		if l.hooks == before && (g != f || !hooks) {
			l.hooks = after
		}
	}
}

// Generation is a number that each transaction of nftables in this network namespace
// changes, by whomever (Options.Generation); 0 where none is known, and so with legacy. It
// may be called from any goroutine.
func (h *Handle) Generation(ctx context.Context) uint64 { return h.opts.generation(ctx, h.backend) }

// generation is that of the rules; 0 where none is known.
func (o Options) generation(ctx context.Context, b Backend) uint64 {
	if o.Generation == nil || b != NFT {
		return 0
	}
	g, err := o.Generation(ctx)
	if err != nil {
		return 0
	}
	return g
}

// noting runs a restore of text and notes what it leaves true of listings. A table is a
// transaction: more, or fewer, than the text has tables were not ours alone.
func (h *Handle) noting(ctx context.Context, f Family, text string, hooks bool, restore func() error) error {
	before := h.Generation(ctx)
	err := restore()
	after := h.Generation(ctx)
	if err == nil && before != 0 && after == before+uint64(strings.Count(text, "COMMIT\n")) {
		h.kept.wrote(f, before, after, hooks)
	}
	return err
}
