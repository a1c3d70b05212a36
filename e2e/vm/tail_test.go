package vm

import (
	"fmt"
	"strings"
	"testing"
)

func TestTailKeepsTheEnd(t *testing.T) {
	var console tail
	for i := range 10_000 {
		fmt.Fprintf(&console, "line %d\n", i)
	}
	lines := strings.Split(console.String(), "\n")
	if len(lines) != 40 || lines[0] != "line 9960" || lines[39] != "line 9999" {
		t.Errorf("%d lines from %q to %q, want the last 40", len(lines), lines[0], lines[len(lines)-1])
	}
	if len(console.data) > 2*tailSize {
		t.Errorf("%d bytes are kept, want at most %d", len(console.data), 2*tailSize)
	}
}

func TestTailOfLittle(t *testing.T) {
	var console tail
	fmt.Fprint(&console, "only line\n")
	if got := console.String(); got != "only line" {
		t.Errorf("tail = %q", got)
	}
}
