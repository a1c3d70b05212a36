package main

import (
	"os"
	"runtime/debug"
	"runtime/metrics"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/tune"
)

// garbageShare is how much garbage may lie about, in percent of what is in use, before it
// is collected. Most of what is in use is there for good and changes are small, so less
// than Go's 100 costs little: the node's memory belongs to its pods. Where much is in use
// there is mostGarbage of it, but for the leastShare that keeps collections rare: a thousand
// changes of an endpoint leave some 25 MiB.
const (
	garbageShare = 50
	leastShare   = 20
	mostGarbage  = 14 << 20 // bytes
)

// garbageFor is the share where so many bytes are in use.
func garbageFor(live uint64) int {
	return int(min(garbageShare, max(leastShare, 100*mostGarbage/max(live, 1))))
}

// firstShare is the same until everything was written once: what is in use grows all the
// time then, and each collection looks at all of it. It is a seventh of the CPU of a start with
// 5,000 Services (13.4 s, 11.5 s).
const firstShare = 200

// boundMemory has garbage collected more often below the limit of the control group, where
// the kernel kills, and in a start less often than Go would: unless the environment says when
// (GOGC, GOMEMLIMIT, https://pkg.go.dev/runtime).
func boundMemory(log *zap.Logger, limit func() (tune.MemoryLimit, error)) {
	collectAt(firstShare)
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	switch l, err := limit(); {
	case err != nil:
		log.Warn("memory is bounded without regard to control groups", zap.Error(err))
	case l.Bytes > 0:
		soft := softLimit(l.Bytes)
		debug.SetMemoryLimit(soft)
		log.Info("garbage is collected so that memory stays below the limit of the control group",
			zap.Int64("bytes", soft), zap.Uint64("limit", l.Bytes), zap.String("group", l.Group))
	}
}

// softLimit leaves a tenth for what Go does not count: the kernel's memory for sockets and
// files, and the processes that write rules.
func softLimit(limit uint64) int64 { return int64(limit / 10 * 9) }

func collectAt(share int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(share)
	}
}

// memory gives what is free back to the node.
type memory struct{ collections uint64 } // that had been the last time

// giveBack collects garbage, gives it back to the node, and has less of it from now on. It
// takes some milliseconds for each 10 MiB in use, beside everything else.
func (m *memory) giveBack() {
	debug.FreeOSMemory()
	collectAt(garbageFor(measured("/gc/heap/live:bytes")))
	m.collections = collections()
}

// calm gives back what was left when much had changed. Where garbage was not collected
// meanwhile there is little of it.
func (m *memory) calm() {
	if m.collections != collections() {
		m.giveBack()
	}
}

// collections is how often garbage was collected without being asked for.
func collections() uint64 { return measured("/gc/cycles/automatic:gc-cycles") }

// measured is one of https://pkg.go.dev/runtime/metrics.
func measured(name string) uint64 {
	one := []metrics.Sample{{Name: name}}
	metrics.Read(one)
	return one[0].Value.Uint64()
}

// usualPages has the kernel hold for this process no more memory than it uses.
func usualPages(log *zap.Logger) {
	if err := tune.SmallPages(); err != nil {
		log.Warn("the kernel may make huge pages of memory that is not in use", zap.Error(err))
	}
}
