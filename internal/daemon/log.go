package daemon

import (
	"context"
	"os"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/logsink"
	"github.com/kube-ipvs/kube-ipvs/internal/printable"
)

// The log has at most sameLines lines with the same message in each period of sameWithin, because
// thousands of tenants may cause the same line.
const (
	sameLines  = 500
	sameWithin = 10 * time.Second
)

// logging is the log of this process.
type logging struct {
	*zap.Logger
	// level may change at any time.
	level zap.AtomicLevel
	sink  *logsink.Sink
	// repeated counts the lines that were dropped because of others with the same message.
	repeated atomic.Uint64
}

// newLogger returns a log to standard error with the configured level and format. No call waits
// for the reader of standard error, and control characters are escaped.
func newLogger(c config.Config) (*logging, error) {
	l := &logging{level: zap.NewAtomicLevel()}
	if err := setLevel(l.level, c); err != nil {
		return nil, err
	}
	l.sink = logsink.New(printable.NewWriter(os.Stderr), logsink.Most)
	e := zap.NewProductionEncoderConfig()
	e.EncodeTime = zapcore.ISO8601TimeEncoder
	e.EncodeDuration = zapcore.StringDurationEncoder
	encoder := zapcore.NewJSONEncoder(e)
	if c.LogFormat == "text" {
		encoder = zapcore.NewConsoleEncoder(e)
	}
	l.Logger = zap.New(zapcore.NewSamplerWithOptions(zapcore.NewCore(encoder, l.sink, l.level), sameWithin, sameLines, 0, zapcore.SamplerHook(
		func(_ zapcore.Entry, d zapcore.SamplingDecision) {
			if d&zapcore.LogDropped != 0 {
				l.repeated.Add(1)
			}
		})))
	return l, nil
}

// dropped returns the number of lines that are missing, by reason.
func (l *logging) dropped() map[string]uint64 {
	return map[string]uint64{"stalled": l.sink.Dropped(), "repeated": l.repeated.Load()}
}

// reportDropped logs each minute how many lines are missing, until ctx ends.
func (l *logging) reportDropped(ctx context.Context) error {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	before := l.dropped()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now := l.dropped()
		if stalled, repeated := now["stalled"]-before["stalled"], now["repeated"]-before["repeated"]; stalled+repeated > 0 {
			l.Warn("log lines were dropped", zap.Uint64("not read in time", stalled), zap.Uint64("with the same message as many others", repeated))
		}
		before = now
	}
}

func setLevel(level zap.AtomicLevel, c config.Config) error {
	asked, err := zapcore.ParseLevel(c.LogLevel)
	if err == nil {
		level.SetLevel(asked)
	}
	return err
}

// logSettings logs each warning about the settings, and the flags that outrank the file.
func logSettings(log *zap.Logger, loaded config.Loaded) {
	for _, w := range loaded.Warnings {
		log.Warn("configuration: " + w)
	}
	if len(loaded.Overrides) > 0 {
		log.Info("flags win over the configuration file", zap.Strings("flags", loaded.Overrides), zap.String("file", loaded.Config.ConfigFile))
	}
}
