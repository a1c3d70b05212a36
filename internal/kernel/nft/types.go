package nft

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
)

// Errors a caller may test for with errors.Is.
var (
	// ErrNotExist means that the table, set or chain, or what the row refers to, does not exist.
	ErrNotExist = netkey.ErrNotExist
	// ErrExist means that an object of that name exists and differs; delete it first.
	ErrExist = netkey.ErrExist
	// ErrOverlap means that an element of a set with ranges overlaps another one: see Disjoint.
	ErrOverlap = errors.New("overlaps another element")
	// ErrBusy means that other objects refer to this one, that the kernel is short of memory, or
	// that it did not answer in time.
	ErrBusy = netkey.ErrBusy
	// ErrInterrupted means that the tables changed while they were read, several times in a row.
	ErrInterrupted = errors.New("tables changed while they were read")
	// ErrInvalid means that the row cannot be expressed to the kernel, or that the kernel refused its form.
	ErrInvalid = errors.New("invalid")
	// ErrUnsupported means that the kernel, or the operating system, lacks what the row needs.
	ErrUnsupported = errors.New("not supported")
)

// TableName is the name of our tables: one of family ip, one of family ip6. Nothing in this package
// can name another table.
const TableName = "kube-ipvs"

// Version is the version of the layout that this program writes. It is part of each table. A table
// of another version is replaced as a whole.
const Version = 1

// Family is the address family of a table, in the numbers of the kernel (NFPROTO_IPV4, NFPROTO_IPV6).
type Family uint8

// The two families.
const (
	IPv4 Family = 2
	IPv6 Family = 10
)

// Families returns both, in the order in which they are printed.
func Families() [2]Family { return [2]Family{IPv4, IPv6} }

// String returns the family as nft(8) writes it.
func (f Family) String() string {
	switch f {
	case IPv4:
		return "ip"
	case IPv6:
		return "ip6"
	}
	return fmt.Sprintf("family-%d", uint8(f))
}

// addrLen is the length of an address in bytes.
func (f Family) addrLen() int {
	if f == IPv6 {
		return 16
	}
	return 4
}

// Key names a set or a chain of one of our tables.
type Key struct {
	Family Family
	Name   string
}

// String prints the key as nft(8) takes it: "ip kube-ipvs KUBE-CLUSTER-IP".
func (k Key) String() string { return k.Family.String() + " " + TableName + " " + k.Name }

// Compare orders by family and name.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Family, o.Family), strings.Compare(k.Name, o.Name))
}

// maxName is the longest name that the text form and the kernel take alike.
const maxName = 127

// check refuses what the kernel would take for something else, and what nft(8) could not read again.
func (k Key) check() error {
	if err := checkFamily(k.Family); err != nil {
		return err
	}
	return checkName(k.Name)
}

func checkFamily(f Family) error {
	if f != IPv4 && f != IPv6 {
		return fmt.Errorf("%s: %w", f, ErrInvalid)
	}
	return nil
}

func checkName(name string) error {
	if name == "" || len(name) > maxName {
		return fmt.Errorf("name of %d bytes: %w; it has 1 to %d", len(name), ErrInvalid, maxName)
	}
	for i, c := range []byte(name) {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (i == 0 || (c < '0' || c > '9') && c != '-' && c != '_') {
			return fmt.Errorf("name %q: %w; it has letters, then digits, - and _, too", name, ErrInvalid)
		}
	}
	return nil
}

// Op is an operation on a row.
type Op uint8

// The operations.
const (
	// Add creates the object. A chain or a set that exists with the same header is a success.
	Add Op = iota + 1
	// Update replaces the object. An element of a set with a time-out lives for the full time again.
	Update
	// Delete removes the object. One that does not exist is a success.
	Delete
)

// String returns the operation in lower case.
func (o Op) String() string {
	switch o {
	case Add:
		return "add"
	case Update:
		return "update"
	case Delete:
		return "delete"
	}
	return fmt.Sprintf("operation-%d", uint8(o))
}

// Options tune a Handle. The zero value of a field means its default.
type Options struct {
	// Timeout bounds each exchange with the kernel; a pass and a read, which make several, have
	// six times as long. Default 5 s.
	Timeout time.Duration
	// Called receives how long each call took, and what it failed with: context.DeadlineExceeded
	// where the kernel did not answer. It must not block.
	Called func(took time.Duration, err error)
}

// Defaults fills in what was left at zero.
func (o Options) Defaults() Options {
	if o.Timeout <= 0 {
		o.Timeout = 5 * time.Second
	}
	if o.Called == nil {
		o.Called = func(time.Duration, error) {}
	}
	return o
}
