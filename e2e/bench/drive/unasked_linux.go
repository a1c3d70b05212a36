package drive

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/cell"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/meter"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/stats"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/world"
)

// unaskedStarts is how many there are: a machine that others use, too, is slower at times than at others, and so is a start.
const unaskedStarts = 3

// startUnasked launches the candidate again, each time on a node of its own, and asks none of its Services before it rests: where there is
// one processor, who asks takes turns with who writes, and the limit is written with nobody asking.
func (r *run) startUnasked(ctx context.Context, m *meter.Meter, c Candidate) error {
	if r.cell.Start == nil || len(r.cell.Start.Writing) == 0 {
		return errNotTold
	}
	if err := r.api.Restore(ctx); err != nil { // as many as the limit has been found for
		return err
	}
	starts := make([]*cell.Unasked, unaskedStarts)
	var took []float64
	for i := range starts {
		err := onNode(ctx, r.api, func(w *world.World, dir string) (err error) {
			starts[i], err = r.startUnaskedOn(ctx, m, c, w, dir)
			return err
		})
		if err != nil {
			return err
		}
		took = append(took, float64(starts[i].Wrote()))
		r.say("%s, %d Services: with nobody asking: quiet since %s, CPU %.2f s, %.3g s of it writing", c.Name, r.n, text(starts[i].Quiet), starts[i].Cost.CPU(), took[i])
	}
	slices.SortFunc(starts, func(a, b *cell.Unasked) int { return cmp.Compare(a.Wrote(), b.Wrote()) })
	r.cell.Unasked = starts[len(starts)/2]
	r.cell.Unasked.Spread = stats.Spread(took...)
	return nil
}

func (r *run) startUnaskedOn(ctx context.Context, m *meter.Meter, c Candidate, w *world.World, dir string) (*cell.Unasked, error) {
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
	return out, err
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
