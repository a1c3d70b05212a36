package kube

import (
	"context"
	"fmt"

	"go.uber.org/zap"
	"k8s.io/klog/v2"
)

// CatchKlog lets everything of the process that logs by klog log here instead: client-go
// does where it has no context to log by.
func CatchKlog(log *zap.Logger) { klog.SetLogger(klog.New(&logSink{log: log.Named("client-go")})) }

// withLog lets client-go's reflectors, which log through the context, log where we
// do. They repeat Progress, so theirs are all Debug.
func withLog(ctx context.Context, log *zap.Logger) context.Context {
	return klog.NewContext(ctx, klog.New(&logSink{log: log}))
}

// logSink implements logr.LogSink.
type logSink struct{ log *zap.Logger }

func (s *logSink) Init(klog.RuntimeInfo) {}

// Enabled leaves out the details of client-go (V(2) and up).
func (s *logSink) Enabled(level int) bool { return level < 2 && s.log.Core().Enabled(zap.DebugLevel) }

func (s *logSink) Info(_ int, msg string, keysAndValues ...any) {
	s.log.Debug(msg, pairs(keysAndValues)...)
}

func (s *logSink) Error(err error, msg string, keysAndValues ...any) {
	s.log.Debug(msg, append(pairs(keysAndValues), zap.Error(err))...)
}

func (s *logSink) WithValues(keysAndValues ...any) klog.LogSink {
	return &logSink{s.log.With(pairs(keysAndValues)...)}
}

func (s *logSink) WithName(name string) klog.LogSink { return &logSink{s.log.Named(name)} }

func pairs(list []any) (out []zap.Field) {
	for i := 0; i+1 < len(list); i += 2 {
		out = append(out, zap.Any(fmt.Sprint(list[i]), list[i+1]))
	}
	return out
}
