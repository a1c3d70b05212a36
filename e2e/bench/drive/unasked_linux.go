package drive

import (
	"context"
	"fmt"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/cell"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/meter"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/world"
)

// startUnasked launches the candidate once more, on a node of its own, and asks none of its Services before it rests: where there is one
// processor, who asks takes turns with who writes, and the limit is written with nobody asking.
func (r *run) startUnasked(ctx context.Context, m *meter.Meter, c Candidate) error {
	if r.cell.Start == nil || len(r.cell.Start.Writing) == 0 {
		return errNotTold
	}
	if err := r.api.Restore(ctx); err != nil { // as many as the limit has been found for
		return err
	}
	return onNode(ctx, r.api, func(w *world.World, dir string) error { return r.startUnaskedOn(ctx, m, c, w, dir) })
}

func (r *run) startUnaskedOn(ctx context.Context, m *meter.Meter, c Candidate, w *world.World, dir string) error {
	again := &run{Options: r.Options, api: r.api, world: w, n: r.n, cell: &cell.Cell{Candidate: c.Name + "-unasked"}}
	out := &cell.Unasked{}
	err := again.withCandidate(ctx, m, c, dir, func() (err error) {
		if out.Quiet, err = again.written(ctx, r.cell.Kernel); err != nil {
			return err
		}
		out.Cost, err = again.subject.Cost()
		out.Writing = again.writing(ctx)
		return err
	})
	if err != nil {
		return err
	}
	r.cell.Unasked = out
	r.say("%s, %d Services: with nobody asking: quiet since %s, CPU %.2f s", c.Name, r.n, text(out.Quiet), out.Cost.CPU())
	return nil
}

// written waits until the candidate rests and has as many destinations as in another start: it rests while the API server is slow, too.
func (r *run) written(ctx context.Context, wanted *cell.Kernel) (quiet cell.Wait, err error) {
	if wanted == nil {
		return quiet, errNoIPVS
	}
	for {
		if quiet, err = r.quiet(ctx, quiet); err != nil {
			return quiet, err
		}
		if err := r.kernel(ctx); err != nil {
			return quiet, err
		}
		switch there := r.cell.Kernel.Destinations; {
		case there == wanted.Destinations:
			return quiet, nil
		case quiet.Over || time.Since(r.subject.Began()) > r.Limit:
			return quiet, fmt.Errorf("%d destinations are in IPVS after %s, not %d", there, r.Limit, wanted.Destinations)
		}
	}
}
