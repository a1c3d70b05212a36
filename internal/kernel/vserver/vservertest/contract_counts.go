package vservertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

func keySet(keys ...vserver.DestinationKey) map[vserver.DestinationKey]struct{} {
	set := make(map[vserver.DestinationKey]struct{}, len(keys))
	for _, k := range keys {
		set[k] = struct{}{}
	}
	return set
}

// wantCounts compares the counts, giving the kernel time to see packets that are
// on their way.
func wantCounts(t *testing.T, s Subject, wanted map[vserver.DestinationKey]struct{}, want map[vserver.DestinationKey]vserver.Connections) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		got, err := CountAll(context.Background(), s.Client.Count(wanted))
		if err != nil {
			t.Fatal(err)
		}
		diff := cmp.Diff(want, got)
		if diff == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("connections (-want +got):\n%s", diff)
		}
	}
}

// connectionsAreCounted follows one connection: while it is established, after
// its end, and across a deletion of its destination.
func connectionsAreCounted(t *testing.T, s Subject) {
	if s.Connect == nil {
		t.Skip("skipped: nothing connects here")
	}
	local := server("127.0.0.10:80", vserver.ProtocolTCP)
	taking, drained := destination(local, "127.0.0.11:8080"), destination(local, "127.0.0.12:8080")
	rows := map[vserver.DestinationKey]vserver.Destination{
		taking:  weight1,
		drained: {},
		destination(server("[fd00::10]:80", vserver.ProtocolTCP), "[fd01::11]:8080"):   weight1,
		destination(server("127.0.0.10:80", vserver.ProtocolUDP), "127.0.0.11:8080"):   weight1,
		destination(server("127.0.0.10:80", vserver.ProtocolSCTP), "127.0.0.11:8080"):  weight1,
		destination(server("127.0.0.10:81", vserver.ProtocolTCP), "127.0.0.11:8080"):   weight1,
		destination(server("10.96.0.1:65535", vserver.ProtocolTCP), "10.255.0.1:1"):    weight1,
		destination(server("[fd00::10]:80", vserver.ProtocolUDP), "[a00:b::ffff]:808"): weight1,
	}
	want := make(map[vserver.DestinationKey]vserver.Connections, len(rows))
	for k, d := range rows {
		writeServers(t, s, vserver.Add, map[vserver.ServerKey]vserver.Server{k.Server: roundRobin})
		writeDestination(t, s, vserver.Add, k, d)
		want[k] = vserver.Connections{}
	}
	wanted := keySet()
	for k := range rows {
		wanted[k] = struct{}{}
	}
	wantCounts(t, s, wanted, want)

	end := s.Connect(t, taking)
	want[taking] = vserver.Connections{Active: 1}
	wantCounts(t, s, wanted, want)
	if want[taking].Idle() || !want[drained].Idle() {
		t.Error("a destination with a connection is idle, or one without is not")
	}

	end()
	want[taking] = vserver.Connections{Inactive: 1}
	wantCounts(t, s, wanted, want)
	if want[taking].Idle() {
		t.Error("a destination is idle while the kernel keeps a connection")
	}

	writeDestination(t, s, vserver.Delete, taking, vserver.Destination{})
	delete(want, taking)
	wantCounts(t, s, wanted, want)
	writeDestination(t, s, vserver.Add, taking, weight1)
	want[taking] = vserver.Connections{Inactive: 1}
	wantCounts(t, s, wanted, want)
}

func absentHasNoCount(t *testing.T, s Subject) {
	startWith(t, s)
	if s.AddMark != nil {
		s.AddMark(t, 0x4000)
	}
	wanted := keySet(web, destination(vip, "10.0.0.2:8080"), destination(server("10.96.0.2:80", vserver.ProtocolTCP), "10.0.0.1:8080"))
	wantCounts(t, s, wanted, map[vserver.DestinationKey]vserver.Connections{web: {}})
	wantCounts(t, s, nil, map[vserver.DestinationKey]vserver.Connections{})
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := CountAll(ended, s.Client.Count(wanted)); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v, want %v", err, context.Canceled)
	}
}
