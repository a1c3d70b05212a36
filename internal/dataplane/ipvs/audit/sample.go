package audit

import (
	"context"
	"errors"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

// sampledServers is how many virtual servers a sample reads. On a node with few servers each sample reads
// all of them. Where half of many servers are lost, one sample in 256 does not show it.
const sampledServers = 8

// Sample implements dataplane.Auditor. It compares how many entries each set has, which
// the headers of sets carry (ipset.Info), and some virtual servers, chosen at random.
func (a *Auditor) Sample(ctx context.Context) (dataplane.Sampled, error) {
	_, untuned := a.retune(ctx)
	entries, unlisted := a.of.Sets.Sample(ctx)
	servers, unread := a.inspectServers(ctx, a.someServers())
	out := dataplane.Sampled{Drift: dataplane.Drift{}, Doubt: servers.Total() > 0}
	servers["members"] = entries
	for table, n := range servers {
		if n > 0 {
			out.Drift[table] = n
		}
	}
	if out.Doubt {
		a.inspections = a.round(true)
	}
	return out, errors.Join(untuned, unlisted, unread)
}

// someServers chooses from the servers known to be there.
func (a *Auditor) someServers() []vserver.ServerKey {
	keys := make([]vserver.ServerKey, 0, sampledServers)
	for k := range a.of.Servers.Actual() { // Go begins to go over a map at a random place
		if keys = append(keys, k); len(keys) == sampledServers {
			break
		}
	}
	return keys
}
