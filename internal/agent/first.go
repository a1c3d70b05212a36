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

// serveFirst puts into an empty kernel what everything else on a new node waits
// for, the API server's Service and DNS, and returns the Services that are left
// (decision 7). Where the kernel carries Services already nobody waits, and a plan
// that lacks most of them would only change what is there.
func (a *Agent) serveFirst(ctx context.Context, inputs []catalog.Input) (rest []catalog.Input) {
	first, rest := part(inputs)
	if len(first) == 0 || len(rest) == 0 || ctx.Err() != nil {
		return inputs
	}
	start := time.Now()
	a.compile(first)
	if err := a.load(ctx); err != nil || a.opts.Mode.Serves() {
		return rest // apply tells about an error
	}
	result := a.opts.Mode.Apply(ctx, dataplane.ApplyOptions{KeepOrphans: true})
	a.log.Info("served first", zap.Int("services", len(first)), zap.Duration("took", time.Since(start)), zap.Int("pending", result.Pending))
	a.record(start, result)
	return rest
}

// part takes out the Services that come first.
func part(inputs []catalog.Input) (first, rest []catalog.Input) {
	for _, in := range inputs {
		if in.Service != nil && urgent(in.Service) {
			first = append(first, in)
		} else {
			rest = append(rest, in)
		}
	}
	return first, rest
}

// dnsPort is the port of DNS (RFC 1035). Distributions name their DNS Service
// differently and put it into different namespaces, but it is always there.
const dnsPort = 53

func urgent(s *model.Service) bool {
	return s.ID.Namespace == "default" && s.ID.Name == "kubernetes" ||
		slices.ContainsFunc(s.Ports, func(p model.ServicePort) bool { return p.Port == dnsPort })
}
