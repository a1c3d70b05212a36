package rulewatch

import (
	"slices"
	"sync"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// watchedJumps are jumps that a flush of a table or of a hook removes, one for each hook
// (internal/DECISIONS.md, Repair of losses). The last two exist only in ipvs mode.
func watchedJumps(families []rules.Family) []rules.JumpKey {
	var out []rules.JumpKey
	for _, f := range families {
		for _, j := range [][3]string{
			{"nat", "PREROUTING", netfilter.ChainServices},
			{"nat", "OUTPUT", netfilter.ChainServices},
			{"nat", "POSTROUTING", netfilter.ChainPostrouting},
			{"filter", "FORWARD", netfilter.ChainForward},
			{"filter", "INPUT", netfilter.ChainFirewall},
			{"filter", "OUTPUT", netfilter.ChainServices},
			{"filter", "OUTPUT", netfilter.ChainOutFilter},
			{"mangle", "OUTPUT", netfilter.ChainOutFilter},
		} {
			out = append(out, rules.JumpKey{Family: f, Table: j[0], Hook: j[1], Target: j[2]})
		}
	}
	return out
}

// knownJumps are the jumps that were read or written, and that the agent has not deleted. All
// methods may be called from any goroutine.
type knownJumps struct {
	mu    sync.Mutex
	jumps map[rules.JumpKey]bool
}

// set records that a jump is in place, or that it is not to be.
func (s *knownJumps) set(k rules.JumpKey, inPlace bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record(k, inPlace)
}

// lost returns the jumps that are missing and were in place before. It records all others as in
// place.
func (s *knownJumps) lost(all, missing []rules.JumpKey) (lost []rules.JumpKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range all {
		switch {
		case !slices.Contains(missing, k):
			s.record(k, true)
		case s.jumps[k]:
			lost = append(lost, k)
		}
	}
	return lost
}

// record needs the lock.
func (s *knownJumps) record(k rules.JumpKey, inPlace bool) {
	if s.jumps == nil {
		s.jumps = map[rules.JumpKey]bool{}
	}
	s.jumps[k] = inPlace
}
