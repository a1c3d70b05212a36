package vserver_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/moby/ipvs"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

// benchServers share the destinations, so that the kernel's list of one server
// does not dominate.
const (
	benchServers = 100
	benchEach    = 100
)

// BenchmarkDestinations changes the weights of 10,000 destinations: packed, one
// message a call, and through the library. An update leaves nothing behind in
// the kernel, unlike additions, which every later measurement would pay for.
// Compare the rows of one run only.
func BenchmarkDestinations(b *testing.B) {
	writers := []struct {
		name string
		open func(*testing.B) func([]vserver.DestinationChange)
	}{
		{"packed", func(b *testing.B) func([]vserver.DestinationChange) { return handleWriter(b, 512) }},
		{"one by one", func(b *testing.B) func([]vserver.DestinationChange) { return handleWriter(b, 1) }},
		{"moby", libraryWriter},
	}
	for _, w := range writers {
		b.Run(w.name, func(b *testing.B) {
			setUp := openKernel(b, vserver.Options{})
			defer setUp.Close()
			changes := benchRows(b, setUp)
			write := w.open(b)
			// Not on the locked thread of the namespace: there, every hand-over
			// between goroutines would be one between threads.
			done := make(chan struct{})
			go func() {
				defer close(done)
				weight := uint16(1)
				for b.Loop() {
					weight = weight%100 + 1
					for i := range changes {
						changes[i].Destination.Weight = weight
					}
					write(changes)
				}
			}()
			<-done
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(changes)), "ns/row")
		})
	}
}

// BenchmarkPublish makes one server with all its destinations, each time in a namespace
// without a past: rows that an earlier round deleted would make every addition slower. Plain
// is under its scheduler from the start, staged is switched to it at the end.
func BenchmarkPublish(b *testing.B) {
	for _, scheduler := range []string{"rr", "wrr", "mh"} {
		for _, n := range []int{16, 250, 1000} {
			for _, staged := range []bool{false, true} {
				b.Run(fmt.Sprintf("%s/%d/staged=%t", scheduler, n, staged), func(b *testing.B) {
					made := servers(vserver.Add, 1)[0]
					made.Server.Scheduler, made.Staged = scheduler, staged
					rows := make([]vserver.DestinationChange, n)
					for i := range rows {
						rows[i] = vserver.DestinationChange{
							Op: vserver.Add, Key: destinationKey(made.Key, fmt.Sprintf("10.1.%d.%d:80", i/250, i%250)),
							Destination: vserver.Destination{Weight: 1},
						}
					}
					for b.Loop() {
						b.StopTimer()
						h := openKernel(b, vserver.Options{})
						b.StartTimer()
						done := make(chan error) // not on the locked thread, as above
						go func() { done <- publish(h, made, rows) }()
						err := <-done
						b.StopTimer()
						h.Close()
						if err != nil {
							b.Fatal(err)
						}
						b.StartTimer()
					}
					b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(n), "us/destination")
				})
			}
		}
	}
}

// BenchmarkSurvey looks at 1,000 servers of ten destinations: as text in pieces, and
// exactly, 64 servers to a message and a dump for the destinations of each.
func BenchmarkSurvey(b *testing.B) {
	h, keys, rows := benchTable(b, 1000)
	defer h.Close()
	for name, look := range map[string]func() (int, error){
		"text":  func() (int, error) { return survey(h) },
		"exact": func() (int, error) { return readExactly(h, keys) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			done := make(chan struct{}) // not on the locked thread, as above
			go func() {
				defer close(done)
				for b.Loop() {
					if n, err := look(); err != nil || n != len(keys) {
						b.Errorf("%d servers, %v", n, err)
					}
				}
			}()
			<-done
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(rows)), "ns/row")
		})
	}
}

// benchTable fills a namespace with so many servers of ten destinations.
func benchTable(b *testing.B, n int) (*vserver.Handle, []vserver.ServerKey, []vserver.DestinationChange) {
	const each = 10
	changes := servers(vserver.Add, n)
	var rows []vserver.DestinationChange
	keys := make([]vserver.ServerKey, len(changes))
	for i, c := range changes {
		keys[i] = c.Key
		for j := range each {
			key := destinationKey(c.Key, fmt.Sprintf("10.%d.%d.%d:80", 1+j, i/250, i%250))
			rows = append(rows, vserver.DestinationChange{Op: vserver.Add, Key: key, Destination: vserver.Destination{Weight: 1}})
		}
	}
	h := openKernel(b, vserver.Options{})
	if errs := append(h.WriteServers(ctx, changes), h.WriteDestinations(ctx, rows)...); errs != nil {
		b.Fatal(errors.Join(errs...))
	}
	return h, keys, rows
}

// BenchmarkCount counts the connections of one destination of each of some servers, of 1,000
// and of 5,000: by the list, and with a dump for each of them. It is what askShare follows.
func BenchmarkCount(b *testing.B) {
	for _, n := range []int{1000, 5000} {
		h, keys, rows := benchTable(b, n)
		for _, share := range []int{100, 25, 10, 4} {
			wanted := map[vserver.DestinationKey]struct{}{}
			for i := range n / share {
				wanted[rows[i*len(rows)/len(keys)].Key] = struct{}{}
			}
			for name, list := range map[string]bool{"list": true, "dumps": false} {
				b.Run(fmt.Sprintf("%d/%d/%s", n, len(wanted), name), func(b *testing.B) {
					done := make(chan struct{}) // not on the locked thread, as above
					go func() {
						defer close(done)
						for b.Loop() {
							c := vserver.CountBy(h, list, wanted)
							for over := false; !over; {
								var err error
								if _, over, err = c.Next(ctx); err != nil {
									b.Error(err)
									return
								}
							}
						}
					}()
					<-done
				})
			}
		}
		h.Close()
	}
}

// survey takes a whole one and counts servers.
func survey(h *vserver.Handle) (n int, err error) {
	err = h.BeginSurvey(ctx)
	for done := false; err == nil && !done; {
		done, err = h.Survey(ctx, func(vserver.ServerKey, vserver.Digest) { n++ })
	}
	return n, err
}

// readExactly counts the servers whose destinations were read.
func readExactly(h *vserver.Handle, keys []vserver.ServerKey) (int, error) {
	n := 0
	for piece := range slices.Chunk(keys, 64) {
		found, err := h.GetServers(ctx, piece)
		if err != nil {
			return n, err
		}
		for k := range found {
			if _, err := h.ListDestinations(ctx, k); err != nil {
				return n, err
			}
			n++
		}
	}
	return n, nil
}

// publish writes a server, its destinations, and a staged server's scheduler.
func publish(h *vserver.Handle, made vserver.ServerChange, rows []vserver.DestinationChange) error {
	errs := h.WriteServers(ctx, []vserver.ServerChange{made})
	errs = append(errs, h.WriteDestinations(ctx, rows)...)
	if made.Staged {
		made.Op = vserver.Update
		errs = append(errs, h.WriteServers(ctx, []vserver.ServerChange{made})...)
	}
	return errors.Join(errs...)
}

// benchRows fills the namespace and gives an update of every row.
func benchRows(b *testing.B, h *vserver.Handle) []vserver.DestinationChange {
	changes := servers(vserver.Add, benchServers)
	if errs := h.WriteServers(ctx, changes); errs != nil {
		b.Fatal(errs)
	}
	var rows []vserver.DestinationChange
	for i, c := range changes {
		for j := range benchEach {
			key := destinationKey(c.Key, fmt.Sprintf("10.1.%d.%d:80", i, j))
			rows = append(rows, vserver.DestinationChange{Op: vserver.Add, Key: key, Destination: vserver.Destination{Weight: 1}})
		}
	}
	if errs := h.WriteDestinations(ctx, rows); errs != nil {
		b.Fatal(errs)
	}
	for i := range rows {
		rows[i].Op = vserver.Update
	}
	return rows
}

// handleWriter opens in the namespace the benchmark's thread is in already.
func handleWriter(b *testing.B, chunk int) func([]vserver.DestinationChange) {
	h, err := vserver.New(zap.NewNop(), vserver.Options{ChunkRows: chunk})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(h.Close)
	return func(changes []vserver.DestinationChange) {
		if errs := h.WriteDestinations(ctx, changes); errs != nil {
			b.Error("some rows were refused")
		}
	}
}

func libraryWriter(b *testing.B) func([]vserver.DestinationChange) {
	library := openLibrary(b)
	return func(changes []vserver.DestinationChange) {
		for _, c := range changes {
			service := &ipvs.Service{
				AddressFamily: unix.AF_INET, Protocol: uint16(c.Key.Server.Protocol),
				Address: c.Key.Server.Addr.AsSlice(), Port: c.Key.Server.Port, SchedName: "rr",
			}
			destination := &ipvs.Destination{
				AddressFamily: unix.AF_INET, Address: c.Key.Addr.AsSlice(), Port: c.Key.Port, Weight: int(c.Destination.Weight),
			}
			if err := library.UpdateDestination(service, destination); err != nil {
				b.Error(err)
			}
		}
	}
}
