package agent

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// A kernel that carries nothing yet is filled in chunks, each from its rules to its addresses. The first
// Services answer while the others are still listed, compiled or written.
const (
	// chunkSize is how many Services a chunk has. It bounds how long the API server's own Service waits if
	// it arrives while a chunk is written.
	chunkSize = 512
	// chunkDelay is how long arrivals are collected for a chunk before the sources are in sync: each chunk
	// has a cost of its own.
	chunkDelay = 50 * time.Millisecond
)

// prepare reads the kernel before the sources are in sync. If the kernel carries nothing, prepare writes
// the base rows, which no source decides: sets, base chains and jumps are in place when the first Service
// is known. A kernel that carries Services is not written before the sources are in sync (law 3). A
// failure is retried and reported when they are.
func (a *Agent) prepare(ctx context.Context) {
	if !a.mode.HasBaseState() {
		return
	}
	start := time.Now()
	err := a.planner.readHost(ctx)
	if err == nil {
		a.planner.applyHost() // every Service that the catalog has is dirty, and will be compiled for it
		err = a.writer.load(ctx)
	}
	if err != nil {
		if ctx.Err() == nil { // a preparation that is interrupted by the agent's end has not failed
			a.log.Warn("not prepared, will be tried again when the sources are in sync", zap.Error(err))
		}
		return
	}
	a.progress.readAt = time.Now()
	if a.mode.CarriesServices() {
		return
	}
	a.writer.logAdopted()
	result := a.mode.Apply(ctx, dataplane.ApplyOptions{KeepOrphans: true})
	ended := time.Now()
	a.log.Info("prepared", zap.Duration("took", ended.Sub(start)), zap.Int("pending", result.Pending))
	a.writer.record(start, ended, result)
	a.progress.bootstrapping = true
}

// syncPartial serves some Services that arrived before the sources are in sync, if the kernel carried
// nothing before. Services without an endpoint wait, nothing is deleted, and nothing follows from an
// input that is missing (law 3).
func (a *Agent) syncPartial(ctx context.Context) {
	if !a.progress.bootstrapping || a.progress.stale(time.Now()) {
		return
	}
	batch, more := a.opts.Catalog.TakeReady(chunkSize, a.opts.urgent)
	a.planner.setFacts(batch)
	a.planner.probe(ctx, batch.Services)
	affected, _ := a.planner.applyHost()
	if inputs := merged(affected, batch.Services); len(inputs) > 0 {
		a.writer.serve(ctx, inputs)
		a.progress.readAt = time.Now()
	}
	if more {
		a.schedule.setIfUnset(takeChanges, time.Now().Add(a.opts.Coalesce))
	}
}

// syncUrgent fills a kernel that carries nothing yet, and returns the inputs for the last pass. The API
// server's Service and DNS come first, because all other pods wait for them (internal/DECISIONS.md, API
// server and DNS first). A kernel that carries Services already is left to the last pass: a plan without
// most of them would change its rows.
func (a *Agent) syncUrgent(ctx context.Context, inputs []catalog.Input) (last []catalog.Input) {
	urgent, rest := a.opts.splitUrgent(inputs)
	size := max(1, len(rest))
	if a.mode.HasBaseState() {
		size = chunkSize
	}
	chunks := slices.Collect(slices.Chunk(rest, size))
	if len(urgent) > 0 {
		chunks = slices.Insert(chunks, 0, urgent)
	}
	if len(chunks) < 2 || ctx.Err() != nil {
		return inputs
	}
	if err := a.writer.load(ctx); err != nil || a.mode.CarriesServices() && !a.progress.bootstrapping {
		return inputs // apply reports an error
	}
	a.writer.logAdopted()
	for i, inputs := range chunks[:len(chunks)-1] {
		a.writer.serve(ctx, inputs)
		if i == 0 && len(urgent) > 0 {
			a.log.Info("urgent services are written, all others follow", zap.Int("services", len(urgent)))
		}
	}
	return chunks[len(chunks)-1]
}

// splitUrgent separates the Services that come first.
func (o *Options) splitUrgent(inputs []catalog.Input) (urgent, rest []catalog.Input) {
	for _, in := range inputs {
		if in.Service != nil && o.urgent(in.Service) {
			urgent = append(urgent, in)
		} else {
			rest = append(rest, in)
		}
	}
	return urgent, rest
}

// urgent reports whether a Service comes first: the API server's and DNS. A port 53 makes no Service
// urgent, because a tenant may have thousands of Services with one.
func (o *Options) urgent(s *model.Service) bool {
	return s.ID.APIServer() || s.DNS ||
		slices.Contains(o.DNSServices, s.ID.Namespace+"/"+s.ID.Name)
}
