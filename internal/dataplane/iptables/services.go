package iptables

import (
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// services renders Services into the tables.
type services struct {
	config    Config
	host      *model.Host
	frontends *dataplane.Frontends
	tables    *tables
	// inForce are the frontends of each Service that it really has.
	inForce map[model.ServiceID]map[model.FrontendKey]struct{}

	// Rows that several Services want are kept until the last one leaves.
	chainClaims *delta.Claims[model.ServiceID, netfilter.ChainKey, netfilter.Chain]
	entryClaims *delta.Claims[model.ServiceID, entry, struct{}]
	healthPorts *delta.Claims[model.ServiceID, entry, struct{}]
}

// clear drops all Services, and leaves their rows.
func (s *services) clear() {
	s.inForce = map[model.ServiceID]map[model.FrontendKey]struct{}{}
	s.chainClaims = delta.NewClaims[model.ServiceID, netfilter.ChainKey, netfilter.Chain](model.ServiceID.Compare)
	s.entryClaims = delta.NewClaims[model.ServiceID, entry, struct{}](model.ServiceID.Compare)
	s.healthPorts = delta.NewClaims[model.ServiceID, entry, struct{}](model.ServiceID.Compare)
}

// follow records which frontends each Service has after some changes, and returns the Services that have
// other ones than before.
func (s *services) follow(changes []dataplane.Change) map[model.ServiceID]struct{} {
	touched := map[model.ServiceID]struct{}{}
	for _, c := range changes {
		if c.Old != nil {
			touched[c.Old.Service] = struct{}{}
			delete(s.inForce[c.Old.Service], c.Key)
		}
		if c.New != nil {
			touched[c.New.Service] = struct{}{}
			if s.inForce[c.New.Service] == nil {
				s.inForce[c.New.Service] = map[model.FrontendKey]struct{}{}
			}
			s.inForce[c.New.Service][c.Key] = struct{}{}
		}
	}
	return touched
}

// render brings the rows of one Service into the tables.
func (s *services) render(id model.ServiceID) {
	r := s.rows(id)
	if len(s.inForce[id]) == 0 {
		delete(s.inForce, id)
	}
	for _, h := range s.chainClaims.Set(id, r.chains) {
		if h.Held {
			s.tables.chains.SetDesired(h.Key, h.Value)
		} else {
			s.tables.chains.DeleteDesired(h.Key)
		}
	}
	for _, h := range s.entryClaims.Set(id, r.entries) {
		s.tables.want(h.Key, h.Held)
	}
}

// renderAll brings the rows of all Services into the tables.
func (s *services) renderAll() {
	for id := range s.inForce {
		s.render(id)
	}
}

// rows returns the rows of the frontends that a Service has in force.
func (s *services) rows(id model.ServiceID) rows {
	frontends := make([]model.Frontend, 0, len(s.inForce[id]))
	for k := range s.inForce[id] {
		f, _ := s.frontends.Get(k)
		frontends = append(frontends, f)
	}
	slices.SortFunc(frontends, func(a, b model.Frontend) int { return a.Key.Compare(b.Key) })
	return s.config.render(frontends, s.host.Node)
}

// inPlace reports whether the rules of the Service are in place that has a frontend.
func (s *services) inPlace(k model.FrontendKey) bool {
	f, ok := s.frontends.Get(k)
	if !ok || s.tables.jumps.Counts().Updates > 0 {
		return false
	}
	r := s.rows(f.Service)
	for chain := range r.chains {
		want, _ := s.tables.chains.Desired(chain)
		if have, there := s.tables.chains.Believed(chain); !there || have != want {
			return false
		}
	}
	for e := range r.entries {
		if _, there := s.tables.entries.Believed(e); !there {
			return false
		}
	}
	return true
}

// setHealth opens the health-check port of a Service.
func (s *services) setHealth(id model.ServiceID, h model.HealthCheck) {
	for _, held := range s.healthPorts.Set(id, renderHealth(id, h)) {
		s.tables.want(held.Key, held.Held)
	}
}
