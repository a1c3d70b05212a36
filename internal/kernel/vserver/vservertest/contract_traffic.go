package vservertest

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

// estimation is more than the kernel takes to add up the counters of its processors:
// it does so once in two seconds.
const estimation = 10 * time.Second

// trafficIsCounted follows one connection in the counters of its server and its
// destination, and sees a server that is made again begin at zero.
func trafficIsCounted(t *testing.T, s Subject) {
	if s.Connect == nil {
		t.Skip("skipped: nothing connects here")
	}
	used := destination(server("127.0.0.10:80", vserver.ProtocolTCP), "127.0.0.11:8080")
	quiet := destination(server("[fd00::10]:80", vserver.ProtocolTCP), "[fd01::11]:8080")
	for _, k := range []vserver.DestinationKey{used, quiet} {
		writeServers(t, s, vserver.Add, map[vserver.ServerKey]vserver.Server{k.Server: roundRobin})
		writeDestination(t, s, vserver.Add, k, weight1)
	}
	if s.AddMark != nil {
		s.AddMark(t, 0x4000)
	}
	zero := vserver.ServerTraffic{Scheduler: roundRobin.Scheduler}
	want := map[vserver.ServerKey]vserver.ServerTraffic{used.Server: zero, quiet.Server: zero}
	if diff := cmp.Diff(want, traffic(t, s), addresses); diff != "" {
		t.Fatalf("before the first packet (-want +got):\n%s", diff)
	}
	end := s.Connect(t, used)
	defer end()
	wantCarried(t, "the server", func() vserver.Traffic { return traffic(t, s)[used.Server].Traffic })
	wantCarried(t, "the destination", func() vserver.Traffic { return destinationTraffic(t, s, used).Carried })
	if got := destinationTraffic(t, s, used); got.Weight != 1 || got.Active != 1 {
		t.Errorf("weight %d and %d connections, want 1 and 1", got.Weight, got.Active)
	}
	if got := traffic(t, s)[quiet.Server]; got != zero {
		t.Errorf("the other server carried %+v", got)
	}
	writeServers(t, s, vserver.Delete, map[vserver.ServerKey]vserver.Server{used.Server: {}})
	writeServers(t, s, vserver.Add, map[vserver.ServerKey]vserver.Server{used.Server: roundRobin})
	if diff := cmp.Diff(want, traffic(t, s), addresses); diff != "" {
		t.Errorf("made again (-want +got):\n%s", diff)
	}
	if got, err := s.Client.ListDestinationTraffic(context.Background(), used.Server); err != nil || len(got) > 0 {
		t.Errorf("an empty server has %v, error %v", got, err)
	}
}

var addresses = cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})

func traffic(t *testing.T, s Subject) map[vserver.ServerKey]vserver.ServerTraffic {
	t.Helper()
	got, err := s.Client.ListTraffic(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func destinationTraffic(t *testing.T, s Subject, k vserver.DestinationKey) vserver.DestinationTraffic {
	t.Helper()
	got, err := s.Client.ListDestinationTraffic(context.Background(), k.Server)
	if err != nil {
		t.Fatal(err)
	}
	return got[k]
}

// wantCarried waits until one connection shows: three packets at least, with headers of
// 20 bytes for each protocol.
func wantCarried(t *testing.T, what string, read func() vserver.Traffic) {
	t.Helper()
	for deadline := time.Now().Add(estimation); ; time.Sleep(20 * time.Millisecond) {
		got := read()
		if got.Connections == 1 && got.PacketsIn >= 2 && got.PacketsOut >= 1 && got.BytesIn >= 40*got.PacketsIn && got.BytesOut >= 40*got.PacketsOut {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s carried %+v, want one connection with its packets", what, got)
		}
	}
}

// loadsAreAddedUp sums what the destinations of each server have, and names those without
// a weight.
func loadsAreAddedUp(t *testing.T, s Subject) {
	if s.Connect == nil {
		t.Skip("skipped: nothing connects here")
	}
	busy, idle := server("127.0.0.10:80", vserver.ProtocolTCP), server("[fd00::10]:80", vserver.ProtocolTCP)
	taking, first, second := destination(busy, "127.0.0.11:8080"), destination(busy, "127.0.0.12:8080"), destination(idle, "[fd01::11]:8080")
	for k, d := range map[vserver.DestinationKey]vserver.Destination{taking: weight1, first: {}, second: {}} {
		writeServers(t, s, vserver.Add, map[vserver.ServerKey]vserver.Server{k.Server: roundRobin})
		writeDestination(t, s, vserver.Add, k, d)
	}
	defer s.Connect(t, taking)()
	want := map[vserver.ServerKey]vserver.Load{
		busy: {Destinations: 2, Active: 1, MostActive: 1, Quiet: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.12:8080")}},
		idle: {Destinations: 1, Quiet: []netip.AddrPort{netip.MustParseAddrPort("[fd01::11]:8080")}},
	}
	for deadline := time.Now().Add(estimation); ; time.Sleep(5 * time.Millisecond) {
		got, err := s.Client.ListLoads(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		diff := cmp.Diff(want, got, addresses)
		if diff == "" {
			return
		}
		if s.PassesOver {
			for k := range want {
				if _, seen := got[k]; !seen {
					t.Skipf("skipped: the list of this kernel passes %s over", k)
				}
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("loads (-want +got):\n%s", diff)
		}
	}
}
