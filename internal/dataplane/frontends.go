package dataplane

import (
	"slices"

	"github.com/google/btree"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Frontends decides which Service keeps each frontend. The strongest kind of claim wins
// (model.Kind.Rank), then the older Service (a Service without a date is the youngest). Then the
// one from Kubernetes wins, and then the first by namespace and name. It is the same for every
// mode, for two Services on one address and port must never mix their backends. An external IP
// never takes what was allocated to another Service.
type Frontends struct {
	// services have what each Service wants, if it wants anything.
	services map[model.ServiceID]wish
	// inForce are the frontends that were handed to the mode, in the lists of services.
	inForce map[model.FrontendKey]*model.Frontend
	// contested has all who want a key by rank, the holder first, where there are several. A
	// tenant may have thousands of Services claim one key, so it is a tree.
	contested map[model.FrontendKey]*btree.BTreeG[claimant]
}

// Change is one frontend that came (no Old), went (no New) or changed.
type Change struct {
	Key      model.FrontendKey
	Old, New *model.Frontend
}

// NewFrontends returns Frontends without any Service.
func NewFrontends() *Frontends {
	return &Frontends{
		services:  map[model.ServiceID]wish{},
		inForce:   map[model.FrontendKey]*model.Frontend{},
		contested: map[model.FrontendKey]*btree.BTreeG[claimant]{},
	}
}

// Set replaces what one Service wants; the plan's list is kept. It returns what changed
// for the mode and what changed in conflicts, both sorted by key. The cost is that of the
// keys which the Service wanted or wants, however many others want them.
func (f *Frontends) Set(plan model.ServicePlan) (changes []Change, conflicts []Conflict) {
	before, now := f.services[plan.ID], wish{birth(plan), plan.Frontends}
	if len(now.frontends) == 0 {
		delete(f.services, plan.ID)
	} else {
		f.services[plan.ID] = now
	}
	for _, k := range keysOf(before, now) {
		fe := now.get(k)
		if !f.alone(plan.ID, k) {
			var news []Conflict
			fe, news = f.contest(k, before.claim(plan.ID, k), now.claim(plan.ID, k))
			conflicts = append(conflicts, news...)
		}
		if ch, ok := f.enforce(k, fe); ok {
			changes = append(changes, ch)
		}
	}
	return changes, conflicts
}

// keysOf lists the keys of two wishes of one Service, sorted.
func keysOf(before, now wish) []model.FrontendKey {
	keys := make([]model.FrontendKey, 0, len(before.frontends)+len(now.frontends))
	for _, w := range []wish{before, now} {
		for i := range w.frontends {
			keys = append(keys, w.frontends[i].Key)
		}
	}
	slices.SortFunc(keys, model.FrontendKey.Compare)
	return slices.Compact(keys)
}

// enforce compares the frontend that a key has by now with the one in force.
func (f *Frontends) enforce(k model.FrontendKey, now *model.Frontend) (Change, bool) {
	old := f.inForce[k]
	if now == nil {
		delete(f.inForce, k)
		return Change{Key: k, Old: old}, old != nil
	}
	f.inForce[k] = now // an equal one, too, lest it keep alive the list that it is in
	if old != nil && old.Equal(*now) {
		return Change{}, false
	}
	return Change{Key: k, Old: old, New: now}, true
}

// Wanted lists what one Service wants, sorted by key, whether it gets it or not. The list
// is never changed.
func (f *Frontends) Wanted(id model.ServiceID) []model.Frontend { return f.services[id].frontends }

// Get returns the frontend in force for a key.
func (f *Frontends) Get(k model.FrontendKey) (model.Frontend, bool) {
	fe, ok := f.inForce[k]
	if !ok {
		return model.Frontend{}, false
	}
	return *fe, true
}

// Clear drops every Service and returns what that changes for the mode.
func (f *Frontends) Clear() []Change {
	var changes []Change
	for k, fe := range f.inForce {
		changes = append(changes, Change{Key: k, Old: fe})
	}
	*f = *NewFrontends()
	return changes
}
