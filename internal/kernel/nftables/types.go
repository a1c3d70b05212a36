package nftables

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
)

// Errors a caller may test for with errors.Is.
var (
	// ErrBusy: something keeps the table, or the kernel did not answer in time.
	ErrBusy = netkey.ErrBusy
	// ErrInterrupted: the tables changed while they were listed, again and again.
	ErrInterrupted = errors.New("tables changed while they were read")
	// ErrInvalid: the key cannot be expressed to the kernel; nothing was sent.
	ErrInvalid = errors.New("invalid table")
	// ErrUnsupported: not on this operating system, or not in this kernel.
	ErrUnsupported = errors.New("not supported")
)

// Key names a table.
type Key struct {
	// Family as nft(8) writes it: ip, ip6, inet, arp, bridge, netdev.
	Family string
	Name   string
}

// String prints the table as nft(8) takes it: "ip kube-proxy".
func (k Key) String() string { return k.Family + " " + k.Name }

// Compare orders by family and name.
func (k Key) Compare(other Key) int {
	return cmp.Or(strings.Compare(k.Family, other.Family), strings.Compare(k.Name, other.Name))
}

// maxName is the longest name (NFT_TABLE_MAXNAMELEN less the terminating zero).
const maxName = 255

// Check refuses keys that the kernel would take for something else: a deletion
// without a name empties the whole family.
func (k Key) Check() error {
	if _, ok := families[k.Family]; !ok {
		return fmt.Errorf("family %q: %w; it is one of %s", k.Family, ErrInvalid, strings.Join(familyNames(), ", "))
	}
	if k.Name == "" || len(k.Name) > maxName || strings.Contains(k.Name, "\x00") {
		return fmt.Errorf("name %.40q: %w; it has 1 to %d bytes, none of them 0", k.Name, ErrInvalid, maxName)
	}
	return nil
}

// families of tables, with their numbers (NFPROTO_ in include/uapi/linux/netfilter.h).
var families = map[string]uint8{"inet": 1, "ip": 2, "arp": 3, "netdev": 5, "bridge": 7, "ip6": 10}

func familyNames() []string {
	names := make([]string, 0, len(families))
	for name := range families {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// familyName is the word for a number. One that has none is shown as a number,
// and cannot be deleted.
func familyName(number uint8) string {
	for name, n := range families {
		if n == number {
			return name
		}
	}
	return fmt.Sprintf("family-%d", number)
}

// Options tune a Handle. The zero value of a field means its default.
type Options struct {
	// Timeout bounds every call, whatever the kernel does; Filters has six times as long.
	// Default 5 s.
	Timeout time.Duration
	// Called gets the duration and the result of each call, context.DeadlineExceeded without an
	// answer. It must not block. Default: none.
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
