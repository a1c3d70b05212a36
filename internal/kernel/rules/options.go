package rules

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Options chooses what a Handle works on.
type Options struct {
	// Families wanted; those the node lacks are left out with a log line.
	// Empty means both.
	Families []Family
	// Backend to use; "" picks the one the host's rules live in.
	Backend Backend
	// LockWait bounds the wait for the xtables lock, in whole seconds since
	// the tools take no less. Default 5 s.
	LockWait time.Duration
	// Timeout bounds each process, lock wait included. Default 10 s. A process that reads all
	// rules, as those of legacy always do, gets listShare times that, because there may be hundreds
	// of thousands of rules. A process that writes many lines gets perLine more for each line.
	Timeout time.Duration
	// Owned reports whether a user chain is ours; required.
	Owned func(ChainKey) bool
	// Link carries the service addresses: if it exists, its own disable_ipv6
	// decides about IPv6, else those of all links. Default kube-ipvs0.
	Link string
	// Generation returns a number that each transaction of nftables in this network
	// namespace changes, never 0 where there are nftables (NFT_MSG_GETGEN): by it
	// [Handle.Generation] and [Handle.Sign] find changes. Nil is none.
	Generation func(ctx context.Context) (uint64, error)
	// Match returns an error that matches [ErrUnsupported] if iptables-nft cannot use a match of the
	// kernel (NFNL_MSG_COMPAT_GET): what [Handle.FindMatch] asks. Nil asks nothing.
	Match func(ctx context.Context, f Family, name string) error
	// Called gets the duration and the error of each process that lists or writes; it may be nil.
	Called func(took time.Duration, err error)
	// Root is the directory that holds proc. Default "/".
	Root string
}

// Defaults returns a copy with every empty field filled in.
func (o Options) Defaults() Options {
	if len(o.Families) == 0 {
		o.Families = []Family{IPv4, IPv6}
	}
	if o.LockWait == 0 {
		o.LockWait = 5 * time.Second
	}
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	if o.Link == "" {
		o.Link = "kube-ipvs0"
	}
	if o.Root == "" {
		o.Root = "/"
	}
	return o
}

// Validate reports every mistake at once.
func (o Options) Validate() error {
	var errs []error
	for _, f := range o.Families {
		if f != IPv4 && f != IPv6 {
			errs = append(errs, fmt.Errorf("unknown family %d", f))
		}
	}
	if o.Backend != "" && o.Backend != NFT && o.Backend != Legacy {
		errs = append(errs, fmt.Errorf("unknown backend %q", o.Backend))
	}
	if o.LockWait < time.Second {
		// go-iptables reads zero seconds as "wait for ever".
		errs = append(errs, fmt.Errorf("lock wait %v is below one second", o.LockWait))
	}
	if o.Timeout <= o.LockWait {
		errs = append(errs, fmt.Errorf("timeout %v does not exceed the lock wait %v", o.Timeout, o.LockWait))
	}
	if o.Owned == nil {
		errs = append(errs, errors.New("owned chain predicate is missing"))
	}
	return errors.Join(errs...)
}

// How long a process may take whose work grows with the rules.
const (
	listShare     = 6
	perLine       = 5 * time.Millisecond
	perLineLegacy = 500 * time.Microsecond
)

func (o Options) listTimeout() time.Duration { return listShare * o.Timeout }

// chainTimeout is for one that lists a chain.
func (o Options) chainTimeout(b Backend) time.Duration {
	if b == Legacy {
		return o.listTimeout()
	}
	return o.Timeout
}

func (o Options) writeTimeout(b Backend, text string) time.Duration {
	lines := strings.Count(text, "\n")
	if b == Legacy {
		return o.listTimeout() + time.Duration(lines)*perLineLegacy
	}
	return o.Timeout + time.Duration(lines)*perLine
}
