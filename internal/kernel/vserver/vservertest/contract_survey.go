package vservertest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

// survey takes one and tells in how many pieces it came.
func survey(t *testing.T, s Subject) (shown map[vserver.ServerKey]vserver.Digest, pieces int) {
	t.Helper()
	if err := s.Client.BeginSurvey(context.Background()); err != nil {
		t.Fatal(err)
	}
	shown = map[vserver.ServerKey]vserver.Digest{}
	for done := false; !done; pieces++ {
		var err error
		if done, err = s.Client.Survey(context.Background(), func(k vserver.ServerKey, digest vserver.Digest) { shown[k] = digest }); err != nil {
			t.Fatal(err)
		}
	}
	return shown, pieces
}

// digests draws what exact reads give.
func digests(t *testing.T, s Subject) map[vserver.ServerKey]vserver.Digest {
	t.Helper()
	servers, destinations, err := s.Client.List(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	drawn := make(map[vserver.ServerKey]vserver.Digest, len(servers))
	for k, v := range servers {
		drawn[k] = vserver.DigestOf(k, v)
	}
	for k, v := range destinations {
		digest := drawn[k.Server]
		digest.Add(k, v)
		drawn[k.Server] = digest
	}
	return drawn
}

// wantSurvey compares a survey with exact reads.
func wantSurvey(t *testing.T, s Subject) {
	t.Helper()
	got, _ := survey(t, s)
	all := digests(t, s)
	for k, digest := range got {
		if want, there := all[k]; !there || digest != want {
			t.Errorf("%s: %+v, want %+v", k, digest, want)
		}
	}
	switch {
	case len(got) == len(all):
	case s.PassesOver:
		t.Logf("figure: a survey passed over %d of %d servers", len(all)-len(got), len(all))
	default:
		t.Errorf("%d servers are shown, want %d", len(got), len(all))
	}
}

// surveyShowsAll has a row of each kind.
func surveyShowsAll(t *testing.T, s Subject) {
	wantSurvey(t, s)
	familiesAndProtocols(t, s)
	writeServers(t, s, vserver.Add, flagged())
	startWith(t, s)
	for i, d := range []vserver.Destination{
		{}, {Weight: 65535}, {Weight: 5, Forward: vserver.ForwardTunnel}, {Weight: 5, Forward: vserver.ForwardRoute},
		{Weight: 5, Forward: vserver.ForwardLocal}, {Weight: 5, Upper: 9, Lower: 4},
	} {
		writeDestination(t, s, vserver.Add, destination(vip, fmt.Sprintf("10.0.1.%d:80", 1+i)), d)
	}
	if s.AddMark != nil {
		s.AddMark(t, 0x4000)
	}
	wantSurvey(t, s)
}

// surveyTellsChanges changes one row at a time.
func surveyTellsChanges(t *testing.T, s Subject) {
	startWith(t, s)
	persistent := vserver.Server{Scheduler: "mh", Flags: vserver.FlagPersistent, Timeout: 60}
	setServer := func(v vserver.Server) func() {
		return func() { writeServers(t, s, vserver.Update, map[vserver.ServerKey]vserver.Server{vip: v}) }
	}
	set := func(op vserver.Op, addrPort string, d vserver.Destination) func() {
		return func() { writeDestination(t, s, op, destination(vip, addrPort), d) }
	}
	timeout, mask, flags := persistent, persistent, persistent
	timeout.Timeout, mask.HostBits, flags.Flags = 61, 8, persistent.Flags|vserver.FlagSched1
	steps := []struct {
		name   string
		change func()
		hidden bool // the list does not show it
	}{
		{"a scheduler", setServer(vserver.Server{Scheduler: "mh"}), false},
		{"persistence", setServer(persistent), false},
		{"its time", setServer(timeout), false},
		{"its mask", setServer(mask), false},
		{"nothing but back", setServer(persistent), false},
		{"a scheduler's flag", setServer(flags), true},
		{"a weight", set(vserver.Update, "10.0.0.1:8080", vserver.Destination{Weight: 2}), false},
		{"a threshold", set(vserver.Update, "10.0.0.1:8080", vserver.Destination{Weight: 2, Upper: 7}), true},
		{"a way", set(vserver.Update, "10.0.0.1:8080", vserver.Destination{Weight: 2, Forward: vserver.ForwardRoute}), false},
		{"one more", set(vserver.Add, "10.0.0.2:8080", weight1), false},
		{"one less", set(vserver.Delete, "10.0.0.1:8080", weight1), false},
		{"another port", func() {
			set(vserver.Delete, "10.0.0.2:8080", weight1)()
			set(vserver.Add, "10.0.0.2:8081", weight1)()
		}, false},
	}
	before, _ := survey(t, s)
	for _, step := range steps {
		step.change()
		after, _ := survey(t, s)
		if len(after) != 1 || (before[vip] == after[vip]) != step.hidden {
			t.Errorf("%s: %+v became %+v", step.name, before[vip], after[vip])
		}
		before = after
		wantSurvey(t, s)
	}
}

func surveyComesInPieces(t *testing.T, s Subject) {
	const servers, each = 100, 50
	rows := map[vserver.ServerKey]vserver.Server{}
	var changes []vserver.DestinationChange
	for i := range servers {
		k := server(fmt.Sprintf("10.96.3.%d:443", i), vserver.ProtocolTCP)
		rows[k] = vserver.Server{Scheduler: "rr", Flags: vserver.FlagPersistent, Timeout: uint32(60 + i)}
		for j := range each {
			d := destination(k, fmt.Sprintf("10.3.%d.%d:8443", i, j))
			changes = append(changes, vserver.DestinationChange{Op: vserver.Add, Key: d, Destination: weight1})
		}
	}
	writeServers(t, s, vserver.Add, rows)
	if errs := s.Client.WriteDestinations(context.Background(), changes); errs != nil {
		t.Fatal("some rows were refused")
	}
	if _, pieces := survey(t, s); pieces < 2 {
		t.Errorf("%d rows came in %d piece", len(changes), pieces)
	}
	before := s.Client.Counters()
	survey(t, s)
	after := s.Client.Counters()
	if dumps := after.Dumps - before.Dumps; dumps != 1 {
		t.Errorf("%d reads of a table, want 1", dumps)
	}
	if messages := after.Messages - before.Messages; messages > 1 {
		t.Errorf("%d messages for servers with persistence, want one at most", messages)
	}
	wantSurvey(t, s)
}

func surveyBeginsAgain(t *testing.T, s Subject) {
	ctx := context.Background()
	visit := func(vserver.ServerKey, vserver.Digest) {}
	if _, err := s.Client.Survey(ctx, visit); err == nil {
		t.Error("a survey that was not begun went on")
	}
	surveyComesInPieces(t, s)
	if err := s.Client.BeginSurvey(ctx); err != nil {
		t.Fatal(err)
	}
	if done, err := s.Client.Survey(ctx, visit); done || err != nil {
		t.Fatalf("the first piece: done %t, %v", done, err)
	}
	wantSurvey(t, s)
	if _, err := s.Client.Survey(ctx, visit); err == nil {
		t.Error("a survey that was over went on")
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := s.Client.BeginSurvey(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v, want %v", err, context.Canceled)
	}
	if err := s.Client.BeginSurvey(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Client.Survey(ended, visit); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v, want %v", err, context.Canceled)
	}
	wantSurvey(t, s)
}
