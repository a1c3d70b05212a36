package sysctl

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// ConntrackOptions say how connection tracking is to be set. The zero value
// leaves all as it is.
type ConntrackOptions struct {
	// MaxPerCore is how many connections to track for each core; 0 leaves the
	// maximum alone. Min is the least maximum, where MaxPerCore is set.
	MaxPerCore, Min int
	// How long an idle connection is kept: an established or half-closed TCP
	// one, a UDP one with packets one way only, and one with both. Only values
	// above 0 are set, in whole seconds.
	TCPEstablished, TCPCloseWait, UDP, UDPStream time.Duration
	// TCPBeLiberal lets packets outside the window pass; false leaves the node's
	// own choice, it is never written.
	TCPBeLiberal bool
}

// conntrackCap is the largest maximum that follows from the number of cores, as in
// kube-proxy. It bounds the memory that a large machine spends on connection tracking.
const conntrackCap = 1 << 20

// Max returns the number of connections a node with so many cores should track,
// or 0 to leave it alone. The order is kube-proxy's: the cap bounds what the cores
// ask for, not Min, so that a Min above the cap wins on a small node only.
func (o ConntrackOptions) Max(cores int) int {
	scaled := o.MaxPerCore * cores
	switch {
	case o.MaxPerCore <= 0:
		return 0
	case scaled > conntrackCap:
		return conntrackCap
	}
	return max(scaled, o.Min)
}

// ApplyConntrack sets connection tracking as kube-proxy does at its start, but never lowers
// the maximum. It returns one result per setting, in order: the maximum, the hash table that
// serves it, then the rest. All is Wanted: tracking works with other values too, and in a
// network namespace that is not the first one the kernel refuses the first two.
// Where nf_conntrack is not loaded every key is Missing, so load it before.
func (h *Handle) ApplyConntrack(ctx context.Context, opts ConntrackOptions) []Result {
	var results []Result
	if most := opts.Max(h.cores()); most > 0 {
		results = h.Apply(ctx, []Sysctl{h.conntrackMax(ctx, most)})
		// A table for a maximum that is not in force would be memory for nothing.
		if o := results[0].Outcome; o == Right || o == Changed {
			results = append(results, h.growHash(ctx, most/4))
		}
	}
	return append(results, h.Apply(ctx, opts.sysctls())...)
}

// conntrackMax never asks for less than the node has: a larger maximum is a choice of the operator, or of the memory.
func (h *Handle) conntrackMax(ctx context.Context, most int) Sysctl {
	if have, err := h.number(ctx, keyConntrackMax); err == nil && int(have) > most { // 31 bits at most
		return conntrackSysctl("max", int(have), "the current maximum is never lowered")
	}
	return conntrackSysctl("max", most, "the connection table fits the size of this node")
}

// sysctls returns all but the maximum, in kube-proxy's order.
func (o ConntrackOptions) sysctls() []Sysctl {
	var all []Sysctl
	timeout := func(name string, d time.Duration, why string) {
		if d > 0 {
			// Less than a second is one: 0 would end connections at once.
			all = append(all, conntrackSysctl(name, max(1, int(d/time.Second)), why))
		}
	}
	timeout("tcp_timeout_established", o.TCPEstablished, "idle connections are tracked for the configured time")
	timeout("tcp_timeout_close_wait", o.TCPCloseWait, "half-closed connections are tracked for the configured time")
	if o.TCPBeLiberal {
		all = append(all, conntrackSysctl("tcp_be_liberal", 1, "packets outside the TCP window are accepted"))
	}
	timeout("udp_timeout", o.UDP, "UDP requests are tracked for the configured time")
	timeout("udp_timeout_stream", o.UDPStream, "UDP flows with replies are tracked for the configured time")
	return all
}

const keyConntrackMax = "net.netfilter.nf_conntrack_max"

func conntrackSysctl(name string, value int, why string) Sysctl {
	return Sysctl{Key: "net.netfilter.nf_conntrack_" + name, Value: strconv.Itoa(value), Why: why, Policy: Wanted}
}

const hashSizeFile = "sys/module/nf_conntrack/parameters/hashsize"

// Liberal reports whether connection tracking lets packets pass that are out of their
// window (net.netfilter.nf_conntrack_tcp_be_liberal). One that cannot be asked does not.
func (h *Handle) Liberal(ctx context.Context) bool {
	n, err := h.number(ctx, "net.netfilter.nf_conntrack_tcp_be_liberal")
	return err == nil && n != 0
}

// growHash makes the hash table large enough for a quarter of the maximum, which
// keeps its chains at about four connections; a larger one is left as it is. It is
// not in the journal: the kernel would shrink it, but only by hashing all connections again while tracking waits, to gain 2 MiB at the most.
func (h *Handle) growHash(ctx context.Context, buckets int) Result {
	r := Result{Sysctl: Sysctl{Key: "nf_conntrack hashsize", Value: strconv.Itoa(buckets), Policy: Wanted,
		Why: "chains of the connection table stay short"}}
	r.Outcome, r.Have, r.Err = h.growTo(ctx, buckets)
	h.report(r)
	return r
}

func (h *Handle) growTo(ctx context.Context, buckets int) (Outcome, string, error) {
	// The kernel fills whole pages, so what it keeps may be more than was asked.
	enough := func(text string) bool {
		have, err := strconv.Atoi(text)
		return err == nil && have >= buckets
	}
	have, err := h.files.Get(ctx, hashSizeFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Missing, "", nil
	case err != nil:
		return Refused, "", fmt.Errorf("read nf_conntrack hashsize: %w", err)
	case enough(have):
		return Right, have, nil
	}
	if err := h.files.Put(ctx, hashSizeFile, strconv.Itoa(buckets), enough); err != nil {
		return Refused, have, fmt.Errorf("set nf_conntrack hashsize from %q to %d: %w", have, buckets, err)
	}
	return Changed, have, nil
}

// onlineFile lists the logical CPUs that are online, such as 0-3,8 (the kernel's
// Documentation/admin-guide/cputopology.rst).
const onlineFile = "sys/devices/system/cpu/online"

// cores counts the logical CPUs that are online, as kube-proxy v1.37 does. The limit is
// one of the machine, and runtime.NumCPU counts only the CPUs that this process may use
// (kubernetes/kubernetes#99225). It is the count where the kernel has no list.
func (h *Handle) cores() int {
	if list, err := h.files.Read(onlineFile); err == nil {
		if n, ok := countCPUs(list); ok && n > 0 {
			return n
		}
	}
	return runtime.NumCPU()
}

// countCPUs returns how many CPUs a list of ranges names.
func countCPUs(list string) (n int, ok bool) {
	for part := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err := strconv.ParseUint(from, 10, 16)
		last, err2 := strconv.ParseUint(to, 10, 16)
		if err != nil || err2 != nil || last < first {
			return 0, false
		}
		n += int(last-first) + 1
	}
	return n, true
}
