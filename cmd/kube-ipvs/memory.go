package main

import (
	"os"
	"runtime/debug"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/tune"
)

// garbageShare is how much garbage may lie about, in percent of what is in use, before it
// is collected. Most of what is in use is there for good and changes are small, so less
// than Go's 100 costs little: the node's memory belongs to its pods.
const garbageShare = 50

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

// giveBackMemory gives the garbage of the start, which is the most there ever is, back to
// the node, and has less of it from now on. It takes some milliseconds for each 10 MiB in use,
// beside everything else.
func giveBackMemory() {
	go func() {
		collectAt(garbageShare)
		debug.FreeOSMemory()
	}()
}
