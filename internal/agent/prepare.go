package agent

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
)

// preparedFor is how long the kernel is taken to be as it was read while the sources
// were still asked: what changed since is found by the audit, as ever.
const preparedFor = 30 * time.Second

// prepare reads the kernel while the sources are still asked, and writes what no
// source decides where nothing is carried yet: sets, base chains and jumps are in place
// when the first Service is known. Where Services are carried already, by whomever, no row
// is written before the sources are in sync (law 3). What fails is tried again, and told,
// when they are.
func (a *Agent) prepare(ctx context.Context) {
	if !a.mode.HasBaseState() {
		return
	}
	start := time.Now()
	err := a.prepareHost(ctx)
	if err == nil {
		err = a.load(ctx)
	}
	if err != nil {
		if ctx.Err() == nil { // told to stop: what was interrupted is no failure
			a.log.Warn("not prepared, will be tried again when the sources are in sync", zap.Error(err))
		}
		return
	}
	a.prepared = time.Now()
	if a.mode.CarriesServices() {
		return
	}
	a.tellAdopted()
	result := a.mode.Apply(ctx, dataplane.ApplyOptions{KeepOrphans: true})
	ended := time.Now()
	a.log.Info("prepared", zap.Duration("took", ended.Sub(start)), zap.Int("pending", result.Pending))
	a.record(start, ended, result)
	a.founding = true
}

// prepareHost reads the machine for the base rows. What the catalog has by now is dirty
// and will be compiled for it in any case.
func (a *Agent) prepareHost(ctx context.Context) error {
	if err := a.readHost(ctx); err != nil {
		return err
	}
	a.adopt()
	return nil
}

// outdated forgets what was read so long before the sources were in sync that much may
// have changed since.
func (a *Agent) outdated() {
	if !a.synced && a.loaded && time.Since(a.prepared) > preparedFor {
		a.loaded, a.adopted, a.founding = false, false, false
	}
}
