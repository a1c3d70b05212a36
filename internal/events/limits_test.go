package events_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/events"
)

func TestSameTextIsNotRepeated(t *testing.T) {
	type said struct {
		after time.Duration
		text  string
	}
	for _, tt := range []struct {
		name   string
		say    []said
		want   []string
		series int // Events that are said to have happened again
	}{
		{"again at once", []said{{0, "a"}, {0, "a"}}, []string{"a"}, 0},
		{"again a second before ten minutes", []said{{0, "a"}, {10*time.Minute - time.Second, "a"}}, []string{"a"}, 0},
		{"again later", []said{{0, "a"}, {13 * time.Minute, "a"}}, []string{"a"}, 1},
		{"again when the API has forgotten it", []said{{0, "a"}, {time.Hour + time.Second, "a"}}, []string{"a", "a"}, 0},
		{"changed", []said{{0, "a"}, {time.Second, "b"}}, []string{"a", "b"}, 0},
		{"changed and back", []said{{0, "a"}, {time.Second, "b"}, {time.Second, "a"}}, []string{"a", "b"}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, events.Options{})
				r.run()
				for _, s := range tt.say {
					r.pass(s.after)
					r.Node(events.InvalidConfiguration, s.text)
				}
				r.pass(0)
				r.wantNotes(tt.want...)
				if len(r.patched) != tt.series {
					t.Errorf("%d series, want %d", len(r.patched), tt.series)
				}
				r.wantDropped(0)
				r.end()
			})
		})
	}
}

// While the API keeps an Event, the same text again makes it a series.
func TestRepetitionBecomesASeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, events.Options{Limits: events.Limits{Repeat: time.Minute}})
		r.run()
		for range 3 {
			r.Node(events.RestartNeeded, "bindAddress changed")
			r.pass(2 * time.Minute)
		}
		r.wantNotes("bindAddress changed")
		want := []string{
			`default/n1.d234ccf52430000 {"series":{"count":2,"lastObservedTime":"2000-01-01T00:02:00.000000Z"}}`,
			`default/n1.d234ccf52430000 {"series":{"count":3,"lastObservedTime":"2000-01-01T00:04:00.000000Z"}}`,
		}
		if diff := cmp.Diff(want, r.patched); diff != "" {
			t.Errorf("patches (-want +got):\n%s", diff)
		}
		r.end()
	})
}

func TestSubjectHasItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, events.Options{})
		r.run()
		say := func(n int) {
			for range n {
				r.Node(events.InvalidConfiguration, fmt.Sprint("mistake at ", time.Now().UnixNano()))
				r.pass(time.Second)
			}
		}
		for _, step := range []struct {
			name         string
			pause        time.Duration
			say, created int
			dropped      uint64
		}{
			{"the burst", 0, 8, 5, 3},
			{"nothing for five minutes", 280 * time.Second, 1, 5, 4},
			{"then one", 20 * time.Second, 2, 6, 5},
			{"and all of it after some time", time.Hour, 7, 11, 7},
		} {
			r.pass(step.pause)
			say(step.say)
			if r.count() != step.created {
				t.Errorf("%s: %d events, want %d", step.name, r.count(), step.created)
			}
			r.wantDropped(step.dropped)
		}
		r.Node(events.ConfigurationReloaded, "another kind has its own")
		r.pass(0)
		if r.count() != 12 {
			t.Errorf("%d events, want 12", r.count())
		}
		r.end()
	})
}

func TestServicesShareALimitAndNodeDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, events.Options{})
		r.run()
		for i := range 30 {
			r.Service(svc(fmt.Sprint("s", i)), events.VIPConflictsWithNode, "conflict")
		}
		for _, step := range []struct {
			pass time.Duration
			want int
		}{{0, 10}, {9 * time.Second, 10}, {time.Second, 11}, {50 * time.Second, 16}} {
			r.pass(step.pass)
			if r.count() != step.want {
				t.Errorf("%d events, want %d", r.count(), step.want)
			}
		}
		r.Node(events.RestartNeeded, "at once")
		r.pass(0)
		if r.count() != 17 {
			t.Errorf("%d events, want the one of the node besides", r.count())
		}
		r.pass(140 * time.Second)
		if r.count() != 31 {
			t.Errorf("%d events, want all 31", r.count())
		}
		r.wantDropped(0)
		r.end()
	})
}

func TestWaitingMessages(t *testing.T) {
	for _, tt := range []struct {
		name    string
		say     func(*rig)
		want    []string
		dropped uint64
	}{
		{"new words take the place of old ones", func(r *rig) {
			r.Service(svc("a"), events.AddressConflict, "old")
			r.Service(svc("a"), events.AddressConflict, "new")
		}, []string{"new"}, 0},
		{"the oldest goes", func(r *rig) {
			for i := range 6 {
				r.Service(svc(fmt.Sprint("s", i)), events.AddressConflict, fmt.Sprint(i))
			}
		}, []string{"2", "3", "4", "5"}, 2},
		{"a flood does not push out another kind", func(r *rig) {
			r.Service(svc("a"), events.ExternalIPRefused, "rare")
			for i := range 6 {
				r.Service(svc(fmt.Sprint("s", i)), events.AddressConflict, fmt.Sprint(i))
			}
			r.Service(svc("a"), events.FailedToStartServiceHealthcheck, "late")
		}, []string{"4", "5", "late", "rare"}, 4},
		{"services do not push out the node", func(r *rig) {
			r.Node(events.Starting, "up")
			for i := range 5 {
				r.Service(svc(fmt.Sprint("s", i)), events.AddressConflict, fmt.Sprint(i))
			}
		}, []string{"1", "2", "3", "4", "up"}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, events.Options{Limits: events.Limits{Queue: 4}})
				tt.say(r)
				r.run()
				r.wantNotes(tt.want...)
				r.wantDropped(tt.dropped)
				r.end()
			})
		})
	}
}

// A rare kind is sent after at most one message of each other kind.
func TestKindsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, events.Options{Limits: events.Limits{Burst: 3}})
		for i := range 100 {
			r.Service(svc(fmt.Sprint("s", i)), events.AddressConflict, "flood")
		}
		r.Service(svc("a"), events.ExternalIPRefused, "rare")
		r.run()
		r.wantNotes("flood", "flood", "rare")
		r.end()
	})
}

// Before Run messages are queued; the caller never blocks, and the queue is bounded.
func TestSayingNeverBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, events.Options{})
		for i := range 10_000 {
			r.Service(svc(fmt.Sprint("s", i)), events.AddressConflict, "conflict")
		}
		r.wantDropped(10_000 - 512)
	})
}

// A subject that had to be dropped is a new one: memory is bounded before anything.
func TestSubjectsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, events.Options{Limits: events.Limits{Subjects: 2}})
		r.run()
		for _, k := range []events.Kind{events.Starting, events.InvalidConfiguration, events.RestartNeeded, events.Starting, events.RestartNeeded} {
			r.pass(time.Minute)
			r.Node(k, k.Reason)
		}
		r.pass(0)
		r.wantNotes("InvalidConfiguration", "RestartNeeded", "Starting", "Starting")
		if len(r.patched) != 0 {
			t.Errorf("%d repetitions, want none of the kind that is remembered", len(r.patched))
		}
		r.end()
	})
}
