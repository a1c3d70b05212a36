package inspect_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
)

// reader answers with a fixed status or error.
type reader struct {
	inspect.Lists
	status agent.Status
	err    error
}

func (r reader) Status(context.Context) (agent.Status, error) { return r.status, r.err }

var sample = agent.Status{
	Node: "node-a", Mode: "ipvs", Synced: true, Complete: true, Ready: true, Cycles: 3, HealthChecks: 3, Healthy: true,
	ServiceTotals: agent.ServiceTotals{Services: 2, Noted: 1, RefusedAnnotations: 4, Unbound: 1, Conflicts: 2},
	DrainTotals:   agent.DrainTotals{Draining: 5, Climbing: 4, Trash: 7},
	NodePorts:     []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")},
	Tables:        []dataplane.TableStatus{{Table: "servers", Desired: 4}},
	Written:       map[string]uint64{"servers": 4},
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
	go func() { done <- inspect.Serve(ctx, l, inspect.Handler(r, http.NotFoundHandler(), unwell)) }()
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
	if diff := cmp.Diff(sample, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestStuckLoopIsSaid(t *testing.T) {
	_, err := inspect.NewClient(serve(t, reader{err: context.DeadlineExceeded})).Status(t.Context())
	if err == nil || !strings.Contains(err.Error(), "the loop of the agent is busy or stuck") {
		t.Errorf("error %v", err)
	}
}

// A process that was stopped still has its socket, and the kernel still accepts
// connections to it.
func TestStoppedProcessIsSaid(t *testing.T) {
	for name, speak := range map[string]string{"nothing": "", "half an answer": "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "agent.sock")
			l, err := inspect.Listen(path)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				c, err := l.Accept()
				if err != nil {
					return
				}
				if _, err := c.Read(make([]byte, 4096)); err == nil { // an answer before its question is none
					_, _ = io.WriteString(c, speak)
				}
			}()
			c := inspect.NewClient(path)
			c.SetPatience(100 * time.Millisecond)
			if _, err := c.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "stopped or stuck") {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestClientWaitsLongerThanTheServer(t *testing.T) {
	if got := inspect.NewClient("").Patience(); got <= inspect.AnswerWithin || got > time.Minute {
		t.Errorf("patience %v, want more than %v and an end", got, inspect.AnswerWithin)
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
services  2 served, 0 skipped, 1 with notes, 4 with annotations that are not followed
claims    1 addresses left unbound, as other machines need them; 2 conflicts
ports     NodePorts on 192.0.2.1, 2001:db8::1; 3 health-check ports, healthy
draining  5 destinations; 7 deleted in the last minutes; 4 climb to their weight
cycles    3 that wrote
audits    0; 0 rows had drifted
last      03:04:05, 1 services compiled, took 1.5ms: destinations +1 ~0 -1

TABLE    DESIRED  TO WRITE  TO DELETE  ORPHANS  WRITTEN
servers  4        0         0          0        4
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
}

func TestStateInWords(t *testing.T) {
	const unread = "; some input cannot be read, so nothing that looks orphaned is deleted"
	pending := []dataplane.TableStatus{{Updates: 1, Deletes: 5, Orphans: 3}, {Updates: 2}}
	one := []dataplane.TableStatus{{Desired: 9_999, Updates: 1}}
	tried := &agent.Cycle{}
	for name, tt := range map[string]struct {
		status agent.Status
		want   string
	}{
		"nothing delivered":       {agent.Status{}, "waiting for the sources"},
		"first write":             {agent.Status{Synced: true, Complete: true}, "writing for the first time"},
		"first write, incomplete": {agent.Status{Synced: true}, "writing for the first time" + unread},
		"kernel unread":           {agent.Status{Synced: true, Complete: true, Failures: 2, Tables: one}, "not serving yet; preparing or reading the kernel fails"},
		"one row refused always":  {agent.Status{Synced: true, Complete: true, Failures: 7, Tables: one, Last: tried}, "serving; 1 row could not be written"},
		"nothing left behind":     {agent.Status{Synced: true, Complete: true, Ready: true, Failures: 1, Last: tried}, "serving; the last pass failed"},
		"rows refused":            {agent.Status{Synced: true, Complete: true, Ready: true, Failures: 1, Tables: pending}, "serving; 8 rows could not be written"},
		"orphans are kept":        {agent.Status{Synced: true, Ready: true, Failures: 1, Tables: pending}, "serving; 5 rows could not be written" + unread},
		"incomplete":              {agent.Status{Synced: true, Ready: true}, "serving" + unread},
		"last good content":       {agent.Status{Synced: true, Ready: true, Complete: true, Unreadable: []string{"web.yaml: no such file"}}, "serving; some input cannot be read, its last good content stays in use"},
		"all well":                {agent.Status{Synced: true, Ready: true, Complete: true}, "serving"},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := inspect.WriteStatus(&b, tt.status); err != nil || !strings.Contains(b.String(), "\nstate     "+tt.want+"\n") {
				t.Errorf("want %q in\n%s (error %v)", tt.want, &b, err)
			}
		})
	}
}

func TestManyAddressesFitOnALine(t *testing.T) {
	var many []netip.Addr
	for i := range 40 {
		many = append(many, netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}))
	}
	for want, addrs := range map[string][]netip.Addr{
		"on no address;": nil, "on 192.0.2.0;": many[:1], "192.0.2.5;": many[:6], "192.0.2.5 and 34 more;": many,
	} {
		var b bytes.Buffer
		if err := inspect.WriteStatus(&b, agent.Status{NodePorts: addrs}); err != nil || !strings.Contains(b.String(), want+" 0 health-check ports, not healthy\n") {
			t.Errorf("want %q in\n%s (error %v)", want, &b, err)
		}
	}
}

func TestJoinedErrorsKeepTheColumns(t *testing.T) {
	var b bytes.Buffer
	err := inspect.WriteStatus(&b, agent.Status{Failures: 2, LastError: "add a: busy\nadd b: busy", AuditTotals: agent.AuditTotals{AuditError: "list a: busy\nlist b: busy"}, SweepError: "delete a: busy\ndelete b: busy"})
	for _, want := range []string{
		"failing   2 times in a row: add a: busy; add b: busy\n",
		"blind     drift may go unseen: list a: busy; list b: busy\n",
		"left      some of what another mode wrote: delete a: busy; delete b: busy\n",
	} {
		if err != nil || !strings.Contains(b.String(), want) {
			t.Errorf("want %q in\n%s (error %v)", want, &b, err)
		}
	}
}
