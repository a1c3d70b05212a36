package events_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap/zaptest"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-ipvs/kube-ipvs/internal/events"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// rig is a Recorder before a fake API server that keeps what it was asked. Every
// Service exists unless it is listed as gone.
type rig struct {
	*events.Recorder
	t    *testing.T
	stop context.CancelFunc
	done chan error

	mu      sync.Mutex
	created []*eventsv1.Event
	patched []string
	lookups []string
	// Errors that the API returns; nil is success.
	onCreate, onPatch, onLookup func() error
	gone                        func(version string) bool
}

// newRig makes a rig inside of a bubble of synctest. Its recorder does not run yet.
func newRig(t *testing.T, o events.Options) *rig {
	t.Helper()
	r := &rig{t: t, done: make(chan error, 1)}
	o.API, o.Log = (*server)(r), zaptest.NewLogger(t)
	if o.Node == "" {
		o.Node = "n1"
	}
	r.Recorder = events.New(o)
	return r
}

// run starts the recorder and stops it when the test ends.
func (r *rig) run() {
	ctx, stop := context.WithCancel(r.t.Context())
	r.stop = stop
	go func() { r.done <- r.Run(ctx) }()
	synctest.Wait()
}

func (r *rig) end() {
	r.t.Helper()
	r.stop()
	if err := <-r.done; err != nil {
		r.t.Errorf("Run: %v", err)
	}
}

// pass lets time go by and everything settle.
func (r *rig) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// server is a rig as the recorder sees it.
type server rig

func (s *server) ListServices(_ context.Context, namespace string, o metav1.ListOptions) (*corev1.ServiceList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lookups = append(s.lookups, fmt.Sprintf("%s %s %q", namespace, o.FieldSelector, o.ResourceVersion))
	if err := call(s.onLookup); err != nil {
		return nil, err
	}
	list := &corev1.ServiceList{}
	if s.gone == nil || !s.gone(o.ResourceVersion) {
		name, _ := fields.ParseSelectorOrDie(o.FieldSelector).RequiresExactMatch(metav1.ObjectNameField)
		list.Items = []corev1.Service{{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-of-" + name)}}}
	}
	return list, nil
}

func (s *server) CreateEvent(_ context.Context, e *eventsv1.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := call(s.onCreate); err != nil {
		return err
	}
	s.created = append(s.created, e.DeepCopy())
	return nil
}

func (s *server) PatchEvent(_ context.Context, namespace, name string, patch []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.patched = append(s.patched, fmt.Sprintf("%s/%s %s", namespace, name, patch))
	return call(s.onPatch)
}

func call(f func() error) error {
	if f == nil {
		return nil
	}
	return f()
}

// notes are the texts of all Events so far, sorted.
func (r *rig) notes() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var notes []string
	for _, e := range r.created {
		notes = append(notes, e.Note)
	}
	slices.Sort(notes)
	return notes
}

func (r *rig) count() int { return len(r.notes()) }

// only is the one Event there is.
func (r *rig) only() *eventsv1.Event {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.created) != 1 {
		r.t.Fatalf("%d events were created, want 1", len(r.created))
	}
	return r.created[0]
}

func (r *rig) wantNotes(want ...string) {
	r.t.Helper()
	if got := r.notes(); !slices.Equal(got, want) {
		r.t.Errorf("events say\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func (r *rig) wantDropped(want uint64) {
	r.t.Helper()
	if got := r.Dropped(); got != want {
		r.t.Errorf("%d messages dropped, want %d", got, want)
	}
}

// set changes the answers of the API.
func (r *rig) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

func svc(name string) model.ServiceID {
	return model.ServiceID{Origin: model.FromKube, Namespace: "shop", Name: name}
}

func pretty(t *testing.T, v any) string {
	t.Helper()
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text) + "\n"
}

// away is the error of a client when no API server answers.
func away() error { return errors.New("dial tcp 10.96.0.1:443: connect: connection refused") }
