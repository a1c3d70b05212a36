package measure

import (
	"testing"
	"time"
)

func TestParseBusy(t *testing.T) {
	busy, err := parseBusy([]byte("cpu  100 10 50 9999 9999 1 20 3 7 0\ncpu0 1 2\nctxt 5\nprocesses 77\n"))
	if want := 1840 * time.Millisecond; err != nil || busy != want {
		t.Errorf("busy for %s, %v, want %s", busy, err, want)
	}
	for _, text := range []string{"", "cpu 1 2", "cpu a b c d e f g h\nprocesses 1\n"} {
		if _, err := parseBusy([]byte(text)); err == nil {
			t.Errorf("%q is no error", text)
		}
	}
}

func TestMachine(t *testing.T) {
	if speed := Speed(); speed <= 0 {
		t.Errorf("speed %g", speed)
	}
	if d := Describe(); d.Kernel == "" || d.CPUs < 1 || d.Memory < 1 {
		t.Errorf("the machine is %+v", d)
	}
}
