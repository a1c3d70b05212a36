package vserver_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver/vservertest"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
)

func TestHandleContract(t *testing.T) {
	vservertest.Contract(t, func(t *testing.T) vservertest.Subject {
		p := newPeer()
		return vservertest.Subject{
			Client:     open(t, p, vserver.Options{CallTimeout: poll.Patience}),
			Schedulers: vservertest.Schedulers(),
			AddMark:    func(_ *testing.T, mark uint32) { p.marks = append(p.marks, mark) },
			Connect:    p.connect,
		}
	})
}

func open(t testing.TB, p *peer, opts vserver.Options) *vserver.Handle {
	t.Helper()
	h, err := p.handle(t, opts)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

var ctx = context.Background()

// servers makes n changes on servers of their own.
func servers(op vserver.Op, n int) []vserver.ServerChange {
	changes := make([]vserver.ServerChange, n)
	for i := range changes {
		key := serverKey(fmt.Sprintf("10.96.%d.%d:80", i/250, i%250), vserver.ProtocolTCP)
		changes[i] = vserver.ServerChange{Op: op, Key: key, Server: vserver.Server{Scheduler: "rr"}}
	}
	return changes
}

func TestNewWithoutIPVS(t *testing.T) {
	p := newPeer()
	p.family = 0
	if _, err := p.handle(t, vserver.Options{}); !errors.Is(err, vserver.ErrUnsupported) {
		t.Errorf("error %v, want %v", err, vserver.ErrUnsupported)
	}
}

func TestWritesArePacked(t *testing.T) {
	tests := []struct {
		name                   string
		rows                   int
		opts                   vserver.Options
		limit                  int
		wantSends, wantLargest int
	}{
		{"one row", 1, vserver.Options{}, 1 << 20, 1, 1},
		{"a full chunk", 512, vserver.Options{}, 1 << 20, 1, 512},
		{"one row more", 513, vserver.Options{}, 1 << 20, 2, 512},
		{"chosen size", 10, vserver.Options{ChunkRows: 4}, 1 << 20, 3, 4},
		{"a small send buffer", 10, vserver.Options{}, 400, 4, 3},
		{"a send buffer for one row", 3, vserver.Options{}, 120, 3, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPeer()
			p.limit = tt.limit
			h := open(t, p, tt.opts)
			defer h.Close()
			if errs := h.WriteServers(ctx, servers(vserver.Add, tt.rows)); errs != nil {
				t.Fatal(errs)
			}
			want := vserver.Counters{Messages: uint64(tt.rows), Rows: uint64(tt.rows), Sends: uint64(tt.wantSends)}
			if diff := cmp.Diff(want, h.Counters()); diff != "" {
				t.Errorf("counters (-want +got):\n%s", diff)
			}
			if p.maxBatch != tt.wantLargest {
				t.Errorf("largest send has %d messages, want %d", p.maxBatch, tt.wantLargest)
			}
			if len(p.table.Servers) != tt.rows {
				t.Errorf("%d servers, want %d", len(p.table.Servers), tt.rows)
			}
		})
	}
}

// TestLostAnswers breaks the second of three chunks in every way in which an
// answer can be lost. Chunk one is known, chunk two unknown, chunk three unsent;
// the call after it works on a new socket.
func TestLostAnswers(t *testing.T) {
	second := func(send int) bool { return send == 3 } // after the family and chunk one
	tests := []struct {
		name    string
		plan    func(*peer)
		want    error
		applied int
	}{
		{"the send is stuck in the kernel", func(p *peer) { p.stuck = second }, context.DeadlineExceeded, 4},
		{"the answer is lost", func(p *peer) { p.mute = second }, context.DeadlineExceeded, 8},
		{"the receive buffer overflows", func(p *peer) { p.overrun = second }, vserver.ErrUnknown, 8},
		{"the answer is garbage", func(p *peer) { p.garble = second }, vserver.ErrUnknown, 8},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPeer()
				tt.plan(p)
				h := open(t, p, vserver.Options{ChunkRows: 4})
				defer h.Close()
				start := time.Now()
				errs := h.WriteServers(ctx, servers(vserver.Add, 12))
				if took := time.Since(start); took > 5*time.Second {
					t.Errorf("took %s, want the default of 5s at most", took)
				}
				for i, err := range errs {
					unknown, lost := i >= 4 && i < 8, i >= 4
					if lost != (err != nil) || unknown != errors.Is(err, vserver.ErrUnknown) || unknown && !errors.Is(err, tt.want) {
						t.Errorf("row %d: %v", i, err)
					}
				}
				if n := p.serverCount(); n != tt.applied {
					t.Errorf("%d rows applied, want %d", n, tt.applied)
				}
				if errs := h.WriteServers(ctx, servers(vserver.Add, 12)); errs != nil {
					t.Errorf("the next write: %v", errs)
				}
				if got := h.Counters().Reopened; got != 1 || p.opened != 2 {
					t.Errorf("%d sockets given up, %d opened; want 1, 2", got, p.opened)
				}
			})
		})
	}
}

// TestLossEndsConvergence: rows that were to be tried the other way round are
// not sent to a kernel that has just stopped answering.
func TestLossEndsConvergence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer()
		h := open(t, p, vserver.Options{ChunkRows: 4})
		defer h.Close()
		p.mute = func(send int) bool { return send >= 3 }
		start := time.Now()
		errs := h.WriteServers(ctx, append(servers(vserver.Update, 4), servers(vserver.Add, 8)[4:]...))
		for i, err := range errs {
			if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, vserver.ErrUnknown) != (i >= 4) {
				t.Errorf("row %d: %v", i, err)
			}
		}
		if took := time.Since(start); len(errs) != 8 || took != 5*time.Second {
			t.Errorf("%d errors after %s, want 8 after 5s", len(errs), took)
		}
	})
}

// TestHeldCallsAreBounded: a kernel that keeps threads, whatever becomes of their
// sockets, gets a few of them and no more; once it lets go all is well again.
func TestHeldCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer()
		p.stuck = func(send int) bool { return send >= 2 && send <= 5 } // 1 was the family
		p.hold = make(chan struct{})
		h := open(t, p, vserver.Options{})
		defer h.Close()
		for i := range 4 {
			if _, err := h.ListServers(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("call %d: %v, want %v", i, err, context.DeadlineExceeded)
			}
		}
		before, start := h.Counters(), time.Now()
		calls := map[string]func() error{
			"ListServers":  func() error { _, err := h.ListServers(ctx); return err },
			"Timeouts":     func() error { _, err := h.Timeouts(ctx); return err },
			"GetServer":    func() error { _, err := h.GetServer(ctx, vserver.ProbeKey); return err },
			"WriteServers": func() error { return errors.Join(h.WriteServers(ctx, servers(vserver.Add, 600))...) },
		}
		for name, call := range calls {
			// A row that was never sent is not one of unknown outcome.
			if err := call(); !errors.Is(err, vserver.ErrBusy) || errors.Is(err, vserver.ErrUnknown) || errors.Is(err, vserver.ErrNotExist) {
				t.Errorf("%s: %v, want only busy", name, err)
			}
		}
		if diff := cmp.Diff(before, h.Counters()); diff != "" || time.Since(start) != 0 {
			t.Errorf("took %s; counters (-want +got):\n%s", time.Since(start), diff)
		}
		close(p.hold)
		synctest.Wait()
		if errs := h.WriteServers(ctx, servers(vserver.Add, 600)); errs != nil {
			t.Errorf("after the kernel let go: %v", errs[0])
		}
		if n := p.serverCount(); n != 600 {
			t.Errorf("%d servers, want 600", n)
		}
	})
}

func TestDeadlineOfTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer()
		h := open(t, p, vserver.Options{})
		defer h.Close()
		p.mute = func(int) bool { return true }
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		start := time.Now()
		if _, err := h.ListServers(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want %v", err, context.DeadlineExceeded)
		}
		if took := time.Since(start); took != time.Second {
			t.Errorf("took %s, want 1s", took)
		}
	})
}

func TestErrorsNameOperationRowAndReason(t *testing.T) {
	p := newPeer()
	h := open(t, p, vserver.Options{})
	defer h.Close()
	errs := h.WriteDestinations(ctx, []vserver.DestinationChange{
		{Op: vserver.Add, Key: destinationKey(serverKey("10.96.0.10:53", vserver.ProtocolUDP), "10.0.0.1:53")},
	})
	want := "add destination 10.0.0.1:53 of 10.96.0.10:53/udp: its server does not exist (no such process)"
	if len(errs) != 1 || errs[0] == nil || errs[0].Error() != want {
		t.Errorf("errors %v, want %s", errs, want)
	}
}

func TestInterruptedDumps(t *testing.T) {
	tests := []struct {
		name      string
		plan      func(*peer)
		want      error
		wantDumps int
	}{
		{"none", func(*peer) {}, nil, 1},
		{"once", func(p *peer) { p.interrupt = func(d int) bool { return d == 1 } }, nil, 2},
		{"always", func(p *peer) { p.interrupt = func(int) bool { return true } }, vserver.ErrInterrupted, 4},
		{"a row twice", func(p *peer) { p.twice = func(d int) bool { return d <= 2 } }, nil, 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPeer()
			h := open(t, p, vserver.Options{})
			defer h.Close()
			if errs := h.WriteServers(ctx, servers(vserver.Add, 300)); errs != nil {
				t.Fatal(errs)
			}
			tt.plan(p)
			got, err := h.ListServers(ctx)
			if !errors.Is(err, tt.want) {
				t.Fatalf("error %v, want %v", err, tt.want)
			}
			wantRows := 300
			if tt.want != nil {
				wantRows = 0
			}
			if len(got) != wantRows || p.dumps != tt.wantDumps {
				t.Errorf("%d rows after %d dumps, want %d after %d", len(got), p.dumps, wantRows, tt.wantDumps)
			}
		})
	}
}

// TestModuleLoadedAgain: the family's number changes when ip_vs is unloaded and
// loaded. One call fails, and no read takes that for an absent row; the next
// call has the new number.
func TestModuleLoadedAgain(t *testing.T) {
	key := serverKey("10.96.0.1:80", vserver.ProtocolTCP)
	calls := map[string]func(*vserver.Handle) error{
		"ListServers":      func(h *vserver.Handle) error { _, err := h.ListServers(ctx); return err },
		"ListDestinations": func(h *vserver.Handle) error { _, err := h.ListDestinations(ctx, key); return err },
		"GetServers":       func(h *vserver.Handle) error { _, err := h.GetServers(ctx, []vserver.ServerKey{key}); return err },
		"WriteServers": func(h *vserver.Handle) error {
			return errors.Join(h.WriteServers(ctx, servers(vserver.Add, 1))...)
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			p := newPeer()
			h := open(t, p, vserver.Options{})
			defer h.Close()
			p.family = 0x2f
			if err := call(h); !errors.Is(err, vserver.ErrUnsupported) || errors.Is(err, vserver.ErrNotExist) {
				t.Errorf("first call: %v, want %v", err, vserver.ErrUnsupported)
			}
			if err := call(h); err != nil {
				t.Errorf("second call: %v", err)
			}
		})
	}
}

func TestConvergenceIsBounded(t *testing.T) {
	p := newPeer()
	h := open(t, p, vserver.Options{})
	defer h.Close()
	key := serverKey("10.96.0.1:80", vserver.ProtocolTCP)
	// Another program deletes the row before each update and adds it before each add.
	p.stuck = func(int) bool {
		if _, ok := p.table.Servers[key]; ok {
			_ = p.table.DeleteServer(key)
		} else {
			_ = p.table.AddServer(key, vserver.Server{Scheduler: "rr"})
		}
		return false
	}
	errs := h.WriteServers(ctx, []vserver.ServerChange{{Op: vserver.Add, Key: key, Server: vserver.Server{Scheduler: "rr"}}})
	if len(errs) != 1 || !errors.Is(errs[0], vserver.ErrExist) {
		t.Errorf("errors %v, want %v", errs, vserver.ErrExist)
	}
	if rows := h.Counters().Rows; rows != 3 {
		t.Errorf("%d rows sent, want 3", rows)
	}
}
