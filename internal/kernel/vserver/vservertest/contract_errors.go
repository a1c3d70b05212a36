package vservertest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

func serverWritesConverge(t *testing.T, s Subject) {
	other := vserver.Server{Scheduler: "wrr"}
	steps := []struct {
		name   string
		op     vserver.Op
		server vserver.Server
		want   []string
	}{
		{"update without a row adds", vserver.Update, roundRobin, []string{"-A -t 10.96.0.1:80 -s rr"}},
		{"add onto a row updates", vserver.Add, other, []string{"-A -t 10.96.0.1:80 -s wrr"}},
		{"delete deletes", vserver.Delete, other, nil},
		{"delete without a row is done", vserver.Delete, other, nil},
	}
	for _, step := range steps {
		t.Log(step.name)
		writeServers(t, s, step.op, map[vserver.ServerKey]vserver.Server{vip: step.server})
		wantText(t, s, step.want...)
	}
}

func destinationWritesConverge(t *testing.T, s Subject) {
	writeServers(t, s, vserver.Add, map[vserver.ServerKey]vserver.Server{vip: roundRobin})
	head := "-A -t 10.96.0.1:80 -s rr"
	steps := []struct {
		name   string
		op     vserver.Op
		weight uint16
		want   []string
	}{
		{"update without a row adds", vserver.Update, 2, []string{head, "-a -t 10.96.0.1:80 -r 10.0.0.1:8080 -m -w 2"}},
		{"add onto a row updates", vserver.Add, 3, []string{head, "-a -t 10.96.0.1:80 -r 10.0.0.1:8080 -m -w 3"}},
		{"delete deletes", vserver.Delete, 3, []string{head}},
		{"delete without a row is done", vserver.Delete, 3, []string{head}},
		{"add comes back", vserver.Add, 4, []string{head, "-a -t 10.96.0.1:80 -r 10.0.0.1:8080 -m -w 4"}},
	}
	for _, step := range steps {
		t.Log(step.name)
		writeDestination(t, s, step.op, web, vserver.Destination{Weight: step.weight})
		wantText(t, s, step.want...)
	}
}

func destinationNeedsServer(t *testing.T, s Subject) {
	for _, op := range []vserver.Op{vserver.Add, vserver.Update, vserver.Delete} {
		errs := s.Client.WriteDestinations(context.Background(), []vserver.DestinationChange{{Op: op, Key: web, Destination: weight1}})
		if op == vserver.Delete {
			if errs != nil {
				t.Errorf("delete: %v, want it done", errs)
			}
			continue
		}
		wantErrors(t, errs, 1, map[int]error{0: vserver.ErrNotExist}, op.String()+" destination 10.0.0.1:8080 of 10.96.0.1:80/tcp: ")
	}
}

// wantErrors checks which rows of n failed, with what, and how texts begin.
func wantErrors(t *testing.T, errs []error, n int, want map[int]error, prefix string) {
	t.Helper()
	if len(errs) != n {
		t.Fatalf("%d errors %v, want them aligned with %d changes", len(errs), errs, n)
	}
	for i, err := range errs {
		wanted, bad := want[i]
		switch {
		case bad != (err != nil):
			t.Errorf("row %d: error %v, want %v", i, err, wanted)
		case bad && wanted != nil && !errors.Is(err, wanted):
			t.Errorf("row %d: error %v, want %v", i, err, wanted)
		case bad && !strings.HasPrefix(err.Error(), prefix):
			t.Errorf("row %d: error %q, want it to begin with %q", i, err, prefix)
		}
	}
}

func unknownScheduler(t *testing.T, s Subject) {
	startWith(t, s)
	second := server("10.96.0.2:80", vserver.ProtocolTCP)
	third := server("10.96.0.3:80", vserver.ProtocolTCP)
	errs := s.Client.WriteServers(context.Background(), []vserver.ServerChange{
		{Op: vserver.Update, Key: vip, Server: vserver.Server{Scheduler: "nosuch"}},
		{Op: vserver.Add, Key: second, Server: vserver.Server{Scheduler: "nosuch"}},
		{Op: vserver.Add, Key: third, Server: roundRobin},
		{Op: vserver.Add, Key: second, Server: vserver.Server{Scheduler: "a-name-too-long-for-the-kernel"}},
	})
	wantErrors(t, errs, 4, map[int]error{0: vserver.ErrUnsupported, 1: vserver.ErrUnsupported, 3: vserver.ErrUnsupported}, "")
	wantText(t, s,
		"-A -t 10.96.0.1:80 -s rr", "-a -t 10.96.0.1:80 -r 10.0.0.1:8080 -m -w 1",
		"-A -t 10.96.0.3:80 -s rr")
}

func invalidRows(t *testing.T, s Subject) {
	mapped := vserver.ServerKey{Addr: netip.MustParseAddr("::ffff:10.96.0.9"), Port: 80, Protocol: vserver.ProtocolTCP}
	zoned := vserver.ServerKey{Addr: netip.MustParseAddr("fe80::1%eth0"), Port: 80, Protocol: vserver.ProtocolTCP}
	before := s.Client.Counters()
	errs := s.Client.WriteServers(context.Background(), []vserver.ServerChange{
		{Op: vserver.Add, Key: mapped, Server: roundRobin},
		{Op: vserver.Add, Key: zoned, Server: roundRobin},
		{Op: vserver.Delete},
		{Op: vserver.Add, Key: vip, Server: vserver.Server{Scheduler: "rr", HostBits: 33}},
	})
	invalid := vserver.ErrInvalid
	wantErrors(t, errs, 4, map[int]error{0: invalid, 1: invalid, 2: invalid, 3: invalid}, "")
	errs = s.Client.WriteDestinations(context.Background(), []vserver.DestinationChange{{Op: vserver.Add, Key: vserver.DestinationKey{Server: vip}}})
	wantErrors(t, errs, 1, map[int]error{0: invalid}, "")
	if after := s.Client.Counters(); after.Rows != before.Rows {
		t.Errorf("%d rows sent, want none", after.Rows-before.Rows)
	}
	wantText(t, s)
}

// badRowsInBatch is the largest case of a batch: 3,000 rows in several chunks,
// seven of them bad in six ways, in the middle and at both ends of a chunk.
func badRowsInBatch(t *testing.T, s Subject) {
	const servers, each = 30, 100
	rows := map[vserver.ServerKey]vserver.Server{}
	for i := range servers {
		rows[server(fmt.Sprintf("10.96.1.%d:80", i), vserver.ProtocolTCP)] = roundRobin
	}
	writeServers(t, s, vserver.Add, rows)
	changes := make([]vserver.DestinationChange, 0, servers*each)
	for i := range servers * each {
		k := server(fmt.Sprintf("10.96.1.%d:80", i/each), vserver.ProtocolTCP)
		d := destination(k, fmt.Sprintf("10.1.%d.%d:80", i/each, i%each))
		changes = append(changes, vserver.DestinationChange{Op: vserver.Add, Key: d, Destination: weight1})
	}
	changes[511].Key.Addr = netip.MustParseAddr("224.0.0.1")
	changes[512].Key.Addr = netip.MustParseAddr("0.0.0.0")
	changes[1499].Key.Server.Port = 81
	changes[1500].Key.Addr = netip.MustParseAddr("fd00::1")
	changes[1501].Key.Server = server("[fd00::9]:80", vserver.ProtocolTCP)
	changes[1502].Destination.Lower = 1
	changes[2999].Key.Addr = netip.MustParseAddr("255.255.255.255")
	bad := map[int]error{511: nil, 512: nil, 1499: vserver.ErrNotExist, 1500: nil, 1501: vserver.ErrNotExist, 1502: nil, 2999: nil}

	errs := s.Client.WriteDestinations(context.Background(), changes)
	wantErrors(t, errs, len(changes), bad, "add destination ")
	_, got, err := s.Client.List(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range changes {
		_, there := got[c.Key]
		if _, isBad := bad[i]; there == isBad {
			t.Errorf("row %d %s: it is in the table: %t", i, c.Key, there)
		}
	}
	if len(got) != len(changes)-len(bad) {
		t.Errorf("%d rows in the table, want %d", len(got), len(changes)-len(bad))
	}
}

func endedContext(t *testing.T, s Subject) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	errs := s.Client.WriteServers(ctx, []vserver.ServerChange{{Op: vserver.Add, Key: vip, Server: roundRobin}})
	wantErrors(t, errs, 1, map[int]error{0: context.Canceled}, "add server 10.96.0.1:80/tcp: ")
	if _, err := s.Client.ListServers(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("ListServers: %v, want %v", err, context.Canceled)
	}
	wantText(t, s)
}

func probeLeavesNothing(t *testing.T, s Subject) {
	startWith(t, s)
	before := save(t, s)
	writeServers(t, s, vserver.Add, map[vserver.ServerKey]vserver.Server{vserver.ProbeKey: roundRobin}) // of a crashed process
	for _, name := range []string{"rr", "wrr"} {
		if err := s.Client.Probe(context.Background(), name); err != nil {
			t.Error(err)
		}
	}
	if err := s.Client.Probe(context.Background(), "nosuch"); !errors.Is(err, vserver.ErrUnsupported) {
		t.Errorf("Probe of an unknown scheduler: %v, want %v", err, vserver.ErrUnsupported)
	}
	if err := s.Client.ProbeGUE(context.Background()); err != nil {
		t.Error(err)
	}
	wantText(t, s, slices.DeleteFunc(strings.Split(before, "\n"), func(line string) bool { return line == "" })...)
}
