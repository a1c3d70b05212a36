package packet

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
	"github.com/kube-ipvs/kube-ipvs/internal/agent"
)

// limitWatched is how long an agent is watched that lacks something.
const limitWatched = 10 * time.Second

// warnings are how many lines the agent has printed that a person should read.
func (n *proxy) warnings() int {
	count := 0
	for line := range strings.Lines(n.output.String()) {
		if !strings.Contains(line, "\tinfo\t") && strings.TrimSpace(line) != "" {
			count++
		}
	}
	return count
}

// firstSaid is the first line with a text.
func (n *proxy) firstSaid(what string) string {
	for line := range strings.Lines(n.output.String()) {
		if what != "" && strings.Contains(line, what) {
			return brief(line)
		}
	}
	return "-"
}

// brief is what fits into a table.
func brief(line string) string {
	fields := strings.Split(strings.TrimSpace(line), "\t")
	line = strings.Join(fields[min(2, len(fields)-1):], " ")
	return line[:min(len(line), 150)]
}

// TestNoFileDescriptors takes away all file descriptors of an agent that runs, for a while: it says so, goes on carrying, and catches up when
// there are some again. What it knows of the node for cleanup stays.
func TestNoFileDescriptors(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web := w.web(t)
	w.pod3.serve(t, 8080)
	n := newAgent(t, w.node, "--cluster-cidr", clusters, "--ipvs-sync-period", "1s")
	n.write(t, web)
	n.start(t)
	journal := filepath.Join(n.runDir()[1], "sysctls.json")
	before, err := os.ReadFile(journal)
	n.must(t, err)
	pid, cpu, said := n.process.Process.Pid, n.cpu(t), n.warnings()
	var had unix.Rlimit
	n.must(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &had))
	n.must(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: had.Max}, nil))
	web.backends = append(web.backends, endpoints(w.pod3)...)
	n.write(t, web)
	time.Sleep(limitWatched)
	t.Logf("figure: %s without a file descriptor: %s of CPU, %d lines, the first %s", limitWatched, n.cpu(t)-cpu, n.warnings()-said, n.firstSaid("too many open files"))
	if lines := n.warnings() - said; lines == 0 || lines > 60 {
		t.Errorf("%d lines in %s:\n%s", lines, limitWatched, n.output.tail())
	}
	put(t, []any{"Service", "client"}, ask("web", w.outside, web.vip, 80, by(w.pod1, w.pod2, w.remote1).any(), backend.TCP))
	n.must(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &had, nil))
	n.settle(t, "write what came meanwhile", func(s agent.Status) bool { return s.Failures == 0 && s.Cycles > 1 })
	poll(t, "the new endpoint to answer", settleTimeout, func() error {
		got := w.outside.ask(backend.TCP, web.vip.v4, 80, 4)
		if got.Backends["pod-3"] == 0 {
			return fmt.Errorf("%s", text(got))
		}
		return nil
	})
	after, err := os.ReadFile(journal)
	if err != nil || string(after) != string(before) {
		t.Errorf("journal of sysctls, before and after (%v):\n%s\n%s", err, before, after)
	}
}
