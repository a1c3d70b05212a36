package daemon

import (
	"os"
	"runtime/debug"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/memory"
)

// garbagePercent is GOGC: the garbage, in percent of the live heap, at which a collection starts.
// Go's default is 100. Changes are small, so half of it costs little CPU, and saves memory of the
// node.
const garbagePercent = 50

// boundMemory sets the memory limit of Go to nine tenths of the limit of the control group, at which
// the kernel kills the process. The last tenth is for memory that Go does not count: sockets,
// files, and the processes that write rules. GOGC and GOMEMLIMIT of the environment take precedence
// (https://pkg.go.dev/runtime).
func boundMemory(log *zap.Logger, limit func() (memory.Limit, error)) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbagePercent)
	}
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	switch l, err := limit(); {
	case err != nil:
		log.Warn("cannot read the memory limit of the control group, the Go memory limit is not set", zap.Error(err))
	case l.Bytes > 0:
		soft := int64(l.Bytes / 10 * 9)
		debug.SetMemoryLimit(soft)
		log.Info("the Go memory limit is set to 90% of the control group's memory limit",
			zap.Int64("bytes", soft), zap.Uint64("limit", l.Bytes), zap.String("group", l.Group))
	}
}
