package plan

import (
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// compilation is the working state of one Compile.
type compilation struct {
	opts   *Options
	id     model.ServiceID
	svc    *model.Service
	slices []model.Slice
	notes  notes
	// remarks are about what is left out as the Service asks.
	remarks notes
	// rewritten lists the frontends that are not forwarded as asked.
	rewritten notes
	// ports are those of the Service that can be served; everything below counts
	// a port by its place here.
	ports []model.ServicePort
	// families and groups are filled by bind; see familyState and group.
	families [2]familyState
	// surveyed is what survey found, by family.
	surveyed [2]*survey
	groups   []group
	// unbound gathers the addresses that another machine needs, refused those that the
	// operator does not allow.
	unbound, refused []netip.Addr
	beyond           model.Beyond
	// most is how many frontends it may have.
	most int
	// targets are the ports of the slices, see targetsOf.
	targets []target
	// scratch is the storage of join's answer, used again for every group.
	scratch []candidate
}

// familyState has the data of a Service in one address family.
type familyState struct {
	// clusterIP is its cluster IP, the smallest of several. A family without a cluster IP
	// that is served has no frontends, as in kube-proxy.
	clusterIP netip.Addr
	// bind reports whether the cluster IP is to be bound.
	bind bool
	// ranges may use the load-balancer addresses; ownNode: this node may.
	ranges  []netip.Prefix
	ownNode bool
	// ready gathers the addresses of ready endpoints on this node for Health.
	ready []netip.Addr
}

func (s *familyState) served() bool { return s.clusterIP.IsValid() }

func (j *compilation) family(f model.Family) *familyState { return &j.families[familyIndex(f)] }

func familyIndex(f model.Family) int {
	if f == model.IPv6 {
		return 1
	}
	return 0
}
