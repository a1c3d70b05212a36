package dataplane

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/google/btree"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// wish has the claims of one Service, as it was planned.
type wish struct {
	born      int64            // as in claimant
	frontends []model.Frontend // sorted by key
}

// get finds the frontend for a key; nil is none.
func (w wish) get(k model.FrontendKey) *model.Frontend {
	i, found := slices.BinarySearchFunc(w.frontends, k, func(fe model.Frontend, k model.FrontendKey) int { return fe.Key.Compare(k) })
	if !found {
		return nil
	}
	return &w.frontends[i]
}

// claim is the claim of a Service on a key; zero is none.
func (w wish) claim(id model.ServiceID, k model.FrontendKey) claimant {
	if fe := w.get(k); fe != nil {
		return claimant{id, w.born, fe.Kind}
	}
	return claimant{}
}

// claimant is a Service with what decides its rank.
type claimant struct {
	id   model.ServiceID
	born int64      // Unix nanoseconds
	kind model.Kind // kind of the frontend that it wants under the key
}

func (c claimant) compare(o claimant) int {
	return cmp.Or(
		cmp.Compare(c.kind.Rank(), o.kind.Rank()),
		cmp.Compare(c.born, o.born),
		cmp.Compare(c.id.Origin.Rank(), o.id.Origin.Rank()),
		c.id.Compare(o.id),
	)
}

// birth is the age of a Service for comparisons; one without a date is the youngest.
func birth(p model.ServicePlan) int64 {
	if p.Created.IsZero() {
		return math.MaxInt64
	}
	return p.Created.UnixNano()
}

// Conflict means that Loser does not get Key because Winner has it; or that this is over, because
// Loser has it now or does not want it any more. It is reported when it begins and when it ends,
// but not when another Service becomes the winner, which would be a line for each loser.
type Conflict struct {
	Key           model.FrontendKey
	Winner, Loser model.ServiceID
	// Kind is Winner's kind of claim, if that decided; zero if age or name did.
	Kind model.Kind
	Over bool
}

// String describes it in a sentence for people.
func (c Conflict) String() string { return c.text(c.Winner.String()) }

func (c Conflict) text(winner string) string {
	switch {
	case c.Over:
		return fmt.Sprintf("%s: %s is in no conflict any more", c.Key, c.Loser)
	case c.Kind != 0:
		return fmt.Sprintf("%s belongs to %s, whose %s it is; %s does not get it", c.Key, winner, c.Kind.Noun(), c.Loser)
	}
	return fmt.Sprintf("%s belongs to %s, which comes first by age, then by name; %s does not get it", c.Key, winner, c.Loser)
}

// Public is String for a reader who has to do with the loser alone, such as of an Event: a
// winner in another namespace is not named.
func (c Conflict) Public() string {
	if c.Winner.Namespace == c.Loser.Namespace {
		return c.String()
	}
	return c.text("another Service")
}

// decisive returns the winner's kind if that decides against the loser's.
func decisive(winner, loser model.Kind) model.Kind {
	if winner.Rank() == loser.Rank() {
		return 0
	}
	return winner
}

// alone reports whether no other Service wants a key.
func (f *Frontends) alone(id model.ServiceID, k model.FrontendKey) bool {
	holder := f.inForce[k]
	return (holder == nil || holder.Service == id) && f.contested[k] == nil
}

// contest settles a key that others want, too, or wanted until now, by what one of them
// wanted and wants of it; zero is nothing. It returns whose frontend wins and what is new in
// the conflict: that Service and the two winners are all who can come to lose or stop losing.
func (f *Frontends) contest(k model.FrontendKey, wanted, wants claimant) (*model.Frontend, []Conflict) {
	all := f.claimants(k)
	first, _ := all.Min()
	lost := wanted != (claimant{}) && wanted.id != first.id
	all.Delete(wanted)
	if wants != (claimant{}) {
		all.ReplaceOrInsert(wants)
	}
	winner, _ := all.Min() // another Service wants it
	if all.Len() < 2 {
		delete(f.contested, k)
	} else {
		f.contested[k] = all
	}
	var out []Conflict
	loses := wants != (claimant{}) && wants.id != winner.id
	switch {
	case loses && !lost:
		out = append(out, lostTo(winner, wants, k))
	case lost && !loses:
		out = append(out, Conflict{Key: k, Loser: wanted.id, Over: true})
	}
	if winner.id != first.id {
		if wants.id != first.id && wanted.id != first.id {
			out = append(out, lostTo(winner, first, k))
		}
		if winner.id != wants.id {
			out = append(out, Conflict{Key: k, Loser: winner.id, Over: true})
		}
	}
	return f.services[winner.id].get(k), out
}

// claimants are all who want a key by now.
func (f *Frontends) claimants(k model.FrontendKey) *btree.BTreeG[claimant] {
	if all := f.contested[k]; all != nil {
		return all
	}
	const degree = 16
	all := btree.NewG(degree, func(a, b claimant) bool { return a.compare(b) < 0 })
	holder := f.inForce[k]
	all.ReplaceOrInsert(f.services[holder.Service].claim(holder.Service, k))
	return all
}

func lostTo(winner, loser claimant, k model.FrontendKey) Conflict {
	return Conflict{Key: k, Winner: winner.id, Loser: loser.id, Kind: decisive(winner.kind, loser.kind)}
}

// Conflicts lists all current conflicts, in no order.
func (f *Frontends) Conflicts() []Conflict {
	var out []Conflict
	for k, all := range f.contested {
		winner, _ := all.Min()
		all.AscendGreaterOrEqual(winner, func(c claimant) bool {
			if c != winner {
				out = append(out, lostTo(winner, c, k))
			}
			return true
		})
	}
	return out
}

// Lost lists what of it another Service has, sorted by key.
func (f *Frontends) Lost(id model.ServiceID) []Conflict {
	var out []Conflict
	for _, fe := range f.services[id].frontends {
		if holder := f.inForce[fe.Key]; holder.Service != id {
			out = append(out, Conflict{Key: fe.Key, Winner: holder.Service, Loser: id, Kind: decisive(holder.Kind, fe.Kind)})
		}
	}
	return out
}
