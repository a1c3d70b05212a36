package vm

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// idleMachine is a machine whose reports the test writes.
func idleMachine() *machine {
	return &machine{ended: make(chan struct{}), reports: make(chan report, 8), started: time.Now()}
}

// follow runs machine.follow under the fake clock while script plays the guest.
func follow(t *testing.T, ctx context.Context, script func(m *machine)) (status, ups int, took time.Duration, err error) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		m := idleMachine()
		go script(m)
		began := time.Now()
		status, err = m.follow(ctx, time.Minute, func(string, time.Duration) { ups++ })
		took = time.Since(began)
	})
	return status, ups, took, err
}

func TestFollowReturnsTheGuestsStatus(t *testing.T) {
	status, ups, took, err := follow(t, context.Background(), func(m *machine) {
		time.Sleep(10 * time.Second)
		m.reports <- report{up: "6.1"}
		time.Sleep(time.Hour) // the watchdog is for the boot alone
		m.reports <- report{exited: true, status: 7}
		close(m.ended)
	})
	if status != 7 || err != nil || ups != 1 {
		t.Errorf("status %d, %d times up, error %v, want 7, once, none", status, ups, err)
	}
	if took != time.Hour+10*time.Second {
		t.Errorf("took %s", took)
	}
}

func TestFollowDoesNotWaitLongForPowerOff(t *testing.T) {
	status, _, took, err := follow(t, context.Background(), func(m *machine) {
		m.reports <- report{exited: true}
	})
	if status != 0 || err != nil || took != powerOffLimit {
		t.Errorf("status %d after %s, error %v, want 0 after %s", status, took, err, powerOffLimit)
	}
}

func TestFollowFailures(t *testing.T) {
	cancelled, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("enough"))
	tests := []struct {
		name    string
		ctx     context.Context
		script  func(m *machine)
		noBoot  bool
		message string
	}{
		{name: "silent guest", ctx: context.Background(), script: func(*machine) {}, noBoot: true, message: "within 1m0s"},
		{name: "QEMU ends before boot", ctx: context.Background(), script: func(m *machine) { close(m.reports) }, noBoot: true, message: "ended"},
		{name: "panic while running", ctx: context.Background(), script: func(m *machine) {
			m.reports <- report{up: "6.1"}
			close(m.reports)
		}, message: "without an exit status"},
		{name: "cancelled", ctx: cancelled, script: func(*machine) {}, message: "run stopped: enough"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			status, _, _, err := follow(t, tt.ctx, tt.script)
			if status != StatusBroken || err == nil || !strings.Contains(err.Error(), tt.message) {
				t.Fatalf("status %d, error %v, want %d and %q", status, err, StatusBroken, tt.message)
			}
			if errors.Is(err, errNoBoot) != tt.noBoot {
				t.Errorf("error %v: no boot = %t, want %t", err, !tt.noBoot, tt.noBoot)
			}
		})
	}
}

func TestReadReportsSkipsNoise(t *testing.T) {
	m := idleMachine()
	m.readReports(strings.NewReader("up 6.1\ngarbage\nexit 3\n"))
	var got []report
	for r := range m.reports {
		got = append(got, r)
	}
	if len(got) != 2 || got[0].up != "6.1" || !got[1].exited || got[1].status != 3 {
		t.Errorf("reports %+v", got)
	}
	if !strings.Contains(m.console.String(), "garbage") {
		t.Error("the noise is not among the last words")
	}
}

func TestDrainGoesOnAfterAFailingWriter(t *testing.T) {
	rest := strings.NewReader(strings.Repeat("x", 200<<10))
	drain(&fullDisk{writes: 1}, rest)
	if rest.Len() != 0 {
		t.Errorf("%d bytes were left in the pipe: the guest would hang", rest.Len())
	}
}
