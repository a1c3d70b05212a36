package drive

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"os"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/cell"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/crowd"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/meter"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/world"
)

// warm starts each candidate once before there are Services: whoever is first on a machine reads programs from the disk and has the kernel load
// its modules, and would pay for all that follow. What fails here is found when it is measured.
func warm(ctx context.Context, o Options, api *crowd.Crowd, m *meter.Meter) {
	for _, c := range o.Candidates {
		if err := warmOne(ctx, o, api, m, c); err != nil && ctx.Err() == nil {
			o.say("%s: started for nothing: %v", c.Name, err)
		}
	}
}

func warmOne(ctx context.Context, o Options, api *crowd.Crowd, m *meter.Meter, c Candidate) error {
	kubernetes, err := api.KubernetesVIP(ctx)
	if err != nil {
		return err
	}
	return onNode(ctx, api, func(w *world.World, dir string) error {
		r := &run{Options: o, api: api, world: w, random: rand.New(rand.NewPCG(1, 0)), cell: &cell.Cell{Candidate: c.Name}}
		return r.withCandidate(ctx, m, c, dir, func() error {
			if _, err := w.All(ctx, []netip.AddrPort{kubernetes}, min(o.Limit, warmWithin), r.subject.Alive); err != nil {
				return err
			}
			_, _, err := r.subject.Rest(ctx, longRest, min(o.Limit, warmWithin))
			return err
		})
	})
}

// onNode runs f with a node that nobody has used, and a directory that is gone afterwards.
func onNode(ctx context.Context, api *crowd.Crowd, f func(w *world.World, dir string) error) (err error) {
	port, err := api.Port()
	if err != nil {
		return err
	}
	w, err := world.New(ctx, port)
	if err != nil {
		return err
	}
	defer w.Close()
	dir, err := os.MkdirTemp("", "kube-ipvs-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	return f(w, dir)
}

// warmWithin bounds one such start.
const warmWithin = time.Minute
