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
	// firstPart is how many Services the first part has: few, so that the first of them
	// answer at once. Each part has partGrowth times as many as the one before, since each
	// costs something by itself, and lastPart at most: that bounds how long the API server's
	// own Service waits that comes while another part is written.
	firstPart, partGrowth, lastPart = 16, 4, 512
	// firstPause is how long arrivals are gathered for the first part, which a few of them
	// fill, and earlyPause for each later one, while the sources are still asked.
	firstPause, earlyPause = 10 * time.Millisecond, 50 * time.Millisecond
	// latePause is how long that is, on one processor, when a part may have more than
	// latePart: little comes in a moment there, and each part costs some calls of the kernel,
	// of the sets most of all.
	latePause, latePart = 4 * earlyPause, firstPart * partGrowth
)

// portion is how many Services the next part has.
type portion struct{ grown int }

func (p *portion) size() int { return max(p.grown, firstPart) }
func (p *portion) grow()     { p.grown = min(p.size()*partGrowth, lastPart) }

// gathers is how long arrivals are gathered for the next part.
func (a *Agent) gathers() time.Duration {
	switch {
	case a.part.grown == 0:
		return firstPause
	case a.opts.OneProcessor && a.part.size() > latePart:
		return latePause
	}
	return earlyPause
}

// holdFor bounds how long the sources wait for something to be written.
const holdFor = 500 * time.Millisecond

// While the rules are written that no source decides, the sources may bring what the first
// part has: so many Services with their slices. Nothing may come while a part is written.
const (
	holdPrepares = 4 * firstPart
	holdServes   = 0
)

// holdSources has the sources wait while something is written that others wait for, where
// they take turns with the loop: lists of thousands of objects take most of them. To write
// a thousand Services beside them took half as long again. Where a processor is left for them
// they go on.
func (a *Agent) holdSources(few int) (release func()) {
	if !a.opts.OneProcessor {
		return func() {}
	}
	return a.opts.Catalog.Hold(few, holdFor)
}

// takeEarly serves some of what has come before the sources are in sync, where nothing
// was carried before: who has no endpoint yet waits, nothing is deleted, and nothing
// follows from what is missing (law 3).
func (a *Agent) takeEarly(ctx context.Context) {
	if !a.founding || time.Since(a.prepared) > preparedFor {
		return
	}
	batch, more := a.opts.Catalog.TakeSome(a.part.size(), a.urgent)
	a.takeNodes(batch)
	a.trySchedulers(ctx, batch.Services)
	concerned, _ := a.adopt()
	if inputs := merged(concerned, batch.Services); len(inputs) > 0 {
		defer a.holdSources(holdServes)()
		a.serve(ctx, inputs)
		if len(inputs) >= firstPart/2 { // the API server's own Service comes by itself
			a.part.grow()
		}
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
	result := a.opts.Mode.Apply(ctx, dataplane.ApplyOptions{KeepOrphans: true})
	a.record(start, time.Now(), result)
}

// serveFirst fills a kernel that carries nothing yet, what everything else on a new node
// waits for first, the API server's Service and DNS (decision 7), and returns what is
// left for the last pass. Where the kernel carries Services already nobody waits, and a
// plan that lacks most of them would only change what is there.
func (a *Agent) serveFirst(ctx context.Context, inputs []catalog.Input) (last []catalog.Input) {
	first, rest := a.first(inputs)
	parts := a.parts(rest)
	if len(first) > 0 {
		parts = slices.Insert(parts, 0, first)
	}
	if len(parts) < 2 || ctx.Err() != nil {
		return inputs
	}
	if err := a.load(ctx); err != nil || a.opts.Mode.Serves() && !a.founding {
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
		if a.opts.Mode.Founds() {
			n = min(n, a.part.size())
			a.part.grow()
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
