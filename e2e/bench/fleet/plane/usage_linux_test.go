package plane

import (
	"testing"
	"time"
)

func TestUsage(t *testing.T) {
	const text = "42 (a (strange) name) S 1 42 42 0 -1 4194560 9 0 0 0 250 50 0 0 20 0 9 0 100 1000000 77 18446744073709551615 1 1\n"
	got, err := parseUsage(text, 4096)
	if err != nil || got != (Usage{CPU: 3 * time.Second, RSS: 77 * 4096}) {
		t.Errorf("%+v, %v, want 3 s and 77 pages", got, err)
	}
	if _, err := parseUsage("42 (short) S 1", 4096); err == nil {
		t.Error("a line without the fields was read")
	}
}
