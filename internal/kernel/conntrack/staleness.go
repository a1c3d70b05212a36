package conntrack

import (
	"errors"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
)

// The errors of this package. Its callers never see an errno.
var (
	// ErrUnsupported means that this kernel, or this operating system, does not let
	// the table be read: it has no nf_conntrack_netlink.
	ErrUnsupported = errors.New("not supported by the kernel")
	// ErrBusy means that the kernel gave no answer in time, or more than its socket holds. It is
	// unknown whether the pending operation was carried out.
	ErrBusy = netkey.ErrBusy
	// ErrInterrupted means that the table changed under every attempt to read it.
	ErrInterrupted = errors.New("table changed while it was read")
)

// IP protocol numbers whose flows have ports.
const (
	ProtocolTCP  = netkey.TCP
	ProtocolUDP  = netkey.UDP
	ProtocolSCTP = netkey.SCTP
)

// Key is what a client dials: the original destination of a flow.
type Key = netkey.Tuple

// Order selects the flows to one key that are stale. In a list of orders the last one
// for a key counts.
type Order struct {
	Key Key
	// Keep are the addresses and ports, sorted by netip.AddrPort.Compare, whose flows may continue.
	// Every other flow to Key is stale, including flows that were never rewritten and answer from
	// Key itself. The caller does not change it afterwards.
	Keep []netip.AddrPort
	// Near, sorted like Keep, are further addresses whose flows may continue with clients in From,
	// or with every client if From is empty. Some frontends lead the clients of this node to other
	// endpoints.
	Near []netip.AddrPort
	From []netip.Prefix
	// Fresh are the addresses of Keep whose late datagrams could keep a client out. An answer that
	// arrives after its flow was deleted begins a flow of its own, from the endpoint to the client.
	// While the kernel keeps that flow, 30 s (nf_conntrack_udp_timeout), it drops packets that the
	// client sends to the key and IPVS gives to the same endpoint. The reason is that their answers
	// would belong to two flows (__nf_conntrack_confirm in net/netfilter/nf_conntrack_core.c). So
	// flows from a fresh address that are neither rewritten nor answered are deleted, for any
	// destination. The next datagram of the client then begins a flow to the key again. If
	// netfilter rewrites the flow instead of IPVS, this is not needed, because it gives the client
	// another port (get_unique_tuple in nf_nat_core.c). Fresh addresses of a replaced order that
	// waits are added. They may come in any order.
	Fresh []netip.AddrPort
	// Unserved means that no Service has the key any more. All rewritten flows to it are stale, from
	// any address that answers; Keep is not read. Flows that answer from Key itself are not ours.
	Unserved bool
	// Connections means that the protocol has connections, which this order never cuts: of the
	// flows that are stale by Keep, only those go that carry none. The kernel saw no answer
	// to such a flow, or it saw the connection reset. A client that dials from the same port
	// again otherwise stays with such a flow: for 120 s (nf_conntrack_tcp_timeout_syn_sent,
	// which each attempt begins again) or 10 s (nf_conntrack_tcp_timeout_close).
	Connections bool
	// Untranslated is Connections for flows that answer from Key itself alone; Keep is not
	// read. Another part of the kernel looks after the flows that were rewritten.
	Untranslated bool

	// outdated, if it is there, reports whether a newer order for the key came while this one
	// was being carried out, whose result is void then.
	outdated *atomic.Bool
}

// fresh are those that are Fresh, as what they send is from.
func (o Order) fresh() []Key {
	out := make([]Key, len(o.Fresh))
	for i, a := range o.Fresh {
		out[i] = Key{Addr: a.Addr(), Port: a.Port(), Protocol: o.Key.Protocol}
	}
	return out
}

// SparesConnections reports whether a flow that is Stale stays as long as it carries a
// connection.
func (o Order) SparesConnections() bool { return o.Connections || o.Untranslated }

// Stale reports whether a flow of a client to the key of this order goes, by the address and
// port that answers it. SparesConnections has the other conditions.
func (o Order) Stale(client netip.Addr, answers netip.AddrPort) bool {
	if o.outdated != nil && o.outdated.Load() {
		return false
	}
	if o.Untranslated {
		return answers == o.Key.AddrPort()
	}
	if o.Unserved {
		return answers != o.Key.AddrPort()
	}
	if _, kept := slices.BinarySearchFunc(o.Keep, answers, netip.AddrPort.Compare); kept {
		return false
	}
	_, near := slices.BinarySearchFunc(o.Near, answers, netip.AddrPort.Compare)
	return !near || len(o.From) > 0 && !slices.ContainsFunc(o.From, func(p netip.Prefix) bool { return p.Contains(client) })
}

// Outcome has the findings and results of a sweep.
type Outcome struct {
	Seen    int // flows that the kernel listed
	Stale   int // stale flows; one that a repeated dump lists twice counts twice
	Deleted int // those that this sweep deleted: the others were gone already
	Whole   int // how often all flows of a family, or of one protocol of it, were read
}

// add counts another outcome in.
func (o *Outcome) add(other Outcome) {
	o.Seen += other.Seen
	o.Stale += other.Stale
	o.Deleted += other.Deleted
	o.Whole += other.Whole
}

// FilteredPorts is the largest number of ports in the keys of one family for which
// a sweep asks the kernel one by one, where Options do not say otherwise. A port of
// another protocol is another port.
const FilteredPorts = 4

// Options tune a Handle. The zero value of a field means its default.
type Options struct {
	// Deadline is how long the kernel may be silent in a call. Default 5 s.
	Deadline time.Duration
	// DumpDeadline is the same for a dump. The kernel sends nothing while it skips flows: 0.3 s for
	// a million flows, and several times that on a busy machine. Default 30 s.
	DumpDeadline time.Duration
	// FilteredPorts is the largest number of ports in the keys of one family that are queried one
	// by one. Each query makes the kernel search its whole table at once. For more, all flows of
	// the protocol are read, or all flows if there are more protocols. Default FilteredPorts;
	// negative for none.
	FilteredPorts int
	// Rate is the number of flows a second that a long dump reads at most. The
	// first 10,000 of each dump are read at once. Default 200,000.
	Rate int
	// Attempts is how often a dump is started that the kernel reports as changed under
	// the reader. Default 4.
	Attempts int
	// Called gets the duration and the result of each wait for the kernel, to accept a message or
	// to return a datagram. The error of a wait without an answer in time is
	// context.DeadlineExceeded. It must not block. Default: none.
	Called func(took time.Duration, err error)
}

// Defaults fills in what was left at zero.
func (o Options) Defaults() Options {
	if o.Deadline <= 0 {
		o.Deadline = 5 * time.Second
	}
	if o.DumpDeadline <= 0 {
		o.DumpDeadline = 30 * time.Second
	}
	if o.FilteredPorts == 0 {
		o.FilteredPorts = FilteredPorts
	}
	if o.Rate <= 0 {
		o.Rate = 200_000
	}
	if o.Attempts <= 0 {
		o.Attempts = 4
	}
	if o.Called == nil {
		o.Called = func(time.Duration, error) {}
	}
	return o
}
