package scenarios_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/testkit/scenario"
)

// judged is a test that is to fail.
type judged struct {
	testing.TB
	failures []string
}

func (j *judged) Errorf(format string, args ...any) {
	j.failures = append(j.failures, fmt.Sprintf(format, args...))
}

// TestRaceOfAKilledAgentFails: an agent that is killed has no exit status that would tell of its data race.
func TestRaceOfAKilledAgentFails(t *testing.T) {
	for name, want := range map[string]int{"WARNING: DATA RACE": 1, "all is well": 0} {
		t.Run(name, func(t *testing.T) {
			agent := filepath.Join(t.TempDir(), "agent")
			script := fmt.Sprintf("#!/bin/sh\necho '%s' >&2\nkill -9 $$\n", name)
			if err := os.WriteFile(agent, []byte(script), 0o700); err != nil {
				t.Fatal(err)
			}
			j := &judged{TB: t}
			n := &node{t: j, work: t.TempDir(), binary: agent, run: t.TempDir()}
			if err := n.Start(scenario.Start{}); err != nil {
				t.Fatal(err)
			}
			n.done <- <-n.done // it has printed all when it has ended
			n.Close()
			if len(j.failures) != want || want > 0 && !strings.Contains(j.failures[0], name) {
				t.Errorf("failures are %q, want %d", j.failures, want)
			}
		})
	}
}
