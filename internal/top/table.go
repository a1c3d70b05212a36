package top

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

// Rates is the traffic between two samples, for each second.
type Rates struct {
	Connections float64 `json:"connectionsPerSecond"`
	PacketsIn   float64 `json:"packetsInPerSecond"`
	PacketsOut  float64 `json:"packetsOutPerSecond"`
	BytesIn     float64 `json:"bytesInPerSecond"`
	BytesOut    float64 `json:"bytesOutPerSecond"`
}

func (r *Rates) add(o Rates) {
	r.Connections += o.Connections
	r.PacketsIn += o.PacketsIn
	r.PacketsOut += o.PacketsOut
	r.BytesIn += o.BytesIn
	r.BytesOut += o.BytesOut
}

// rates are those from one reading to the next. A counter that went back is one of a
// server that was made again: all it has is new.
func rates(was, is vserver.Traffic, span time.Duration) Rates {
	if is.Connections < was.Connections || is.PacketsIn < was.PacketsIn || is.PacketsOut < was.PacketsOut || is.BytesIn < was.BytesIn || is.BytesOut < was.BytesOut {
		was = vserver.Traffic{}
	}
	a := func(was, is uint64) float64 { return float64(is-was) / span.Seconds() }
	return Rates{
		a(was.Connections, is.Connections), a(was.PacketsIn, is.PacketsIn), a(was.PacketsOut, is.PacketsOut), a(was.BytesIn, is.BytesIn), a(was.BytesOut, is.BytesOut),
	}
}

// Service is one line: a Service, or a virtual server without a known Service.
type Service struct {
	// Namespace and Name are those of the Service. Without them Name is the address.
	Namespace, Name string
	Servers         []vserver.ServerKey
	Schedulers      []string
	Rates
	// Load is known unless the kernel's list cannot be read or lacks one of the servers.
	Load *Load
}

// Load has the current connections of the backends of a Service.
type Load struct {
	Active   uint64 `json:"active"`
	Inactive uint64 `json:"inactive"`
	// Backends are as many as the address with most of them has, Draining those of them
	// that take no new connections.
	Backends int `json:"backends"`
	Draining int `json:"draining"`
	// Skew is the share of established connections of the busiest backend of the busiest address,
	// divided by an even share. 1 is even, and the number of backends means that one backend has
	// all. 0 is no connection.
	Skew float64 `json:"skew"`
}

// Label is the Service as it is named on a line.
func (s Service) Label() string {
	if s.Namespace == "" {
		return s.Name
	}
	return s.Namespace + "/" + s.Name
}

// Backend is one line of a Service: a backend behind all its addresses.
type Backend struct {
	Addr   netip.AddrPort
	Weight uint16
	Rates
	Active, Inactive uint64
	// Draining: its endpoint is gone, or takes no new connections; Until is when its
	// connections are cut, if that is known.
	Draining bool
	Until    time.Time
}

// Services are the lines that follow from two samples, in no order.
func Services(was, is Sample) []Service {
	span := is.At.Sub(was.At)
	index := make(map[Name]int, len(is.Servers))
	list := make([]Service, 0, len(is.Servers))
	loads := make([]loads, 0, len(is.Servers))
	for k, now := range is.Servers {
		name, known := is.Names.Of[k]
		if !known {
			name = Name{Name: k.String()}
		}
		i, seen := index[name]
		if !seen {
			i = len(list)
			index[name] = i
			list, loads = append(list, Service{Namespace: name.Namespace, Name: name.Name}), append(loads, newLoads())
		}
		s := &list[i]
		s.Servers = append(s.Servers, k)
		if !slices.Contains(s.Schedulers, now.Scheduler) {
			s.Schedulers = append(s.Schedulers, now.Scheduler)
		}
		s.add(rates(was.Servers[k].Traffic, now.Traffic, span))
		load, there := is.Loads[k]
		loads[i].add(load, there)
	}
	for i := range list {
		list[i].Load = loads[i].sum()
		slices.SortFunc(list[i].Servers, vserver.CompareServers)
		slices.Sort(list[i].Schedulers)
	}
	return list
}

// loads adds up those of one Service.
type loads struct {
	Load
	whole bool
	// most is the number of connections of the busiest address.
	most uint64
}

func newLoads() loads { return loads{whole: true} }

func (l *loads) add(o vserver.Load, there bool) {
	l.whole = l.whole && there
	l.Active += o.Active
	l.Inactive += o.Inactive
	l.Backends = max(l.Backends, o.Destinations)
	l.Draining = max(l.Draining, len(o.Quiet))
	if o.Active > l.most {
		l.most = o.Active
		l.Skew = float64(o.MostActive) * float64(o.Destinations) / float64(o.Active)
	}
}

func (l *loads) sum() *Load {
	if !l.whole {
		return nil
	}
	return &l.Load
}

// Backends are the lines of one Service, in no order.
func Backends(was, is Sample, of Service) []Backend {
	span := is.At.Sub(was.At)
	index := map[netip.AddrPort]int{}
	var list []Backend
	for k, now := range is.Destinations {
		if !slices.Contains(of.Servers, k.Server) {
			continue
		}
		addr := netip.AddrPortFrom(k.Addr, k.Port)
		i, seen := index[addr]
		if !seen {
			i = len(list)
			index[addr] = i
			list = append(list, Backend{Addr: addr})
		}
		b := &list[i]
		b.Weight = max(b.Weight, now.Weight)
		b.Active += uint64(now.Active)
		b.Inactive += uint64(now.Inactive)
		if before, there := was.Destinations[k]; there { // otherwise this server was not read in that sample
			b.add(rates(before.Carried, now.Carried, span))
		}
		if end := is.Names.Draining[k]; !end.IsZero() && (b.Until.IsZero() || end.Before(b.Until)) {
			b.Until = end
		}
	}
	for i := range list {
		list[i].Draining = list[i].Weight == 0
	}
	return list
}

// Sort is the column by which lines are sorted.
type Sort string

// The ways to sort: the greatest comes first, names in their order.
const (
	ByConnections Sort = "connections"
	ByPackets     Sort = "packets"
	ByBytes       Sort = "bytes"
	ByActive      Sort = "active"
	BySkew        Sort = "skew"
	ByName        Sort = "name"
)

// Sorts lists them.
func Sorts() []Sort { return []Sort{ByConnections, ByPackets, ByBytes, ByActive, BySkew, ByName} }

// of is the value of a line in that column.
func (s Sort) of(r Rates, active uint64, skew float64) float64 {
	switch s {
	case ByConnections:
		return r.Connections
	case ByPackets:
		return r.PacketsIn + r.PacketsOut
	case ByBytes:
		return r.BytesIn + r.BytesOut
	case ByActive:
		return float64(active)
	case BySkew:
		return skew
	default:
		return 0
	}
}

func (s Sort) services(list []Service) {
	value := func(o Service) float64 {
		l := Load{}
		if o.Load != nil {
			l = *o.Load
		}
		return s.of(o.Rates, l.Active, l.Skew)
	}
	slices.SortFunc(list, func(a, b Service) int {
		return cmp.Or(cmp.Compare(value(b), value(a)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

func (s Sort) backends(list []Backend) {
	slices.SortFunc(list, func(a, b Backend) int {
		return cmp.Or(cmp.Compare(s.of(b.Rates, b.Active, 0), s.of(a.Rates, a.Active, 0)), a.Addr.Compare(b.Addr))
	})
}

// filtered are the Services whose label, or one of whose addresses, has the text.
func filtered(list []Service, text string) []Service {
	if text == "" {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), func(s Service) bool {
		return !strings.Contains(s.Label(), text) &&
			!slices.ContainsFunc(s.Servers, func(k vserver.ServerKey) bool { return strings.Contains(k.String(), text) })
	})
}
