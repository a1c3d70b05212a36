package ipvs

import (
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/addresses"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/chains"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/migrate"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// base wants the sets, chains and jumps that every Service needs. They depend on the machine, on a
// takeover in progress and on what addresses need.
type base struct {
	host      *model.Host
	sets      *sets.Manager
	chains    *chains.Manager
	addresses *addresses.Manager
	takeover  *migrate.Takeover
}

// want renders sets, chains and jumps again.
func (b *base) want() {
	b.sets.Want(func(name string, f model.Family) bool { return !usesSet(b.needs(f), name) })
	b.chains.Want(chains.State{Node: b.host.Node, Takeover: b.takeover.Holding(), Ranges: b.addresses.Guarded(), Needs: b.needs})
}

// needs returns the chains and sets of a family that some address needs now.
func (b *base) needs(f model.Family) chains.Extras {
	direct, capture := b.addresses.Needs(f)
	return chains.Extras{Direct: direct, Capture: capture}
}

// usesSet reports whether rules use a set. Sets that no extra has are always used.
func usesSet(e chains.Extras, name string) bool {
	switch name {
	case sets.DirectIPs:
		return e.Direct
	case sets.Capture, sets.CaptureIPs:
		return e.Capture
	}
	return true
}

// guardsStale renders the rules again if they guard a range that is not local any more, and reports
// whether they did.
func (b *base) guardsStale() bool {
	if !b.addresses.GuardsStale() {
		return false
	}
	b.want()
	return true
}
