package inspect_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
)

// reader answers with a fixed status or error.
type reader struct {
	status agent.Status
	err    error
}

func (r reader) Status(context.Context) (agent.Status, error) { return r.status, r.err }

var sample = agent.Status{
	Node: "node-a", Mode: "ipvs", Synced: true, Complete: true, Ready: true, Services: 2, Noted: 1, Cycles: 3,
	Tables:  []dataplane.TableStatus{{Table: "servers", Desired: 4}},
	Written: map[string]uint64{"servers": 4},
	Last: &agent.Cycle{At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Took: 1500 * time.Microsecond, Services: 1,
		Rows: []agent.TableRows{{Table: "destinations", Adds: 1, Deletes: 1}}},
}

// serve runs the server on a new socket and returns its path.
func serve(t *testing.T, r inspect.Reader) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run", "agent.sock")
	l, err := inspect.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- inspect.Serve(ctx, l, inspect.Handler(r, http.NotFoundHandler())) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return path
}

func TestStatusTravels(t *testing.T) {
	got, err := inspect.NewClient(serve(t, reader{status: sample})).Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sample, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestStuckLoopIsSaid(t *testing.T) {
	_, err := inspect.NewClient(serve(t, reader{err: context.DeadlineExceeded})).Status(t.Context())
	if err == nil || !strings.Contains(err.Error(), "the loop did not answer") {
		t.Errorf("error %v", err)
	}
}

func TestSecondAgentNoticesTheFirst(t *testing.T) {
	path := serve(t, reader{})
	if _, err := inspect.Listen(path); !errors.Is(err, inspect.ErrRunning) {
		t.Errorf("error %v, want %v", err, inspect.ErrRunning)
	}
}

func TestStaleSocketIsReplacedAndProtected(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	old, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	old.SetUnlinkOnClose(false)
	old.Close()
	l, err := inspect.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, error %v, want 0600", info.Mode(), err)
	}
}

func TestNoAgentIsSaidPlainly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	_, err := inspect.NewClient(path).Status(t.Context())
	if err == nil || !strings.HasPrefix(err.Error(), "no agent is running at "+path) {
		t.Errorf("error %v", err)
	}
}

func TestWriteStatus(t *testing.T) {
	var b bytes.Buffer
	if err := inspect.WriteStatus(&b, sample); err != nil {
		t.Fatal(err)
	}
	want := `node      node-a
mode      ipvs
state     serving
services  2 served, 0 skipped, 1 with notes
cycles    3 that wrote
audits    0 rounds, 0 rows had drifted
last      03:04:05, 1 services compiled, took 1.5ms: destinations +1 ~0 -1

TABLE    DESIRED  TO WRITE  TO DELETE  ORPHANS  WRITTEN
servers  4        0         0          0        4
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
}

func TestStateInWords(t *testing.T) {
	for want, s := range map[string]agent.Status{
		"waiting for the sources":                 {},
		"writing for the first time":              {Synced: true},
		"serving; some input cannot be read":      {Synced: true, Ready: true},
		"serving; some rows could not be written": {Synced: true, Ready: true, Complete: true, Failures: 1},
	} {
		var b bytes.Buffer
		if err := inspect.WriteStatus(&b, s); err != nil || !strings.Contains(b.String(), "state     "+want) {
			t.Errorf("want %q in\n%s", want, &b)
		}
	}
}
