package vservertest

import (
	"maps"
	"net/netip"
	"strings"
	"syscall"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

// Table is the kernel's side: IPVS tables that answer with the kernel's errno,
// in the kernel's order of checks (net/netfilter/ipvs/ip_vs_ctl.c). It has no
// locks and does not converge.
type Table struct {
	Servers      map[vserver.ServerKey]vserver.Server
	Destinations map[vserver.ServerKey]map[vserver.DestinationKey]vserver.Destination
	// Connections that destinations have. Those of a destination that was deleted
	// go on, and are counted again once it is back (ip_vs_trash_get_dest).
	Connections map[vserver.DestinationKey]vserver.Connections
	// Carried and CarriedBy are what servers and destinations have carried since they
	// were made.
	Carried   map[vserver.ServerKey]vserver.Traffic
	CarriedBy map[vserver.DestinationKey]vserver.Traffic
	// Schedulers that exist, vserver.SchedulerNone among them since Linux 4.2.
	Schedulers map[string]bool
	// GracePeriods counts how often an edit waited until every CPU had let go of a
	// server's old scheduler (synchronize_rcu in ip_vs_edit_service).
	GracePeriods int
	// OneTunnel is a kernel before Linux 5.3: it reads over kinds of tunnels.
	OneTunnel bool
}

// Schedulers lists those that each kernel of the tests has, in the order of ipvsadm(8). Debian 12 builds no twos.
func Schedulers() []string {
	return strings.Fields("rr wrr lc wlc lblc lblcr dh sh sed nq fo ovf mh")
}

// NewTable is empty and knows all schedulers of Linux 7.2.
func NewTable() *Table {
	t := &Table{
		Servers:      make(map[vserver.ServerKey]vserver.Server),
		Destinations: make(map[vserver.ServerKey]map[vserver.DestinationKey]vserver.Destination),
		Connections:  make(map[vserver.DestinationKey]vserver.Connections),
		Carried:      make(map[vserver.ServerKey]vserver.Traffic),
		CarriedBy:    make(map[vserver.DestinationKey]vserver.Traffic),
	}
	t.SetSchedulers(append(Schedulers(), "twos")...)
	return t
}

// SetSchedulers makes exactly these exist for adds and updates to come.
func (t *Table) SetSchedulers(names ...string) {
	t.Schedulers = map[string]bool{vserver.SchedulerNone: true}
	for _, name := range names {
		t.Schedulers[name] = true
	}
}

// AddServer is IPVS_CMD_NEW_SERVICE.
func (t *Table) AddServer(k vserver.ServerKey, s vserver.Server) syscall.Errno {
	if _, ok := t.Servers[k]; ok {
		return syscall.EEXIST
	}
	if !t.Schedulers[s.Scheduler] {
		return syscall.ENOENT
	}
	t.Servers[k] = s
	t.Destinations[k] = make(map[vserver.DestinationKey]vserver.Destination)
	return 0
}

// UpdateServer is IPVS_CMD_SET_SERVICE; the destinations stay.
func (t *Table) UpdateServer(k vserver.ServerKey, s vserver.Server) syscall.Errno {
	old, ok := t.Servers[k]
	if !ok {
		return syscall.ESRCH
	}
	if !t.Schedulers[s.Scheduler] {
		return syscall.ENOENT
	}
	if old.Scheduler != s.Scheduler && old.Scheduler != vserver.SchedulerNone {
		t.GracePeriods++
	}
	t.Servers[k] = s
	return 0
}

// DeleteServer is IPVS_CMD_DEL_SERVICE; it takes the destinations along.
func (t *Table) DeleteServer(k vserver.ServerKey) syscall.Errno {
	if _, ok := t.Servers[k]; !ok {
		return syscall.ESRCH
	}
	for d := range t.Destinations[k] {
		delete(t.CarriedBy, d)
	}
	delete(t.Servers, k)
	delete(t.Destinations, k)
	delete(t.Carried, k)
	return 0
}

// Schedule reports whether a new connection to a server gets a destination (ip_vs_schedule,
// net/netfilter/ipvs/ip_vs_core.c). Without a scheduler it does not, and none of the kernel's own
// schedulers picks one of weight 0 while another is available.
func (t *Table) Schedule(k vserver.ServerKey) bool {
	if s, ok := t.Servers[k]; !ok || s.Scheduler == vserver.SchedulerNone {
		return false
	}
	for _, d := range t.Destinations[k] {
		if d.Weight > 0 {
			return true
		}
	}
	return false
}

// AddDestination is IPVS_CMD_NEW_DEST.
func (t *Table) AddDestination(k vserver.DestinationKey, d vserver.Destination) syscall.Errno {
	rows, errno := t.rowsFor(k, d)
	if errno != 0 {
		return errno
	}
	if _, ok := rows[k]; ok {
		return syscall.EEXIST
	}
	if !forwardable(k.Addr) {
		return syscall.EINVAL
	}
	rows[k] = t.read(d)
	return 0
}

// read is what the kernel takes of a destination that it is told (ip_vs_genl_parse_dest).
func (t *Table) read(d vserver.Destination) vserver.Destination {
	if t.OneTunnel {
		d.Tunnel, d.TunnelPort, d.TunnelFlags = vserver.TunnelIPIP, 0, 0
	}
	return d
}

// UpdateDestination is IPVS_CMD_SET_DEST; connections stay.
func (t *Table) UpdateDestination(k vserver.DestinationKey, d vserver.Destination) syscall.Errno {
	rows, errno := t.rowsFor(k, d)
	if errno != 0 {
		return errno
	}
	if _, ok := rows[k]; !ok {
		return syscall.ENOENT
	}
	rows[k] = t.read(d)
	return 0
}

// DeleteDestination is IPVS_CMD_DEL_DEST.
func (t *Table) DeleteDestination(k vserver.DestinationKey) syscall.Errno {
	rows, ok := t.Destinations[k.Server]
	if !ok {
		return syscall.ESRCH
	}
	if _, ok := rows[k]; !ok {
		return syscall.ENOENT
	}
	delete(rows, k)
	delete(t.CarriedBy, k)
	return 0
}

// Carry adds to what a destination and its server have carried.
func (t *Table) Carry(k vserver.DestinationKey, more vserver.Traffic) {
	t.CarriedBy[k] = add(t.CarriedBy[k], more)
	t.Carried[k.Server] = add(t.Carried[k.Server], more)
}

func add(a, b vserver.Traffic) vserver.Traffic {
	return vserver.Traffic{
		Connections: a.Connections + b.Connections, PacketsIn: a.PacketsIn + b.PacketsIn, PacketsOut: a.PacketsOut + b.PacketsOut,
		BytesIn: a.BytesIn + b.BytesIn, BytesOut: a.BytesOut + b.BytesOut,
	}
}

// AllDestinations is a copy of the destinations of all servers in one map.
func (t *Table) AllDestinations() map[vserver.DestinationKey]vserver.Destination {
	all := make(map[vserver.DestinationKey]vserver.Destination)
	for _, rows := range t.Destinations {
		maps.Copy(all, rows)
	}
	return all
}

// String prints the table as `ipvsadm -Sn` does.
func (t *Table) String() string {
	var b strings.Builder
	_ = vserver.WriteSave(&b, t.Servers, t.AllDestinations()) // a Builder does not fail
	return b.String()
}

// rowsFor is the part that adding and editing a destination check alike.
func (t *Table) rowsFor(k vserver.DestinationKey, d vserver.Destination) (map[vserver.DestinationKey]vserver.Destination, syscall.Errno) {
	rows, ok := t.Destinations[k.Server]
	switch {
	case !ok:
		return nil, syscall.ESRCH
	case k.Addr.Is4() != k.Server.Addr.Is4() && d.Forward != vserver.ForwardTunnel:
		return nil, syscall.EINVAL
	case d.Lower > d.Upper:
		return nil, syscall.ERANGE
	}
	return rows, 0
}

// forwardable tells addresses that the kernel takes for a destination: unicast
// or its own. Link-local IPv6 is refused, link-local IPv4 is not.
func forwardable(a netip.Addr) bool {
	switch {
	case a.IsUnspecified(), a.IsMulticast(), a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return false
	default:
		return a.Is4() || !a.IsLinkLocalUnicast()
	}
}
