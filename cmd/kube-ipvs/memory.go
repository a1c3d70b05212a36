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

// boundMemory has garbage collected earlier than Go would, and ever earlier below the limit
// of the control group, where the kernel kills: unless the environment says when (GOGC,
// GOMEMLIMIT, https://pkg.go.dev/runtime).
func boundMemory(log *zap.Logger, limit func() (tune.MemoryLimit, error)) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbageShare)
	}
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

// giveBackMemory gives the garbage of the start, which is the most there ever is, back to
// the node. It takes some milliseconds for each 10 MiB in use, beside everything else.
func giveBackMemory() { go debug.FreeOSMemory() }
