// Command rawwrite measures how fast the kernel takes virtual servers and destinations at all: the floor under the programming time of any
// agent. It packs the rows into netlink messages in advance, writes them to an empty network namespace, and reads them back. Then
// kernel/vserver writes the same rows to another namespace, in batches of the agent's size, while nothing else runs.
//
//	rows of N Services ──┬─► pack ──► send, send, ... ──► a namespace ──► the same rows?
//	                     │           └─ measured ─┘
//	                     └─► kernel/vserver ────────────► a namespace ──► the same rows?
//
// The raw way checks, compares and repeats nothing: many messages go to one send, and only the last of a send asks for an answer. Packing
// counts for kernel/vserver and not for the floor. Run it as root on a node whose IPVS table is empty, because the kernel keeps the servers of
// all namespaces in one table.
//
//	go run ./e2e/bench/rawwrite -services 5000 -endpoints 10
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/moby/ipvs"
	"github.com/vishvananda/netlink"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "rawwrite:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("rawwrite", flag.ContinueOnError)
	flags.SetOutput(out)
	services := flags.Int("services", 1000, "how many Services")
	endpoints := flags.Int("endpoints", 10, "of each Service")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || *services < 1 || *services > 100_000 || *endpoints < 0 || *endpoints > 80 { // so that addresses do not overlap
		return errors.New("want 1 to 100,000 services of at most 80 endpoints, and nothing else")
	}
	r := makeRows(*services, *endpoints)
	fastest, err := measure(ctx, r)
	if err != nil {
		return err
	}
	raw, own := fastest[0].Seconds(), fastest[1].Seconds()
	_, err = fmt.Fprintf(out, "%d virtual servers and %d destinations: raw %.1f ms (%.2f µs a row), by kernel/vserver %.1f ms, %.2f times the floor\n",
		*services, len(r.destinations), raw*1e3, raw*1e6/float64(*services+len(r.destinations)), own*1e3, own/raw)
	return err
}

// rows are the keys of virtual servers and of their destinations.
type rows struct {
	servers      []vserver.ServerKey
	destinations []vserver.DestinationKey
}

// Values that all servers and destinations share.
const (
	scheduler = "rr"
	weight    = 1
)

func makeRows(services, endpoints int) (r rows) {
	for i := range services {
		server := vserver.ServerKey{Addr: inTen(64<<16 + i), Port: 80, Protocol: vserver.ProtocolTCP}
		r.servers = append(r.servers, server)
		for j := range endpoints {
			r.destinations = append(r.destinations, vserver.DestinationKey{Server: server, Addr: inTen(128<<16 + i*endpoints + j), Port: 8080})
		}
	}
	return r
}

// inTen is an address of 10.0.0.0/8 by its three lower bytes.
func inTen(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
}

// measure writes the rows in both ways, each time to a namespace of its own, after a small write that loads modules.
func measure(ctx context.Context, r rows) (fastest [2]time.Duration, err error) {
	if _, err := written(ctx, makeRows(1, 1), openRaw); err != nil {
		return fastest, err
	}
	for range 3 { // the fastest counts, because other programs can only slow a run down
		for i, open := range []way{openRaw, openVserver} {
			took, err := written(ctx, r, open)
			if err != nil {
				return fastest, err
			}
			if fastest[i] == 0 || took < fastest[i] {
				fastest[i] = took
			}
		}
	}
	return fastest, nil
}

// way opens what it needs in the namespace of the calling thread, and returns how it writes the rows.
type way func(context.Context, rows) (write func() error, err error)

// written measures how long a way writes the rows in a new namespace, and checks that exactly the rows are there. Then it removes them,
// because the next ones would share a hash table with them. No garbage is collected meanwhile.
func written(ctx context.Context, r rows, open way) (took time.Duration, err error) {
	err = inNamespace(func() error {
		write, err := open(ctx, r)
		if err != nil {
			return err
		}
		defer debug.SetGCPercent(debug.SetGCPercent(-1))
		runtime.GC()
		began := time.Now()
		err = write()
		took = time.Since(began)
		return errors.Join(err, verify(ctx, r), flush())
	})
	return took, err
}

// openRaw packs the rows.
func openRaw(_ context.Context, r rows) (func() error, error) {
	family, err := netlink.GenlFamilyGet("IPVS")
	if err != nil {
		return nil, fmt.Errorf("find IPVS in generic netlink: %w", err)
	}
	sends := packServers(family.ID, r).cut()
	s, err := dial(unix.NETLINK_GENERIC)
	if err != nil {
		return nil, err
	}
	return func() error {
		defer s.close()
		return s.write(sends)
	}, nil
}

// openVserver opens the agent's own package.
func openVserver(ctx context.Context, r rows) (func() error, error) {
	h, err := vserver.New(zap.NewNop(), vserver.Options{})
	if err != nil {
		return nil, err
	}
	var servers []vserver.ServerChange
	for _, k := range r.servers {
		servers = append(servers, vserver.ServerChange{Op: vserver.Add, Key: k, Server: vserver.Server{Scheduler: scheduler}})
	}
	var destinations []vserver.DestinationChange
	for _, k := range r.destinations {
		destinations = append(destinations, vserver.DestinationChange{Op: vserver.Add, Key: k, Destination: vserver.Destination{Weight: weight}})
	}
	write := func() error {
		defer h.Close()
		errs := inBatches(servers, func(batch []vserver.ServerChange) []error { return h.WriteServers(ctx, batch) })
		return errors.Join(append(errs, inBatches(destinations, func(batch []vserver.DestinationChange) []error { return h.WriteDestinations(ctx, batch) })...)...)
	}
	return func() error { return onOtherThread(write) }, nil
}

// inBatches writes rows in batches of the agent's size.
func inBatches[C any](changes []C, write func([]C) []error) (errs []error) {
	for batch := range slices.Chunk(changes, delta.DefaultBatch) {
		errs = append(errs, write(batch)...)
	}
	return errs
}

// verify fails unless exactly the rows are in the kernel.
func verify(ctx context.Context, r rows) error {
	h, err := vserver.New(zap.NewNop(), vserver.Options{})
	if err != nil {
		return err
	}
	defer h.Close()
	servers, destinations, err := h.List(ctx)
	return errors.Join(err, r.missing(servers, destinations))
}

func (r rows) missing(servers map[vserver.ServerKey]vserver.Server, destinations map[vserver.DestinationKey]vserver.Destination) error {
	there := 0
	for _, k := range r.servers {
		if s, ok := servers[k]; ok && s.Scheduler == scheduler && s.Timeout == 0 && s.HostBits == 0 {
			there++
		}
	}
	for _, k := range r.destinations {
		if d, ok := destinations[k]; ok && d == (vserver.Destination{Weight: weight}) {
			there++
		}
	}
	if all, want := len(servers)+len(destinations), len(r.servers)+len(r.destinations); there != want || all != want {
		return fmt.Errorf("the kernel has %d of %d rows, and %d in all", there, want, all)
	}
	return nil
}

func flush() error {
	h, err := ipvs.New("")
	if err != nil {
		return err
	}
	defer h.Close()
	return h.Flush()
}

// onOtherThread keeps f off the caller's locked thread, where each hand-over between goroutines is one between threads.
func onOtherThread(f func() error) error {
	done := make(chan error)
	go func() { done <- f() }()
	return <-done
}

// namespaces stay open until the process ends, because the removal of one would hold locks that writing needs.
var namespaces []*os.File

// inNamespace runs f in a new network namespace with lo up: without lo the kernel refuses destinations.
func inNamespace(f func() error) error {
	return onOtherThread(func() error {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		ns, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			return err
		}
		namespaces = append(namespaces, ns)
		if err := netlink.LinkSetUp(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "lo"}}); err != nil {
			return fmt.Errorf("bring lo up: %w", err)
		}
		return f()
	})
}
