package run

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/apiload"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/topology"
)

// warmWithin bounds one start of warm.
const warmWithin = time.Minute

// warm starts each candidate once before there are Services. Otherwise the first one on a machine would read programs from the disk and load
// kernel modules for all that follow. A failure shows again when the candidate is measured.
func warm(ctx context.Context, o Options, api *apiload.Load) {
	for _, c := range o.Candidates {
		if err := warmOne(ctx, o, api, c); err != nil && ctx.Err() == nil {
			o.say("%s: warm-up: %v", c.Name, err)
		}
	}
}

func warmOne(ctx context.Context, o Options, api *apiload.Load, c Candidate) error {
	kubernetes, err := api.KubernetesVIP(ctx)
	if err != nil {
		return err
	}
	return onNode(ctx, api, func(network *topology.Network, dir string) error {
		s := newSession(o, api, network, dir, 0, c)
		return s.withCandidate(ctx, func() error {
			if _, err := network.All(ctx, []netip.AddrPort{kubernetes}, min(o.Limit, warmWithin), s.process.Alive); err != nil {
				return err
			}
			_, _, err := s.process.Rest(ctx, longRest, min(o.Limit, warmWithin))
			return err
		})
	})
}

// onNode runs f with a network that no program has used, and with a directory that is removed afterwards.
func onNode(ctx context.Context, api *apiload.Load, f func(network *topology.Network, dir string) error) (err error) {
	port, err := api.Port()
	if err != nil {
		return err
	}
	network, err := topology.New(ctx, port)
	if err != nil {
		return err
	}
	defer network.Close()
	dir, err := os.MkdirTemp("", "kube-ipvs-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	return f(network, dir)
}
