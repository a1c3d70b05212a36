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

// A kernel that carries nothing yet is filled in parts, each from its rules to its
// addresses, so that the first Services answer while the rest is still listed, compiled
// or written.
const (
	// partSize is how many Services a part has: it bounds how long the API server's own
	// Service waits that comes while another part is written.
	partSize = 512
	// partPause is how long arrivals are gathered for a part while the sources are still
	// asked: each part costs something by itself.
	partPause = 50 * time.Millisecond
)

// takeEarly serves some of what has come before the sources are in sync, where nothing
// was carried before: who has no endpoint yet waits, nothing is deleted, and nothing
// follows from what is missing (law 3).
func (a *Agent) takeEarly(ctx context.Context) {
	if !a.founding || time.Since(a.prepared) > preparedFor {
		return
	}
	batch, more := a.opts.Catalog.TakeSome(partSize, a.urgent)
	a.takeNodes(batch)
	a.trySchedulers(ctx, batch.Services)
	concerned, _ := a.adopt()
	if inputs := merged(concerned, batch.Services); len(inputs) > 0 {
		a.serve(ctx, inputs)
		a.prepared = time.Now()
	}
	if more {
		a.coalesce.armUnlessSet(a.opts.Coalesce)
	}
}

// serve writes some Services, and removes nothing. What fails stays pending.
func (a *Agent) serve(ctx context.Context, inputs []catalog.Input) {
	start := time.Now()
	a.compile(ctx, inputs)
	result := a.mode.Apply(ctx, dataplane.ApplyOptions{KeepOrphans: true})
	a.record(start, time.Now(), result)
}

// serveFirst fills a kernel that carries nothing yet and returns the inputs for the last
// pass. The API server's Service and DNS come first, because all other pods wait for them
// (internal/DECISIONS.md, API server and DNS first). A kernel that carries Services
// already is left to the last pass: a plan without most of them would change its rows.
func (a *Agent) serveFirst(ctx context.Context, inputs []catalog.Input) (last []catalog.Input) {
	first, rest := a.first(inputs)
	parts := a.parts(rest)
	if len(first) > 0 {
		parts = slices.Insert(parts, 0, first)
	}
	if len(parts) < 2 || ctx.Err() != nil {
		return inputs
	}
	if err := a.load(ctx); err != nil || a.mode.CarriesServices() && !a.founding {
		return inputs // apply tells about an error
	}
	a.tellAdopted()
	for i, inputs := range parts[:len(parts)-1] {
		a.serve(ctx, inputs)
		if i == 0 && len(first) > 0 {
			a.log.Info("served first", zap.Int("services", len(first)))
		}
	}
	return parts[len(parts)-1]
}

// parts divides what may be written bit by bit.
func (a *Agent) parts(rest []catalog.Input) (parts [][]catalog.Input) {
	for len(rest) > 0 {
		n := len(rest)
		if a.mode.HasBaseState() {
			n = min(n, partSize)
		}
		parts, rest = append(parts, rest[:n]), rest[n:]
	}
	return parts
}

// first takes out the Services that come first.
func (a *Agent) first(inputs []catalog.Input) (first, rest []catalog.Input) {
	for _, in := range inputs {
		if in.Service != nil && a.urgent(in.Service) {
			first = append(first, in)
		} else {
			rest = append(rest, in)
		}
	}
	return first, rest
}

// urgent tells which Services come first: the API server's and DNS. A port 53 makes none
// urgent, for any tenant may have thousands of Services with one.
func (a *Agent) urgent(s *model.Service) bool {
	return s.ID.Namespace == "default" && s.ID.Name == "kubernetes" || s.DNS ||
		slices.Contains(a.opts.DNSServices, s.ID.Namespace+"/"+s.ID.Name)
}
