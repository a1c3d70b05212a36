package netkey

import (
	"cmp"
	"errors"
	"net/netip"
	"strconv"
)

// The errors of rows that several subsystems of the kernel have in common.
var (
	// ErrExist means that the object exists already and could not be taken over.
	ErrExist = errors.New("already exists")
	// ErrNotExist means that the object, or one that it belongs to, does not exist.
	ErrNotExist = errors.New("does not exist")
	// ErrBusy means that the kernel gave no answer in time, or that a user of the object keeps
	// it. The outcome of the call is unknown.
	ErrBusy = errors.New("busy")
)

// Protocol is an IP protocol number (IANA).
type Protocol uint8

// The transport protocols that have ports and that IPVS balances.
const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132
)

// String returns the lower-case name that iptables, ipset and ipvsadm use, else the number.
func (p Protocol) String() string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	case SCTP:
		return "sctp"
	}
	return strconv.Itoa(int(p))
}

// Family is an address family of IP. Its values are the IP version numbers; zero is no family.
type Family uint8

// The two address families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// Families returns both.
func Families() [2]Family { return [2]Family{IPv4, IPv6} }

// FamilyOf returns the family of a valid address. An IPv4 address in IPv6 form counts as IPv6, so
// unmap before.
func FamilyOf(a netip.Addr) Family {
	switch {
	case a.Is4():
		return IPv4
	case a.Is6():
		return IPv6
	}
	return 0
}

// String returns the spelling of the Kubernetes API (spec.ipFamilies).
func (f Family) String() string {
	switch f {
	case IPv4:
		return "IPv4"
	case IPv6:
		return "IPv6"
	}
	return "no family"
}

// Table returns the word that nft uses for tables of the family: "ip" or "ip6".
func (f Family) Table() string {
	switch f {
	case IPv4:
		return "ip"
	case IPv6:
		return "ip6"
	}
	return "family" + strconv.Itoa(int(f))
}

// Tuple is what a client dials. Addr has no zone and is never an IPv4 address in IPv6 form, so
// that tuples read from the kernel equal tuples written.
type Tuple struct {
	Addr     netip.Addr
	Port     uint16
	Protocol Protocol
}

// String returns "10.96.0.10:53/udp" or "[fd00::a]:53/udp".
func (t Tuple) String() string { return t.AddrPort().String() + "/" + t.Protocol.String() }

// AddrPort returns address and port.
func (t Tuple) AddrPort() netip.AddrPort { return netip.AddrPortFrom(t.Addr, t.Port) }

// Family returns the family of the address.
func (t Tuple) Family() Family { return FamilyOf(t.Addr) }

// Compare orders by address (IPv4 first), port and protocol number.
func (t Tuple) Compare(o Tuple) int {
	return cmp.Or(t.Addr.Compare(o.Addr), cmp.Compare(t.Port, o.Port), cmp.Compare(t.Protocol, o.Protocol))
}

// Op is an operation on a row.
type Op uint8

// The operations. Add and Update converge on the same result: the expected one saves a round trip.
// Deleting a row that does not exist is a success.
const (
	Add Op = iota + 1
	Update
	Delete
)

// String returns the verb for logs, metrics and errors.
func (o Op) String() string {
	switch o {
	case Add:
		return "add"
	case Update:
		return "update"
	case Delete:
		return "delete"
	}
	return "none"
}
