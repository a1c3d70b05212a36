package meter

import (
	"encoding/binary"
	"os"
	"testing"
	"time"
)

func TestParseMachine(t *testing.T) {
	m, err := parseMachine([]byte("cpu  100 10 50 9999 9999 1 20 3 7 0\ncpu0 1 2\nctxt 5\nprocesses 77\n"))
	if want := (machine{busy: 1840 * time.Millisecond, softIRQ: 200 * time.Millisecond, processes: 77}); err != nil || m != want {
		t.Errorf("machine is %+v, %v, want %+v", m, err, want)
	}
	for _, text := range []string{"", "cpu 1 2", "cpu a b c d e f g h\nprocesses 1\n", "cpu 1 2 3 4 5 6 7 8\n"} {
		if _, err := parseMachine([]byte(text)); err == nil {
			t.Errorf("%q is no error", text)
		}
	}
}

func TestMessagesIn(t *testing.T) {
	message := func(length int) []byte {
		b := make([]byte, (length+3)&^3)
		binary.NativeEndian.PutUint32(b, uint32(length))
		return b
	}
	tests := []struct {
		name string
		in   []byte
		want int
	}{
		{"nothing", nil, 0},
		{"less than a header", make([]byte, 8), 0},
		{"one", message(20), 1},
		{"three, one of them padded", append(append(message(16), message(21)...), message(32)...), 3},
		{"one that claims to be longer", message(16)[:16:16], 1},
		{"one without a length", make([]byte, 64), 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := 0
			eachMessage(tt.in, func([]byte) { got++ })
			if got != tt.want {
				t.Errorf("%d messages, want %d", got, tt.want)
			}
		})
	}
}

// TestTreeOfProcesses: whoever descends from a child of ours belongs to it, whatever ended in between.
func TestTreeOfProcesses(t *testing.T) {
	l := &launches{trees: map[int]*int{}, of: map[int]int{}}
	self := uint32(os.Getpid())
	for _, fork := range [][4]uint32{
		{self, self, 100, 100}, // a child of ours
		{self, self, 200, 200}, // another
		{100, 100, 101, 100},   // a thread
		{101, 100, 110, 110},   // a process, by that thread
		{200, 200, 210, 210},   // of the other
		{9999, 9999, 300, 300}, // of somebody else
		{110, 110, 120, 120},   // of the process
	} {
		l.take(procFork, fork)
	}
	l.take(procExit, [4]uint32{101, 100}) // the thread ends, its process goes on
	l.take(procExit, [4]uint32{110, 110}) // a process between ends
	l.take(procFork, [4]uint32{120, 120, 130, 130})
	l.take(procFork, [4]uint32{110, 110, 140, 140}) // its number is somebody else's now
	for child, want := range map[int]int{100: 3, 200: 1, 300: 0} {
		if got, err := l.below(child); got != want || err != nil {
			t.Errorf("%d launched %d, %v, want %d", child, got, err, want)
		}
	}
	l.lost = true
	if _, err := l.below(100); err == nil {
		t.Error("events were lost, and the count is no error")
	}
}
