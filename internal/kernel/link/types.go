package link

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
)

// DefaultName is the link kube-proxy uses too; network plug-ins and operators
// key on it, and a roll-back to kube-proxy finds its addresses there.
const DefaultName = "kube-ipvs0"

// The errors of this package. Its callers never see an errno.
var (
	// ErrExist means that something of that name is there and is not ours to use.
	ErrExist = netkey.ErrExist
	// ErrNotExist means that the link is not there; the kernel answered so itself.
	ErrNotExist = netkey.ErrNotExist
	// ErrBusy means that the kernel gave no answer in time. The outcome of the
	// rows it is given for is unknown: read again before believing anything.
	ErrBusy = netkey.ErrBusy
	// ErrUnsupported means that this kernel, or this operating system, cannot.
	ErrUnsupported = errors.New("not supported")
	// ErrInterrupted means that no consistent list could be had.
	ErrInterrupted = errors.New("interrupted")
)

// Op is what a Change does with its address: Add or Delete. Adding one that is bound already and
// deleting one that is not bound are successes.
type Op = netkey.Op

// The operations.
const (
	Add    = netkey.Add
	Delete = netkey.Delete
)

// verb returns the verb of ip-address(8).
func verb(o Op) string {
	if o == Delete {
		return "del"
	}
	return o.String()
}

// Change is one row of a Write: an address to bind or to unbind as /32 or /128.
type Change struct {
	Op   Op
	Addr netip.Addr
}

// String returns the change as ip-address(8) would take it, without the link.
func (c Change) String() string {
	if !c.Addr.IsValid() {
		return verb(c.Op) + " invalid address"
	}
	return verb(c.Op) + " " + prefixOf(c.Addr).String()
}

// Check returns why the row can never be written, or nil. Zones, mapped IPv4
// addresses and addresses that name no single host are refused.
func (c Change) Check() error {
	a := c.Addr
	switch {
	case c.Op != Add && c.Op != Delete:
		return errors.New("unknown operation")
	case !a.IsValid():
		return errors.New("no address")
	case a.Zone() != "" || a.Is4In6():
		return errors.New("address is not in canonical form")
	case !usable(a) || a.IsUnspecified() || a.IsMulticast():
		return errors.New("address cannot be bound")
	}
	return nil
}

// Kind is the kind of an Event.
type Kind uint8

const (
	// Ready is the first event of a Watch: from here on nothing is missed. Rows that were read
	// before it may be stale.
	Ready Kind = iota + 1
	// OurAddressLost means that another program removed Addr from our link.
	OurAddressLost
	// OurLinkLost means that another program removed or renamed our link. Events for the addresses
	// it had come before it.
	OurLinkLost
	// NodeAddressesChanged means that Addr came to or left another link.
	NodeAddressesChanged
	// Overrun means that events were lost. The watch continues; like Ready it asks the receiver to
	// read everything again.
	Overrun
	// OurRouteLost means that another program removed our local route of Route.
	OurRouteLost
	// DefaultRoutesChanged means that Gateways may have another answer.
	DefaultRoutesChanged
	// OurAnnouncementLost means that another program removed our route of Announced.
	OurAnnouncementLost
)

var kindNames = [...]string{
	Ready: "ready", OurAddressLost: "our address lost", OurLinkLost: "our link lost",
	NodeAddressesChanged: "node addresses changed", Overrun: "overrun", OurRouteLost: "our route lost", DefaultRoutesChanged: "default routes changed",
	OurAnnouncementLost: "our announcement lost",
}

// String returns the kind in words.
func (k Kind) String() string {
	if k >= Ready && int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Event is one thing a Watch saw. Addr is set for the two kinds that have one, Route for
// OurRouteLost, Announced for OurAnnouncementLost.
type Event struct {
	Kind      Kind
	Addr      netip.Addr
	Route     netip.Prefix
	Announced Announcement
}

// String returns the kind and, where there is one, the address or range.
func (e Event) String() string {
	switch {
	case e.Addr.IsValid():
		return e.Kind.String() + " " + e.Addr.String()
	case e.Route.IsValid():
		return e.Kind.String() + " " + e.Route.String()
	case e.Announced.Addr.IsValid():
		return e.Kind.String() + " " + e.Announced.String()
	}
	return e.Kind.String()
}

// Counters are totals since New; they only grow.
type Counters struct {
	Calls       uint64 // exchanges with the kernel, one per slice or dump
	Rows        uint64 // addresses and routes written, failed ones included
	Failed      uint64 // those that came back with an error
	Timeouts    uint64 // exchanges given up at their deadline
	Interrupted uint64 // dumps read again because the kernel changed under them
	Reopened    uint64 // sockets replaced after the first
	Overruns    uint64 // times the watch lost events
	Events      uint64 // messages that the watch was woken by
}

// Options configure a Handle. The zero value is the default.
type Options struct {
	// Name of the link; DefaultName if empty.
	Name string
	// Timeout is the longest a single exchange with the kernel may take where the
	// context sets no earlier deadline; 5 s if zero.
	Timeout time.Duration
	// Called gets the duration and the result of each exchange; it may be nil. Any goroutine that
	// uses the Handle calls it.
	Called func(took time.Duration, err error)
	// Slice is the number of addresses in one send; 200 if zero. The kernel takes and releases its
	// routing lock for every address and passes it to waiting callers. A slice bounds the time
	// until a cancelled context is noticed and until other calls on this handle run.
	Slice int
	// DetachMark has marked packets see detached addresses; DetachMark(14) if zero.
	DetachMark uint32

	// Only the tests of this package set these: the type of the link, "dummy", and the bytes of
	// events that may wait for a busy watch.
	kind        string
	watchBuffer int
}

// withDefaults returns the options with every zero field filled in.
func (o Options) withDefaults() Options {
	if o.Name == "" {
		o.Name = DefaultName
	}
	if o.Called == nil {
		o.Called = func(time.Duration, error) {}
	}
	if o.Timeout <= 0 {
		o.Timeout = 5 * time.Second
	}
	if o.Slice <= 0 {
		o.Slice = 200
	}
	if o.DetachMark == 0 {
		o.DetachMark = DetachMark(14)
	}
	if o.kind == "" {
		o.kind = "dummy"
	}
	if o.watchBuffer <= 0 {
		// Room for the end of a link with some thousand addresses, which the kernel
		// announces one by one.
		o.watchBuffer = 4 << 20
	}
	return o
}

// usable reports whether an address counts, on our link and on others. As kube-proxy, it
// leaves out loopback and IPv6 link-local addresses: the kernel manages them, and no Service
// has one. IPv4 link-local addresses count, because node-local caches use them.
func usable(a netip.Addr) bool {
	local6 := a.Is6() && a.IsLinkLocalUnicast()
	return a.IsValid() && !a.IsLoopback() && !local6
}

// prefixOf returns the host prefix of an address: /32 or /128.
func prefixOf(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
