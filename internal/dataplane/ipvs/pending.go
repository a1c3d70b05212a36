package ipvs

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// This file puts what is not in place, and what moves, into words, for those who only read.

// Pending implements dataplane.Explainer.
func (m *Mode) Pending(most int) []dataplane.PendingTable {
	all := []dataplane.PendingTable{
		pendingOf(m.sets.Sets, most, setCommand),
		pendingOf(m.sets.Members, most, memberCommand),
		pendingOf(m.chains, most, netfilter.ChainCommand),
		pendingOf(m.jumps, most, netfilter.JumpCommand),
		pendingOf(m.servers, most, func(c delta.Change[vserver.ServerKey, vserver.Server]) string {
			return vserver.ServerCommand(vserver.ServerChange{Op: serverOps[c.Op], Key: c.Key, Server: c.Value})
		}),
		pendingOf(m.destinations, most, func(c delta.Change[vserver.DestinationKey, vserver.Destination]) string {
			return vserver.DestinationCommand(vserver.DestinationChange{Op: serverOps[c.Op], Key: c.Key, Destination: c.Value})
		}),
		pendingOf(m.routes, most, func(c delta.Change[netip.Prefix, struct{}]) string {
			return ipCommand(c.Op, "route", fmt.Sprintf("local %s dev lo proto %d", c.Key, link.RouteProtocol))
		}),
		pendingOf(m.addresses, most, func(c delta.Change[netip.Addr, struct{}]) string {
			return ipCommand(c.Op, "addr", fmt.Sprintf("%s dev %s", netip.PrefixFrom(c.Key, c.Key.BitLen()), link.DefaultName))
		}),
		pendingOf(m.detached, most, func(c delta.Change[netip.Addr, bool]) string {
			return ipCommand(c.Op, "route", fmt.Sprintf("local %s dev lo table %d proto %d", c.Key, link.DetachedTable, link.RouteProtocol))
		}),
		pendingOf(m.tables, most, func(c delta.Change[nftables.Key, struct{}]) string {
			return fmt.Sprintf("nft %s table %s", c.Op, c.Key)
		}),
	}
	return slices.DeleteFunc(all, func(t dataplane.PendingTable) bool { return len(t.Rows) == 0 && t.More == 0 })
}

func pendingOf[K comparable, V any](t *delta.Table[K, V], most int, text func(delta.Change[K, V]) string) dataplane.PendingTable {
	return dataplane.ListPending(t.Name(), t.Tracker, most, text)
}

// setCommand says how to make a set what it should be; one of another shape is replaced.
func setCommand(c delta.Change[string, ipset.Set]) string {
	if c.Op == delta.Delete {
		return "ipset destroy " + c.Key
	}
	return "ipset " + c.Value.SaveLine()
}

func memberCommand(c delta.Change[sets.Key, struct{}]) string {
	line := c.Key.Entry.SaveLine(c.Key.Set)
	if c.Op == delta.Delete {
		line = "del" + strings.TrimPrefix(line, "add")
	}
	return "ipset " + line
}

// ipCommand is one of ip(8).
func ipCommand(op delta.Op, object, words string) string {
	verb := "add"
	if op == delta.Delete {
		verb = "del"
	}
	return "ip " + object + " " + verb + " " + words
}

// Moving implements dataplane.Drainer.
func (m *Mode) Moving(list *dataplane.MovingList) {
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
	for server, coming := range m.ramp.of {
		f, _ := m.frontends.Get(server)
		if !list.Chooses(&f) {
			continue
		}
		for k, c := range coming {
			list.Add(backendOf(k), func() dataplane.Moving { return c.moving(&f, k, now) })
		}
	}
}

func backendOf(k vserver.DestinationKey) netip.AddrPort { return netip.AddrPortFrom(k.Addr, k.Port) }

func (d drain) moving(f *model.Frontend, k vserver.DestinationKey) dataplane.Moving {
	one := moving(f, k)
	one.Since, one.Connections = d.stopped, d.connections()
	one.Active, one.Inactive = d.last.Active, d.last.Inactive
	if end, limited := d.deadline(); limited {
		one.Until = end
	}
	return one
}

func (c climb) moving(f *model.Frontend, k vserver.DestinationKey, now time.Time) dataplane.Moving {
	one := moving(f, k)
	weight, _ := weighs(f.Backends, one.Backend)
	one.Climbs, one.Full = true, weight*scale(f)
	one.Weight, one.Since, one.Until = c.weight(now, one.Full), c.since.Add(-c.done), c.end()
	return one
}

func moving(f *model.Frontend, k vserver.DestinationKey) dataplane.Moving {
	return dataplane.Moving{
		Frontend: k.Server, Service: f.Service, PortName: f.PortName, Backend: backendOf(k),
	}
}

// connections tells what the latest count has shown.
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
