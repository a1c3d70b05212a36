package sysctl

import (
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/procfs"
)

// Options configure a Handle. The zero value is the default.
type Options struct {
	Files procfs.Files
	// RunDir is the directory of the journal; /run/kube-ipvs if empty. It should not outlive the
	// kernel's state: a reboot undoes every sysctl anyway.
	RunDir string
}

// Handle reads and changes the sysctls of one node. Calls that use the journal (the Apply and Restore
// family) must not run at the same time; all others may.
type Handle struct {
	log    *zap.Logger
	files  procfs.Files
	runDir string
	said   map[string]string // of each key, how it was found last
	// journal is the error of the last opening of the journal.
	journal string
}

// New returns a handle. It changes nothing.
func New(log *zap.Logger, o Options) *Handle {
	if o.RunDir == "" {
		o.RunDir = "/run/kube-ipvs"
	}
	return &Handle{log: log.Named("tune"), files: o.Files, runDir: o.RunDir, said: map[string]string{}}
}
