package vserver_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"testing"

	"github.com/moby/ipvs"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

// The benchmarks of this file show what limits of the kernel cost, and so what decisions
// gain that avoid them. e2e/bench/README.md has the figures.

// BenchmarkAddAfterDeletions adds destinations to a table from which many others were just deleted.
// The kernel keeps those on a list for minutes and searches it for each addition
// (ip_vs_trash_get_dest, net/netfilter/ipvs/ip_vs_ctl.c).
func BenchmarkAddAfterDeletions(b *testing.B) {
	const added = 500
	for _, deleted := range []int{0, 1000, 10_000} {
		b.Run(fmt.Sprintf("deleted=%d", deleted), func(b *testing.B) {
			server := servers(vserver.Add, 1)
			old, rows := someDestinations(server[0].Key, 1, deleted), someDestinations(server[0].Key, 2, added)
			for b.Loop() {
				b.StopTimer()
				h := openKernel(b, vserver.Options{})
				errs := append(h.WriteServers(ctx, server), h.WriteDestinations(ctx, old)...)
				for i := range old {
					old[i].Op = vserver.Delete
				}
				errs = append(errs, h.WriteDestinations(ctx, old)...)
				for i := range old {
					old[i].Op = vserver.Add
				}
				b.StartTimer()
				done := make(chan []error) // not on the locked thread of the namespace
				go func() { done <- h.WriteDestinations(ctx, rows) }()
				errs = append(errs, <-done...)
				b.StopTimer()
				h.Close()
				if err := errors.Join(errs...); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/added, "us/destination")
		})
	}
}

func someDestinations(server vserver.ServerKey, net, n int) []vserver.DestinationChange {
	rows := make([]vserver.DestinationChange, n)
	for i := range rows {
		key := destinationKey(server, fmt.Sprintf("10.%d.%d.%d:80", net, i/250, i%250))
		rows[i] = vserver.DestinationChange{Op: vserver.Add, Key: key, Destination: vserver.Destination{Weight: 1}}
	}
	return rows
}

// BenchmarkNodePorts creates 100 NodePorts of ten destinations each. It compares one server for
// each of some addresses of the node with one server for a firewall mark. All calls go through the
// library, because this package does not support marks.
func BenchmarkNodePorts(b *testing.B) {
	const ports, each = 100, 10
	for _, addresses := range []int{0, 1, 2, 4} {
		name := fmt.Sprintf("addresses=%d", addresses)
		if addresses == 0 {
			name = "mark"
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				openKernel(b, vserver.Options{}).Close() // a namespace of its own
				library := openLibrary(b)
				b.StartTimer()
				for port := range uint16(ports) {
					if addresses == 0 {
						makePort(b, library, &ipvs.Service{AddressFamily: unix.AF_INET, FWMark: 1 + uint32(port), SchedName: "rr", Netmask: 0xffffffff}, each)
					}
					for a := range byte(addresses) {
						makePort(b, library, &ipvs.Service{
							AddressFamily: unix.AF_INET, Protocol: unix.IPPROTO_TCP, Address: net.IPv4(192, 0, 2, 1+a).To4(), Port: 30000 + port,
							SchedName: "rr", Netmask: 0xffffffff,
						}, each)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/ports, "us/port")
		})
	}
}

func makePort(b *testing.B, library *ipvs.Handle, s *ipvs.Service, each int) {
	err := library.NewService(s)
	for i := range byte(each) {
		err = errors.Join(err, library.NewDestination(s, &ipvs.Destination{AddressFamily: unix.AF_INET, Address: net.IPv4(10, 1, 0, 1+i).To4(), Port: 8080, Weight: 1}))
	}
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkConnectionTable sends packets of UDP to a server while the kernel keeps
// many other connections. The number of its buckets is a parameter of the module
// (ip_vs conn_tab_bits), so another one takes another VM; the name tells which it was.
func BenchmarkConnectionTable(b *testing.B) {
	h := openKernel(b, vserver.Options{})
	defer h.Close()
	key := serverKey("127.0.0.10:53", vserver.ProtocolUDP)
	errs := append(h.WriteServers(ctx, []vserver.ServerChange{{Op: vserver.Add, Key: key, Server: vserver.Server{Scheduler: "rr"}}}),
		h.WriteDestinations(ctx, []vserver.DestinationChange{{Op: vserver.Add, Key: destinationKey(key, "127.0.0.11:53"), Destination: vserver.Destination{Weight: 1}}})...)
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Close(fd)
	size, made := buckets(b), 0
	for _, connections := range []int{1_000, 100_000, 400_000} {
		for ; made < connections; made++ {
			sendFrom(b, fd, made)
		}
		b.Run(fmt.Sprintf("buckets=%s/connections=%d", size, connections), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				sendFrom(b, fd, i*7919%connections)
			}
		})
	}
}

// sendFrom sends a datagram from the n-th of many clients.
func sendFrom(b *testing.B, fd, n int) {
	packet := make([]byte, 28)
	packet[0], packet[3], packet[8], packet[9] = 0x45, 28, 64, unix.IPPROTO_UDP
	copy(packet[12:], []byte{127, byte(1 + n/(250*60_000)), byte(n / 60_000), 1})
	copy(packet[16:], []byte{127, 0, 0, 10})
	binary.BigEndian.PutUint16(packet[20:], uint16(1024+n%60_000))
	binary.BigEndian.PutUint16(packet[22:], 53)
	binary.BigEndian.PutUint16(packet[24:], 8)
	if err := unix.Sendto(fd, packet, 0, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 10}}); err != nil && !errors.Is(err, unix.ECONNREFUSED) {
		b.Fatal(err)
	}
}

// buckets is the size of the kernel's table of connections.
func buckets(b *testing.B) string {
	text, err := os.ReadFile("/proc/net/ip_vs")
	if err != nil {
		b.Fatal(err)
	}
	found := regexp.MustCompile(`size=(\d+)`).FindSubmatch(text)
	if found == nil {
		b.Fatalf("no size in %.80q", text)
	}
	return string(found[1])
}
