package sdnotify

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// supervisor is the receiving end of NOTIFY_SOCKET.
type supervisor struct{ conn *net.UnixConn }

func listen(t *testing.T, name string) supervisor {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return supervisor{conn}
}

// next returns the next message.
func (s supervisor) next(t *testing.T) string {
	t.Helper()
	if err := s.conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1024)
	n, err := s.conn.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

func (s supervisor) expect(t *testing.T, want ...string) {
	t.Helper()
	for _, w := range want {
		if got := s.next(t); got != w {
			t.Fatalf("got message %q, want %q", got, w)
		}
	}
}

func environment(pairs ...string) func(string) string {
	return func(name string) string {
		for _, p := range pairs {
			if key, value, _ := strings.Cut(p, "="); key == name {
				return value
			}
		}
		return ""
	}
}

// run runs a notifier over an environment; the returned function ends it.
func run(t *testing.T, state func() State, pairs ...string) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := New(zap.NewNop(), environment(pairs...), 42).Run(ctx, state); err != nil {
			t.Error(err)
		}
	}()
	end = func() { cancel(); <-done }
	t.Cleanup(end)
	return end
}

func TestReadyOnceThenWatchdogWhileAlive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	s := listen(t, path)
	var ready, alive atomic.Bool
	alive.Store(true)
	end := run(t, func() State { return State{ready.Load(), alive.Load()} }, "NOTIFY_SOCKET="+path, "WATCHDOG_USEC=30000", "WATCHDOG_PID=42")
	s.expect(t, "EXTEND_TIMEOUT_USEC=30000000")
	ready.Store(true)
	s.expect(t, "READY=1", "WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1")
	alive.Store(false)
	go end()
	for message := s.next(t); message != "STOPPING=1"; message = s.next(t) {
		if message != "WATCHDOG=1" { // those that were sent before
			t.Fatalf("got message %q", message)
		}
	}
}

// A loop that is stuck sends nothing, so systemd restarts the process.
func TestNoWatchdogWhileStuck(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	s := listen(t, path)
	asked := make(chan struct{})
	end := run(t, func() State { asked <- struct{}{}; return State{Ready: true} }, "NOTIFY_SOCKET="+path, "WATCHDOG_USEC=3000")
	for range 5 {
		<-asked
	}
	go func() {
		for range asked {
		}
	}()
	end()
	close(asked)
	s.expect(t, "READY=1", "STOPPING=1")
}

func TestAbstractSocketWithoutWatchdog(t *testing.T) {
	name := "@kube-ipvs-test-" + filepath.Base(t.TempDir()) + t.Name()
	s := listen(t, name)
	end := run(t, func() State { return State{Ready: true, Alive: true} }, "NOTIFY_SOCKET="+name, "WATCHDOG_USEC=3000", "WATCHDOG_PID=41")
	s.expect(t, "READY=1")
	end()
	s.expect(t, "STOPPING=1")
}

// A process that is stopped before it is ready was never ready.
func TestStoppedDuringTheStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	s := listen(t, path)
	end := run(t, func() State { return State{} }, "NOTIFY_SOCKET="+path)
	end()
	s.expect(t, "STOPPING=1")
}

func TestNoSupervisor(t *testing.T) {
	if n := New(zap.NewNop(), environment(), 42); n != nil {
		t.Errorf("got %+v, want nil", n)
	}
	if err := (*Notifier)(nil).Run(t.Context(), func() State { t.Error("asked"); return State{} }); err != nil {
		t.Error(err)
	}
}

func TestBadEnvironment(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		pairs      []string
	}{
		{"socket", "NOTIFY_SOCKET", []string{"NOTIFY_SOCKET=vsock:2:1234"}},
		{"text", "WATCHDOG_USEC", []string{"NOTIFY_SOCKET=/run/x", "WATCHDOG_USEC=soon"}},
		{"zero", "WATCHDOG_USEC", []string{"NOTIFY_SOCKET=/run/x", "WATCHDOG_USEC=0"}},
		{"overflow", "WATCHDOG_USEC", []string{"NOTIFY_SOCKET=/run/x", "WATCHDOG_USEC=9223372036854775807"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			core, logs := observer.New(zapcore.WarnLevel)
			if n := New(zap.New(core), environment(tt.pairs...), 42); n != nil && n.watchdog != 0 {
				t.Errorf("watchdog %s", n.watchdog)
			}
			if logs.Len() != 1 {
				t.Fatalf("%d warnings, want 1", logs.Len())
			}
			if text := fmt.Sprint(logs.All()[0].Message, logs.All()[0].ContextMap()); !strings.Contains(text, tt.want) {
				t.Errorf("warned %s, want %s in it", text, tt.want)
			}
		})
	}
}

// The socket may vanish and return, as it does while systemd is restarted.
func TestFailuresAreLoggedOnceInARow(t *testing.T) {
	core, logs := observer.New(zapcore.WarnLevel)
	path := filepath.Join(t.TempDir(), "notify")
	n := New(zap.New(core), environment("NOTIFY_SOCKET="+path), 42)
	n.send("WATCHDOG=1")
	n.send("WATCHDOG=1")
	s := listen(t, path)
	n.send("READY=1")
	s.expect(t, "READY=1")
	s.conn.Close()
	n.send("WATCHDOG=1")
	if logs.Len() != 2 {
		t.Errorf("%d warnings, want 2: %v", logs.Len(), logs.All())
	}
}
