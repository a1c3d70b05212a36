package events_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap/zaptest"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kube-ipvs/kube-ipvs/internal/events"
	"github.com/kube-ipvs/kube-ipvs/internal/source/kube"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
)

var resource = schema.GroupResource{Group: "events.k8s.io", Resource: "events"}

func TestAnswersOfTheAPI(t *testing.T) {
	for _, tt := range []struct {
		name    string
		err     error
		again   bool // sent when the API accepts it later
		dropped uint64
	}{
		{"no answer", away(), true, 0},
		{"no answer in time", context.DeadlineExceeded, true, 0},
		{"overloaded", apierrors.NewTooManyRequests("later", 1), true, 0},
		{"broken", apierrors.NewInternalError(errors.New("etcd")), true, 0},
		{"token expired", apierrors.NewUnauthorized("who"), true, 0},
		{"forbidden", apierrors.NewForbidden(resource, "x", nil), false, 1},
		{"namespace gone", apierrors.NewNotFound(resource, "shop"), false, 1},
		{"request cannot be made", &rest.RequestConstructionError{Err: errors.New("bad name")}, false, 1},
	} {
		say := func(t *testing.T, fail func(*rig, func() error)) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, events.Options{})
				fail(r, func() error { return tt.err })
				r.run()
				r.Service(svc("web"), events.AddressConflict, "conflict")
				r.pass(5 * time.Minute)
				r.set(func() { fail(r, nil) })
				r.pass(time.Minute)
				if got := r.count() == 1; got != tt.again {
					t.Errorf("event sent: %v, want %v", got, tt.again)
				}
				r.wantDropped(tt.dropped)
				r.end()
			})
		}
		t.Run("create/"+tt.name, func(t *testing.T) {
			say(t, func(r *rig, f func() error) { r.onCreate = f })
		})
		t.Run("lookup/"+tt.name, func(t *testing.T) {
			say(t, func(r *rig, f func() error) { r.onLookup = f })
		})
	}
}

// The answer to the first try was lost: the second finds the Event there.
func TestEventThatExistsIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, events.Options{})
		tries := 0
		r.onCreate = func() error {
			if tries++; tries == 1 {
				return away()
			}
			return apierrors.NewAlreadyExists(resource, "x")
		}
		r.run()
		r.Node(events.Starting, "")
		r.pass(time.Hour)
		if tries != 2 {
			t.Errorf("%d tries, want 2", tries)
		}
		r.wantDropped(0)
		r.end()
	})
}

func TestOutage(t *testing.T) {
	for _, tt := range []struct {
		name    string
		length  time.Duration
		want    int
		dropped uint64
	}{
		{"short", 30 * time.Minute, 41, 0},
		{"longer than messages live", 2 * time.Hour, 0, 41},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, events.Options{})
				r.onCreate, r.onLookup = away, away
				r.run()
				began := time.Now()
				r.Node(events.Starting, "up")
				for i := range 40 {
					r.Service(svc(fmt.Sprint("s", i)), events.AddressConflict, "conflict")
				}
				r.pass(tt.length)
				r.set(func() { r.onCreate, r.onLookup = nil, nil })
				r.pass(10 * time.Minute)
				if r.count() != tt.want {
					t.Errorf("%d events, want %d", r.count(), tt.want)
				}
				for _, e := range r.created {
					if !e.EventTime.Time.Equal(began) {
						t.Errorf("event about %s is of %v, want when it was said, %v", e.Regarding.Name, e.EventTime, began)
					}
				}
				r.wantDropped(tt.dropped)
				r.end()
			})
		})
	}
}

// While the API takes nothing, messages stay in the queue, where old ones make room.
func TestOutageKeepsMemoryBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, events.Options{Limits: events.Limits{Queue: 20}})
		tries := 0
		r.onCreate = func() error { tries++; return away() }
		r.run()
		r.Service(svc("first"), events.AddressConflict, "conflict")
		r.pass(time.Second)
		for i := range 1000 {
			r.Service(svc(fmt.Sprint("s", i)), events.AddressConflict, "conflict")
		}
		r.pass(20 * time.Minute)
		if len(r.lookups) != 1 || tries > 60 {
			t.Errorf("%d lookups and %d tries to write in 20 minutes, want those of one event", len(r.lookups), tries)
		}
		if got := r.Dropped(); got < 970 {
			t.Errorf("%d messages dropped, want all that had no room", got)
		}
		r.end()
	})
}

// Services that cannot be looked up are no reason to be silent about the node.
func TestNodeIsHeardWhileLookupsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, events.Options{})
		r.onLookup = func() error { return apierrors.NewInternalError(errors.New("etcd")) }
		r.run()
		r.Service(svc("web"), events.AddressConflict, "conflict")
		r.pass(time.Minute)
		r.Node(events.InvalidConfiguration, "line 3")
		r.pass(0)
		r.wantNotes("line 3")
		r.end()
	})
}

func TestSeriesThatCannotBeWritten(t *testing.T) {
	for _, tt := range []struct {
		name  string
		err   error
		count int32 // count of the Event that is created in place of the lost one
	}{
		{"its event has expired", apierrors.NewNotFound(resource, "x"), 2},
		{"no answer", away(), 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, events.Options{Limits: events.Limits{Repeat: time.Minute}})
				r.onPatch = func() error { return tt.err }
				r.run()
				r.Node(events.RestartNeeded, "port changed")
				r.pass(2 * time.Minute)
				r.Node(events.RestartNeeded, "port changed")
				r.pass(0)
				var got int32
				for _, e := range r.created {
					if e.Series != nil {
						got = e.Series.Count
					}
				}
				if got != tt.count {
					t.Errorf("an event with a count of %d was created, want %d", got, tt.count)
				}
				r.wantDropped(0)
				r.end()
			})
		})
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	for _, tt := range []struct {
		name string
		busy func(*rig)
	}{
		{"nothing to do", func(*rig) {}},
		{"waiting for its turn", func(r *rig) {
			for i := range 30 {
				r.Service(svc(fmt.Sprint("s", i)), events.AddressConflict, "conflict")
			}
		}},
		{"the API is away", func(r *rig) {
			r.set(func() { r.onCreate, r.onLookup = away, away })
			r.Node(events.Starting, "")
			r.Service(svc("web"), events.AddressConflict, "conflict")
			r.pass(time.Minute)
			r.Node(events.SchedulerUnavailable, "waits for the other")
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, events.Options{})
				r.run()
				tt.busy(r)
				r.pass(0)
				before := time.Now()
				r.end()
				if took := time.Since(before); took != 0 {
					t.Errorf("Run took %v to return", took)
				}
				r.Node(events.Starting, "no server answers, no caller waits")
			})
		})
	}
}

// The same with a real client whose server never answers.
func TestRunEndsThoughTheServerHangs(t *testing.T) {
	asked := make(chan string, 10)
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		asked <- q.Method + " " + q.URL.String()
		<-release
	}))
	defer server.Close()
	defer close(release)
	client, err := kube.NewClient(kube.ClientOptions{Master: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	r := events.New(events.Options{Node: "n1", API: client, Log: zaptest.NewLogger(t)})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	r.Service(svc("web"), events.AddressConflict, "conflict")
	const want = "GET /api/v1/namespaces/shop/services?fieldSelector=metadata.name%3Dweb&resourceVersion=0"
	if got := <-asked; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
	stop()
	if err := poll.Receive(t, "the end of Run while the server hangs", done); err != nil {
		t.Errorf("Run: %v", err)
	}
}
