package main

import (
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
)

// newLogger logs to standard error in the asked level and format. The level can be
// changed while it is used.
func newLogger(c config.Config) (*zap.Logger, zap.AtomicLevel, error) {
	level := zap.NewAtomicLevel()
	if err := setLevel(level, c); err != nil {
		return nil, level, err
	}
	z := zap.NewProductionConfig()
	z.Level = level
	z.Sampling = nil // an operator wants every line; floods are bounded where they arise
	z.EncoderConfig.EncodeTime = zapcore.ISO8601TimeEncoder
	z.EncoderConfig.EncodeDuration = zapcore.StringDurationEncoder
	z.DisableStacktrace = true
	z.DisableCaller = true
	if c.LogFormat == "text" {
		z.Encoding = "console"
	}
	log, err := z.Build()
	return log, level, err
}

func setLevel(level zap.AtomicLevel, c config.Config) error {
	asked, err := zapcore.ParseLevel(c.LogLevel)
	if err == nil {
		level.SetLevel(asked)
	}
	return err
}

// tell logs what a person should know about the settings: one line for each
// warning, and one for all flags that won over the file.
func tell(log *zap.Logger, loaded config.Loaded) {
	for _, w := range loaded.Warnings {
		log.Warn("configuration: " + w)
	}
	if len(loaded.Overrides) > 0 {
		log.Info("flags win over the configuration file", zap.Strings("flags", loaded.Overrides), zap.String("file", loaded.Config.ConfigFile))
	}
}
