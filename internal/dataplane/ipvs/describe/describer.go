package describe

import (
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/announce"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/addresses"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/chains"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/destinations"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/servers"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Options describe a Describer.
type Options struct {
	Config    chains.Config
	Frontends *dataplane.Frontends
	// PickedUp reports whether connections to a frontend that another node began are to continue here, and
	// whether the kernel does it.
	PickedUp func(f *model.Frontend) (wanted, on bool)

	Sets         *sets.Manager
	Chains       *chains.Manager
	Servers      *servers.Manager
	Destinations *destinations.Manager
	Addresses    *addresses.Manager
	Tables       *delta.Table[nftables.Key, struct{}]
	Announced    *announce.Manager
}

// Describer implements dataplane.Explainer.
type Describer struct{ of Options }

// New returns a describer of some tables.
func New(o Options) *Describer { return &Describer{o} }

// Frontends implements dataplane.Explainer.
func (d *Describer) Frontends() *dataplane.Frontends { return d.of.Frontends }

// cond returns a if yes is true, else b.
func cond[T any](yes bool, a, b T) T {
	if yes {
		return a
	}
	return b
}
