package vservertest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

func markIsForeign(t *testing.T, s Subject) {
	if s.AddMark == nil {
		t.Skip("skipped: this table cannot hold firewall marks")
	}
	startWith(t, s)
	before := save(t, s)
	s.AddMark(t, 0x4000)
	if diff := cmp.Diff(before, save(t, s)); diff != "" {
		t.Errorf("table with a foreign server (-want +got):\n%s", diff)
	}
}

func singleReads(t *testing.T, s Subject) {
	want := map[vserver.ServerKey]vserver.Server{}
	var keys []vserver.ServerKey
	for i := range 300 { // several chunks
		k := server(fmt.Sprintf("10.96.2.%d:%d", i%250, 80+i), vserver.ProtocolTCP)
		keys = append(keys, k)
		if i%3 != 0 {
			want[k] = vserver.Server{Scheduler: "rr", Flags: vserver.FlagPersistent, Timeout: uint32(1 + i)}
		}
	}
	writeServers(t, s, vserver.Add, want)
	got, err := s.Client.GetServers(context.Background(), keys)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Errorf("%d servers, want %d", len(got), len(want))
	}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("GetServers()[%s] = %+v, want %+v", k, got[k], v)
		}
	}
	if _, err := s.Client.GetServer(context.Background(), keys[0]); !errors.Is(err, vserver.ErrNotExist) {
		t.Errorf("GetServer of a missing one: %v, want %v", err, vserver.ErrNotExist)
	}
	if dumps := s.Client.Counters().Dumps; dumps != 0 {
		t.Errorf("%d dumps, want none", dumps)
	}
}

func missingServerHasNone(t *testing.T, s Subject) {
	startWith(t, s)
	got, err := s.Client.ListDestinations(context.Background(), server("10.96.0.2:80", vserver.ProtocolTCP))
	if err != nil || len(got) != 0 {
		t.Errorf("ListDestinations = %v, %v; want none", got, err)
	}
}

func timeouts(t *testing.T, s Subject) {
	ctx := context.Background()
	steps := []struct {
		name      string
		set, want vserver.Timeouts
	}{
		{"all", vserver.Timeouts{TCP: time.Hour, TCPFin: time.Minute, UDP: 10 * time.Second}, vserver.Timeouts{TCP: time.Hour, TCPFin: time.Minute, UDP: 10 * time.Second}},
		{"zero keeps", vserver.Timeouts{UDP: 20 * time.Second}, vserver.Timeouts{TCP: time.Hour, TCPFin: time.Minute, UDP: 20 * time.Second}},
		{"parts of a second round up", vserver.Timeouts{UDP: time.Millisecond}, vserver.Timeouts{TCP: time.Hour, TCPFin: time.Minute, UDP: time.Second}},
	}
	for _, step := range steps {
		if err := s.Client.SetTimeouts(ctx, step.set); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if got, err := s.Client.Timeouts(ctx); err != nil || got != step.want {
			t.Errorf("%s: %+v, %v; want %+v", step.name, got, err, step.want)
		}
	}
	if err := s.Client.SetTimeouts(ctx, vserver.Timeouts{TCP: -1}); !errors.Is(err, vserver.ErrInvalid) {
		t.Errorf("negative timeout: %v, want %v", err, vserver.ErrInvalid)
	}
}

func changeCostsOneMessage(t *testing.T, s Subject) {
	startWith(t, s)
	before := s.Client.Counters()
	writeDestination(t, s, vserver.Update, web, vserver.Destination{Weight: 2})
	want := before
	want.Messages++
	want.Rows++
	want.Sends++
	if diff := cmp.Diff(want, s.Client.Counters()); diff != "" {
		t.Errorf("counters (-want +got):\n%s", diff)
	}
	if errs := s.Client.WriteDestinations(context.Background(), nil); errs != nil {
		t.Errorf("empty batch: %v", errs)
	}
	if diff := cmp.Diff(want, s.Client.Counters()); diff != "" {
		t.Errorf("counters after an empty batch (-want +got):\n%s", diff)
	}
}

// readersAgree shows one row of each kind to other readers of the same table.
func readersAgree(t *testing.T, s Subject) {
	if len(s.Readers) == 0 {
		t.Skip("skipped: no other reader of this table here")
	}
	familiesAndProtocols(t, s)
	writeServers(t, s, vserver.Add, flagged())
	startWith(t, s)
	writeDestination(t, s, vserver.Add, destination(vip, "10.0.0.2:8080"), vserver.Destination{Weight: 5, Forward: vserver.ForwardTunnel})
	writeDestination(t, s, vserver.Add, destination(vip, "10.0.0.10:80"), vserver.Destination{Weight: 5, Forward: vserver.ForwardRoute})
	ours := SortSave(save(t, s))
	for name, read := range s.Readers {
		if diff := cmp.Diff(SortSave(read(t)), ours); diff != "" {
			t.Errorf("our list against %s (-%s +ours):\n%s", name, name, diff)
		}
	}
}

// largeTable makes dumps of many datagrams: 20,000 rows in 400 servers.
func largeTable(t *testing.T, s Subject) {
	const servers, each = 400, 50
	rows := make(map[vserver.ServerKey]vserver.Server, servers)
	var changes []vserver.DestinationChange
	for i := range servers {
		k := server(fmt.Sprintf("10.96.%d.%d:443", 10+i/200, i%200), vserver.ProtocolTCP)
		rows[k] = roundRobin
		for j := range each {
			d := destination(k, fmt.Sprintf("10.2.%d.%d:8443", i%256, j+each*(i/256)))
			changes = append(changes, vserver.DestinationChange{Op: vserver.Add, Key: d, Destination: vserver.Destination{Weight: uint16(1 + j)}})
		}
	}
	writeServers(t, s, vserver.Add, rows)
	if errs := s.Client.WriteDestinations(context.Background(), changes); errs != nil {
		t.Fatal("some rows were refused")
	}
	gotServers, got, err := s.Client.List(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if len(gotServers) != servers || len(got) != len(changes) {
		t.Errorf("%d servers, %d destinations; want %d, %d", len(gotServers), len(got), servers, len(changes))
	}
	wanted := make(map[vserver.DestinationKey]struct{}, len(changes))
	for _, c := range changes {
		if got[c.Key] != c.Destination {
			t.Fatalf("%s: %+v, want %+v", c.Key, got[c.Key], c.Destination)
		}
		wanted[c.Key] = struct{}{}
	}
	start := time.Now()
	counts, err := CountAll(context.Background(), s.Client.Count(wanted))
	if err != nil || len(counts) != len(changes) {
		t.Errorf("%d counts, %v; want %d", len(counts), err, len(changes))
	}
	t.Logf("figure: the connections of %d destinations are counted in %s", len(changes), time.Since(start))
}
