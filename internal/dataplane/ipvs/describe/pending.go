package describe

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// This file puts what is not in place, and what moves, into words, for those who only read.

// Pending implements dataplane.Explainer.
func (d *Describer) Pending(most int) []dataplane.PendingTable {
	all := []dataplane.PendingTable{
		pendingOf(d.of.Sets.Sets, most, setCommand),
		pendingOf(d.of.Sets.Members, most, memberCommand),
		pendingOf(d.of.Chains.Chains, most, netfilter.ChainCommand),
		pendingOf(d.of.Chains.Jumps, most, netfilter.JumpCommand),
		pendingOf(d.of.Servers.Table, most, func(c delta.Change[vserver.ServerKey, vserver.Server]) string {
			return vserver.ServerCommand(vserver.ServerChange{Op: c.Op, Key: c.Key, Server: c.Value})
		}),
		pendingOf(d.of.Destinations.Table, most, func(c delta.Change[vserver.DestinationKey, vserver.Destination]) string {
			return vserver.DestinationCommand(vserver.DestinationChange{Op: c.Op, Key: c.Key, Destination: c.Value})
		}),
		pendingOf(d.of.Addresses.Routes, most, func(c delta.Change[netip.Prefix, struct{}]) string {
			return ipCommand(c.Op, "route", fmt.Sprintf("local %s dev lo proto %d", c.Key, link.RouteProtocol))
		}),
		pendingOf(d.of.Addresses.Addresses, most, func(c delta.Change[netip.Addr, struct{}]) string {
			return ipCommand(c.Op, "addr", fmt.Sprintf("%s dev %s", netip.PrefixFrom(c.Key, c.Key.BitLen()), link.DefaultName))
		}),
		pendingOf(d.of.Addresses.Detached, most, func(c delta.Change[netip.Addr, bool]) string {
			return ipCommand(c.Op, "route", fmt.Sprintf("local %s dev lo table %d proto %d", c.Key, link.DetachedTable, link.RouteProtocol))
		}),
		pendingOf(d.of.Tables, most, netfilter.ProxyTableCommand),
		d.of.Announced.Pending(most),
	}
	return slices.DeleteFunc(all, func(t dataplane.PendingTable) bool { return len(t.Rows) == 0 && t.More == 0 })
}

func pendingOf[K comparable, V any](t *delta.Table[K, V], most int, text func(delta.Change[K, V]) string) dataplane.PendingTable {
	return dataplane.ListPending(t.Name(), t.Tracker, most, text)
}

// setCommand reports how to make a set what it should be; one of another shape is replaced.
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
