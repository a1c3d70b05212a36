package agent

import (
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// writeLines bounds how many lines a second say what was written: a line for each pass would be
// most of the log of a node on which something changes all the time. Metrics count all passes.
const writeLines = 8

// fewASecond drops what one message has beyond writeLines in a second.
func fewASecond(log *zap.Logger) *zap.Logger {
	return log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(c, time.Second, writeLines, 0)
	}))
}

// logUpdate says what a pass wrote.
func (a *Agent) logUpdate(c Cycle) {
	a.writes.Info("kernel updated", zap.Int("services", c.Services), zap.Array("rows", rowCounts(c.Rows)),
		zap.Duration("took", c.Took), zap.Int("pending", c.Pending))
}
