package ipset

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// mute prepares a request that the kernel carries out without an answer.
func mute(h *Handle, name string) {
	h.begin(nl.IPSET_CMD_FLUSH, 0)
	h.msg.str(nl.IPSET_ATTR_SETNAME, name)
}

func TestMissingReplyEndsAtDeadline(t *testing.T) {
	h := OpenInside(t, Options{})
	set := Set{Name: "a", Type: BitmapPort}
	if err := h.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	h.conn.timeout = time.Millisecond
	mute(h, "a")
	if err := h.command(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("command without reply = %v", err)
	}
	if h.conn.file != nil {
		t.Error("the socket was kept")
	}
	h.conn.timeout = DefaultTimeout
	if err := h.Add(t.Context(), "a", Port(1)); err != nil {
		t.Errorf("next call: %v", err)
	}
}

func TestMissingReplyEndsWithContext(t *testing.T) {
	h := OpenInside(t, Options{})
	if err := h.Create(t.Context(), Set{Name: "a", Type: BitmapPort}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	mute(h, "a")
	go cancel() // while the call waits, or before: both must end it
	if err := h.command(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("command without reply = %v", err)
	}
	if err := h.Add(t.Context(), "a", Port(1)); err != nil {
		t.Errorf("next call: %v", err)
	}
}

// A reply to an earlier request that timed out must not be taken for the answer to the next
// request.
func TestStaleReplyIsSkipped(t *testing.T) {
	h := OpenInside(t, Options{})
	if err := h.Create(t.Context(), Set{Name: "a", Type: BitmapPort}); err != nil {
		t.Fatal(err)
	}
	h.begin(nl.IPSET_CMD_DESTROY, unix.NLM_F_ACK|unix.NLM_F_EXCL)
	h.msg.str(nl.IPSET_ATTR_SETNAME, "missing")
	h.msg.end()
	if err := h.conn.send(h.msg.b); err != nil {
		t.Fatal(err)
	}
	if err := h.Flush(t.Context(), "a"); err != nil {
		t.Errorf("Flush took the stale refusal: %v", err)
	}
}

// A write whose replies do not come reports every row that was not confirmed.
func TestUnansweredRowsCarryTheError(t *testing.T) {
	h := OpenInside(t, Options{})
	set := Set{Name: "a", Type: BitmapPort}
	if err := h.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	changes := []Change{AddEntry(Port(1)), DeleteEntry(Port(2)), AddEntry(Port(3))}
	w := &writer{h: h, set: set, changes: changes, rows: []int{1, 2}}
	other := &writer{h: h, set: Set{Name: "b", Type: BitmapPort}, changes: changes, rows: []int{0}}
	if err := h.conn.file.Close(); err != nil { // the socket is pulled from under it
		t.Fatal(err)
	}
	h.sendAll(t.Context(), []*writer{w, other})
	for i, want := range []error{nil, os.ErrClosed, os.ErrClosed} {
		if !errors.Is(w.errs[i], want) {
			t.Errorf("row %d: %v, want %v", i, w.errs[i], want)
		}
	}
	if !errors.Is(other.errs[0], os.ErrClosed) {
		t.Errorf("row of the next set: %v", other.errs)
	}
	if errs := h.Write(t.Context(), set, changes); errs != nil {
		t.Errorf("next write: %v", errs)
	}
}

// The socket that replaces a broken one belongs to the namespace in which the
// handle was opened, not to that of the thread that happens to run.
func TestReopenStaysInNamespace(t *testing.T) {
	h := OpenInside(t, Options{})
	if err := h.Create(t.Context(), Set{Name: "mine", Type: BitmapPort}); err != nil {
		t.Fatal(err)
	}
	elsewhere := make(chan error)
	go func() {
		runtime.LockOSThread() // not unlocked: the thread ends in its other namespace
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			elsewhere <- err
			return
		}
		before, _ := os.Readlink(netnsPath)
		err := errors.Join(h.conn.drop(), h.Flush(t.Context(), "mine"))
		if after, _ := os.Readlink(netnsPath); before != after {
			err = errors.Join(err, errors.New("the thread was left in another namespace"))
		}
		elsewhere <- err
	}()
	if err := <-elsewhere; err != nil {
		t.Error(err)
	}
}

func TestCloseReleasesDescriptors(t *testing.T) {
	openAndClose(t) // the first one starts the runtime's poller, which keeps its own
	before := descriptors(t)
	openAndClose(t)
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func openAndClose(t *testing.T) {
	t.Helper()
	h, err := New(Options{})
	if err != nil {
		t.Skipf("no netfilter netlink: %v", err)
	}
	for range 2 { // closing twice is harmless
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.Probe(t.Context()); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Probe after Close = %v", err)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	names, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

func TestInterruptedDumpIsRepeatedThenRefused(t *testing.T) {
	for _, tt := range []struct {
		name  string
		broke int
		want  error
	}{
		{"never", 0, nil},
		{"until the last attempt", dumpAttempts - 1, nil},
		{"always", dumpAttempts, ErrInterrupted},
	} {
		t.Run(tt.name, func(t *testing.T) {
			calls := 0
			parts, err := untilWhole(func() ([]part, error) {
				if calls++; calls <= tt.broke {
					return []part{{name: "half"}}, ErrInterrupted
				}
				return []part{{name: "whole"}}, nil
			})
			if !errors.Is(err, tt.want) {
				t.Fatalf("error %v, want %v", err, tt.want)
			}
			if tt.want != nil && parts != nil || tt.want == nil && parts[0].name != "whole" {
				t.Errorf("parts %v", parts)
			}
		})
	}
}

func TestDumperNoticesInterruption(t *testing.T) {
	for _, tt := range []struct {
		name  string
		first uint16
		last  uint16
		want  bool
	}{
		{"clean", unix.NLM_F_MULTI, unix.NLM_F_MULTI, false},
		{"in a part", unix.NLM_F_MULTI | unix.NLM_F_DUMP_INTR, unix.NLM_F_MULTI, true},
		{"at the end", unix.NLM_F_MULTI, unix.NLM_F_MULTI | unix.NLM_F_DUMP_INTR, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var m message
			m.b = append(m.b, 0, 0, 0, 0) // nfgenmsg
			m.str(nl.IPSET_ATTR_SETNAME, "a")
			var d dumper
			if done, err := d.take(reply{typ: unix.NFNL_SUBSYS_IPSET<<8 | nl.IPSET_CMD_LIST, flags: tt.first, body: m.b}); done || err != nil {
				t.Fatal(done, err)
			}
			if done, err := d.take(reply{typ: unix.NLMSG_DONE, flags: tt.last, body: make([]byte, 4)}); !done || err != nil {
				t.Fatal(done, err)
			}
			if d.interrupted != tt.want || len(d.parts) != 1 {
				t.Errorf("interrupted %t with %d parts, want %t", d.interrupted, len(d.parts), tt.want)
			}
		})
	}
}

// A cancellation that fires late must be over before the next request arms the
// socket.
func TestStopWaitsForCancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = errors.Join(r.Close(), w.Close()) }()
		c := &conn{file: r, timeout: time.Hour}
		ctx, cancel := context.WithCancel(t.Context())
		stop, err := c.deadline(ctx, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		stop()
		if _, err := r.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read after stop = %v: the cancellation is still to come", err)
		}
	})
}
