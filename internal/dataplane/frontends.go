package dataplane

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Frontends settles which Service keeps each frontend: the older one (a Service
// without a date is the youngest), then the one from Kubernetes, then the first
// by namespace and name. It is the same for every mode, for two Services on one
// address and port must never mix their backends.
type Frontends struct {
	claims *delta.Claims[claimant, model.FrontendKey, model.Frontend]
	// known is the claimant that stands for each Service.
	known map[model.ServiceID]claimant
	// inForce are the frontends that were handed to the mode.
	inForce map[model.FrontendKey]model.Frontend
	// contested lists who wants a key, the holder first, where there are several.
	contested map[model.FrontendKey][]claimant
}

// claimant is a Service with what decides its rank.
type claimant struct {
	id   model.ServiceID
	born int64 // Unix nanoseconds
}

func (c claimant) compare(o claimant) int {
	return cmp.Or(
		cmp.Compare(c.born, o.born),
		cmp.Compare(c.id.Origin.Rank(), o.id.Origin.Rank()),
		c.id.Compare(o.id),
	)
}

func claimantOf(p model.ServicePlan) claimant {
	c := claimant{id: p.ID, born: math.MaxInt64}
	if !p.Created.IsZero() {
		c.born = p.Created.UnixNano()
	}
	return c
}

// Change is one frontend that came (no Old), went (no New) or changed.
type Change struct {
	Key      model.FrontendKey
	Old, New *model.Frontend
}

// Conflict says that Loser does not get Key because Winner has it; or that this
// is over, because Loser has it now or does not want it any more.
type Conflict struct {
	Key           model.FrontendKey
	Winner, Loser model.ServiceID
	Over          bool
}

// String says it in a sentence for people.
func (c Conflict) String() string {
	if c.Over {
		return fmt.Sprintf("%s: %s is in no conflict any more", c.Key, c.Loser)
	}
	return fmt.Sprintf("%s belongs to %s, which comes first by age, then by name; %s does not get it", c.Key, c.Winner, c.Loser)
}

// NewFrontends returns Frontends without any Service.
func NewFrontends() *Frontends {
	return &Frontends{
		claims:    delta.NewClaims[claimant, model.FrontendKey, model.Frontend](claimant.compare),
		known:     map[model.ServiceID]claimant{},
		inForce:   map[model.FrontendKey]model.Frontend{},
		contested: map[model.FrontendKey][]claimant{},
	}
}

// Set replaces what one Service wants. It returns what changed for the mode and
// what changed in conflicts, both sorted by key. The cost is that of the keys
// which the Service wanted or wants.
func (f *Frontends) Set(plan model.ServicePlan) ([]Change, []Conflict) {
	c := claimantOf(plan)
	rows := make(map[model.FrontendKey]model.Frontend, len(plan.Frontends))
	for _, fe := range plan.Frontends {
		rows[fe.Key] = fe
	}
	var touched []model.FrontendKey
	if old, ok := f.known[plan.ID]; ok && old != c {
		touched = f.claim(old, nil) // created anew: it has lost its old rank
	}
	touched = append(touched, f.claim(c, rows)...)
	if len(rows) == 0 {
		delete(f.known, plan.ID)
	} else {
		f.known[plan.ID] = c
	}
	slices.SortFunc(touched, model.FrontendKey.Compare)
	return f.settle(slices.Compact(touched))
}

func (f *Frontends) claim(c claimant, rows map[model.FrontendKey]model.Frontend) []model.FrontendKey {
	holdings := f.claims.Set(c, rows)
	keys := make([]model.FrontendKey, len(holdings))
	for i, h := range holdings {
		keys[i] = h.Key
	}
	return keys
}

// settle compares the touched keys with what is in force.
func (f *Frontends) settle(keys []model.FrontendKey) (changes []Change, conflicts []Conflict) {
	for _, k := range keys {
		if ch, ok := f.enforce(k); ok {
			changes = append(changes, ch)
		}
		conflicts = append(conflicts, f.judge(k)...)
	}
	return changes, conflicts
}

func (f *Frontends) enforce(k model.FrontendKey) (Change, bool) {
	h := f.claims.Holder(k)
	old, was := f.inForce[k]
	ch := Change{Key: k}
	if was {
		ch.Old = &old
	}
	if !h.Held {
		delete(f.inForce, k)
		return ch, was
	}
	if was && old.Equal(h.Value) {
		return Change{}, false
	}
	f.inForce[k] = h.Value
	ch.New = &h.Value
	return ch, true
}

// judge says what is new in the conflict over one key, if there is one.
func (f *Frontends) judge(k model.FrontendKey) []Conflict {
	before, now := f.contested[k], f.claims.Claimants(k)
	if len(now) < 2 {
		now = nil
		delete(f.contested, k)
	} else {
		f.contested[k] = now
	}
	var out []Conflict
	for _, c := range now[min(1, len(now)):] {
		if len(before) == 0 || before[0] != now[0] || !slices.Contains(before[1:], c) {
			out = append(out, Conflict{Key: k, Winner: now[0].id, Loser: c.id})
		}
	}
	for _, c := range before[min(1, len(before)):] {
		if !slices.Contains(now[min(1, len(now)):], c) {
			out = append(out, Conflict{Key: k, Loser: c.id, Over: true})
		}
	}
	return out
}

// Conflicts lists all that stand, in no order.
func (f *Frontends) Conflicts() []Conflict {
	var out []Conflict
	for k, list := range f.contested {
		for _, c := range list[1:] {
			out = append(out, Conflict{Key: k, Winner: list[0].id, Loser: c.id})
		}
	}
	return out
}

// Get returns the frontend in force for a key.
func (f *Frontends) Get(k model.FrontendKey) (model.Frontend, bool) {
	fe, ok := f.inForce[k]
	return fe, ok
}

// Clear forgets every Service and returns what that changes for the mode.
func (f *Frontends) Clear() []Change {
	var changes []Change
	for k, fe := range f.inForce {
		changes = append(changes, Change{Key: k, Old: &fe})
	}
	*f = *NewFrontends()
	return changes
}
