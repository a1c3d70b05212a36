package main

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// The three tables, in the order in which they are written.
const (
	tableSets      = "sets"
	tableIPVS      = "ipvs"
	tableAddresses = "addresses"
)

var tableNames = []string{tableSets, tableIPVS, tableAddresses}

// How many can be made: one address each, below 10.64.0.0/10 and below 10.128.0.0/9.
const (
	maxServices  = 100_000
	maxEndpoints = 80
)

// rows are what an agent has written, as the kernel reports it.
type rows struct {
	Servers   []serverRow  `json:"servers"`
	Sets      []setRow     `json:"sets"`
	Addresses []netip.Addr `json:"addresses"` // host addresses on one link
}

// serverRow is one virtual server with its destinations.
type serverRow struct {
	Key          vserver.ServerKey `json:"key"`
	Server       vserver.Server    `json:"server"`
	Destinations []destinationRow  `json:"destinations"`
}

type destinationRow struct {
	Addr        netip.AddrPort      `json:"addr"`
	Destination vserver.Destination `json:"destination"`
}

// setRow is one set with its entries.
type setRow struct {
	Set     ipset.Set     `json:"set"`
	Entries []ipset.Entry `json:"entries"`
}

// makeRows makes what a Service with a cluster IP takes, none of whose endpoints are on this node: a server, its destinations, an entry
// of KUBE-CLUSTER-IP and an address.
func makeRows(services, endpoints int) rows {
	clusterIPs := setRow{Set: ipset.Set{Name: "KUBE-CLUSTER-IP", Type: ipset.HashIPPort, Family: ipset.IPv4, MaxElem: 1 << 20}.WithDefaults()}
	var all rows
	for i := range services {
		key := vserver.ServerKey{Addr: inTen(64<<16 + i), Port: 80, Protocol: vserver.ProtocolTCP}
		s := serverRow{Key: key, Server: vserver.Server{Scheduler: "rr"}}
		for j := range endpoints {
			to := netip.AddrPortFrom(inTen(128<<16+i*endpoints+j), 8080)
			s.Destinations = append(s.Destinations, destinationRow{Addr: to, Destination: vserver.Destination{Weight: 1}})
		}
		all.Servers = append(all.Servers, s)
		clusterIPs.Entries = append(clusterIPs.Entries, ipset.IPPort(key.Addr, key.Protocol, key.Port))
		all.Addresses = append(all.Addresses, key.Addr)
	}
	all.Sets = []setRow{clusterIPs}
	return all
}

// inTen is an address of 10.0.0.0/8 by the three lower bytes.
func inTen(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
}

// only leaves out the tables that are not wanted.
func (r rows) only(wanted func(table string) bool) rows {
	if !wanted(tableIPVS) {
		r.Servers = nil
	}
	if !wanted(tableSets) {
		r.Sets = nil
	}
	if !wanted(tableAddresses) {
		r.Addresses = nil
	}
	return r
}

func (r rows) empty() bool { return len(r.Servers) == 0 && len(r.Sets) == 0 && len(r.Addresses) == 0 }

// sample has one row of each kind, so that writing it loads every scheduler and set type.
func (r rows) sample() rows {
	var some rows
	schedulers, types, families := map[string]bool{}, map[ipset.Type]bool{}, map[bool]bool{}
	for _, s := range r.Servers {
		if name := s.Server.Scheduler + "/" + s.Server.Engine; !schedulers[name] {
			schedulers[name] = true
			s.Destinations = s.Destinations[:min(1, len(s.Destinations))]
			some.Servers = append(some.Servers, s)
		}
	}
	for _, s := range r.Sets {
		if !types[s.Set.Type] {
			types[s.Set.Type] = true
			s.Entries = s.Entries[:min(1, len(s.Entries))]
			some.Sets = append(some.Sets, s)
		}
	}
	for _, a := range r.Addresses {
		if !families[a.Is4()] {
			families[a.Is4()] = true
			some.Addresses = append(some.Addresses, a)
		}
	}
	return some
}

// counts are how many rows there are.
type counts struct {
	Servers      int `json:"servers"`
	Destinations int `json:"destinations"`
	Sets         int `json:"sets"`
	Entries      int `json:"entries"`
	Addresses    int `json:"addresses"`
}

func (r rows) counts() counts {
	c := counts{Servers: len(r.Servers), Sets: len(r.Sets), Addresses: len(r.Addresses)}
	for _, s := range r.Servers {
		c.Destinations += len(s.Destinations)
	}
	for _, s := range r.Sets {
		c.Entries += len(s.Entries)
	}
	return c
}

// of is the number of rows in one table.
func (c counts) of(table string) int {
	switch table {
	case tableIPVS:
		return c.Servers + c.Destinations
	case tableSets:
		return c.Sets + c.Entries
	default:
		return c.Addresses
	}
}

// lines are the rows as the operator's tools would take them, sorted. The number of buckets of a set is the kernel's own and left out.
func (r rows) lines() []string {
	var lines []string
	for _, s := range r.Servers {
		lines = append(lines, "ipvs "+vserver.SaveServer(s.Key, s.Server))
		for _, d := range s.Destinations {
			key := vserver.DestinationKey{Server: s.Key, Addr: d.Addr.Addr(), Port: d.Addr.Port()}
			lines = append(lines, "ipvs "+vserver.SaveDestination(key, d.Destination))
		}
	}
	for _, s := range r.Sets {
		header := s.Set
		header.HashSize = 0
		lines = append(lines, "ipset "+header.SaveLine())
		for _, e := range s.Entries {
			lines = append(lines, "ipset "+e.SaveLine(s.Set.Name))
		}
	}
	for _, a := range r.Addresses {
		lines = append(lines, "address "+a.String())
	}
	slices.Sort(lines)
	return lines
}

// missing compares what the kernel holds with what was to be written, and names the first difference of each direction.
func (r rows) missing(wanted rows) error {
	have, want := r.lines(), wanted.lines()
	lost, more := beyond(want, have), beyond(have, want)
	if len(lost)+len(more) == 0 {
		return nil
	}
	return fmt.Errorf("%d rows are not in the kernel %.1q, %d are there that were not written %.1q", len(lost), lost[:min(1, len(lost))], len(more), more[:min(1, len(more))])
}

// beyond gives the elements of one sorted list that are not in another.
func beyond(a, b []string) []string {
	var only []string
	for _, x := range a {
		if _, found := slices.BinarySearch(b, x); !found {
			only = append(only, x)
		}
	}
	return only
}
