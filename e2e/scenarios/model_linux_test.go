package scenarios_test

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/testkit/randomops"
)

var limit = flag.Duration("for", 10*time.Minute, "how long TestModelOnKernel begins walks")

// opsAWalkOnKernel is how long walks are there, where each operation takes longer.
const opsAWalkOnKernel = 60

// TestModelOnKernel does random walks with the program, KUBE_IPVS_BIN, on the kernel, each
// in a network namespace of its own, until the time is over or the operations are done.
func TestModelOnKernel(t *testing.T) {
	binary := program(t, "a kernel with IPVS")
	total := *ops
	if total == 0 {
		total = 1_000
	}
	h := &randomops.Search{
		Open: func() (randomops.Node, error) {
			work := t.TempDir()
			n, err := newNode(t, work, binary, "")
			if err != nil {
				return nil, err
			}
			return randomops.OnDisk(n, work)
		},
		Patience: time.Minute, Again: 20 * time.Second, Tries: 1, Budget: randomops.Budget{Runs: 30, Time: 8 * time.Minute},
		Dir: keeping(t), Count: &randomops.Count{},
		Repeat: func(w randomops.Walk) string {
			return fmt.Sprintf("make stress WHAT=model-guest SEED=%d OPS=%d", w.Seed, opsAWalkOnKernel)
		},
	}
	first := firstSeed()
	defer watched(t, h.Count, first)()
	until := time.Now().Add(*limit)
	search(t, h, walks{first, total, opsAWalkOnKernel, randomops.Kernel}, atOnceOnKernel, func() bool { return time.Now().After(until) })
}

// atOnceOnKernel is how many walks go on at a time: more than processors, for each waits a lot.
const atOnceOnKernel = 4
