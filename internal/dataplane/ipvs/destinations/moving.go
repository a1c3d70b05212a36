package destinations

import (
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Moving implements dataplane.Drainer.
func (m *Manager) Moving(list *dataplane.MovingList) {
	for server, leaving := range m.drains.of {
		f, _ := m.frontends.Get(server)
		if !list.Chooses(&f) {
			continue
		}
		for k, d := range leaving {
			list.Add(backendOf(k), func() dataplane.Moving { return d.moving(&f, k) })
		}
	}
	now := time.Now()
	for server, coming := range m.slow.of {
		f, _ := m.frontends.Get(server)
		if !list.Chooses(&f) {
			continue
		}
		for k, c := range coming {
			list.Add(backendOf(k), func() dataplane.Moving { return c.moving(&f, k, now) })
		}
	}
}

func (d drain) moving(f *model.Frontend, k vserver.DestinationKey) dataplane.Moving {
	one := moving(f, k)
	one.Since, one.Connections = d.stopped, d.connections()
	one.Active, one.Inactive = d.last.Active, d.last.Inactive
	if end, limited := d.deadline(); limited {
		one.Until = end
	}
	return one
}

func (c warmup) moving(f *model.Frontend, k vserver.DestinationKey, now time.Time) dataplane.Moving {
	one := moving(f, k)
	weight, _ := weightOf(f.Backends, one.Backend)
	one.Climbs, one.Full = true, weight*scale(f)
	one.Weight, one.Since, one.Until = c.weight(now, one.Full), c.since.Add(-c.done), c.end()
	return one
}

func moving(f *model.Frontend, k vserver.DestinationKey) dataplane.Moving {
	return dataplane.Moving{
		Frontend: k.Server, Service: f.Service, PortName: f.PortName, Backend: backendOf(k),
	}
}

// connections returns what the latest count has shown.
func (d drain) connections() dataplane.ConnectionState {
	switch {
	case !d.counted:
		return dataplane.ConnectionsUnknown
	case d.last.Active > 0:
		return dataplane.ConnectionsOpen
	case d.last.Inactive > 0:
		return dataplane.ConnectionsClosed
	}
	return dataplane.ConnectionsNone
}
