package rulewatch

import (
	"cmp"
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
)

// TableOptions describe a TableWatcher.
type TableOptions struct {
	// Watch is nftables.Handle.Watch.
	Watch func(ctx context.Context, changed func([]nftables.Writer)) error
	// Own reports whether a port is one that this agent writes by.
	Own func(port uint32) bool
	// Repair makes the mode read its rules and sets, and write what is lost. It returns the number of
	// lost rows.
	Repair func(ctx context.Context) (lost int, err error)
	// Lost receives the names of the programs, and the number of lost rows, if there are some.
	Lost func(programs []string, rows int)
}

// A TableWatcher repairs our tables of nftables when another program has written to nftables. The
// kernel does not tell which tables a transaction changed, so each one of another program causes a
// reading.
type TableWatcher struct {
	log  *zap.Logger
	opts TableOptions
	// vain counts the readings since one found a loss.
	vain int
}

// NewTableWatcher returns a watcher.
func NewTableWatcher(log *zap.Logger, o TableOptions) *TableWatcher {
	return &TableWatcher{log: log, opts: o}
}

// maxRest is how many times its own duration passes after a reading, at most. It doubles with each
// reading that finds nothing lost, so that a program that writes other tables all the time costs the
// agent a seventeenth of a processor.
const maxRest = 16

// rest returns how long the next reading has to wait.
func (w *TableWatcher) rest(took time.Duration, lost bool) time.Duration {
	if lost {
		w.vain = 0
		return 0
	}
	share := min(1<<min(w.vain, 8), maxRest)
	w.vain++
	return time.Duration(share) * took
}

// Run watches until ctx ends.
func (w *TableWatcher) Run(ctx context.Context) {
	for logged := false; ; logged = true {
		err := w.opts.Watch(ctx, func(list []nftables.Writer) { w.changed(ctx, list) })
		if ctx.Err() != nil {
			return
		}
		if !logged {
			w.log.Debug("the kernel does not tell of changes of nftables, the audit finds them", zap.Error(err))
		}
		if !sleep(ctx, maxRetryInterval) {
			return
		}
		w.changed(ctx, []nftables.Writer{{}})
	}
}

// changed repairs the tables after a transaction of another program. Later notifications wait in the
// socket meanwhile.
func (w *TableWatcher) changed(ctx context.Context, list []nftables.Writer) {
	var programs []string
	for _, by := range list {
		if name := by.String(); by == (nftables.Writer{}) || !w.opts.Own(by.Port) && !slices.Contains(programs, name) {
			programs = append(programs, name)
		}
	}
	if len(programs) == 0 {
		return
	}
	began := time.Now()
	lost, err := w.opts.Repair(ctx)
	if lost > 0 {
		w.log.Warn("another program changed our tables of nftables, lost rows are written again",
			zap.Strings("programs", programs), zap.Int("rows", lost))
		w.opts.Lost(named(list, w.opts.Own), lost)
	}
	if err != nil && ctx.Err() == nil {
		w.log.Warn("reading of our tables of nftables failed, the audit will try again", zap.Error(err))
	}
	sleep(ctx, w.rest(time.Since(began), lost > 0))
}

// named returns the names of the programs without their threads, sorted. One whose notification was
// lost is unknown.
func named(list []nftables.Writer, own func(port uint32) bool) (out []string) {
	for _, by := range list {
		if by == (nftables.Writer{}) || !own(by.Port) {
			out = append(out, cmp.Or(by.Program, "unknown"))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
