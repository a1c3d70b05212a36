package dataplane

import (
	"context"
	"errors"
	"fmt"
)

// Sweep takes everything of a mode out of the kernel: the ordinary path with
// nothing wanted, in as many passes as rows have to wait for others, then the
// device. Each pass is told to report. What could not be removed is the error;
// running it again is how to go on.
func Sweep(ctx context.Context, d Dataplane, report func(Result)) error {
	d.Clear()
	if err := d.Load(ctx); err != nil {
		return err
	}
	failed := passes(ctx, d, report)
	if err := d.Load(ctx); err != nil {
		return errors.Join(failed, err)
	}
	if left := leftovers(d); left != nil {
		return errors.Join(failed, left)
	}
	return d.Remove(ctx)
}

// passes applies until nothing is pending or nothing more can be had.
func passes(ctx context.Context, d Dataplane, report func(Result)) error {
	for {
		r := d.Apply(ctx, ApplyOptions{Retry: true})
		report(r)
		if total := r.Total(); r.Pending == 0 || total.Written() == 0 {
			return total.Err()
		}
	}
}

// leftovers names what a fresh look still finds.
func leftovers(d Dataplane) error {
	var left []error
	for _, t := range d.Tables() {
		if t.Deletes > 0 {
			left = append(left, fmt.Errorf("could not be removed: %d %s", t.Deletes, t.Table))
		}
	}
	return errors.Join(left...)
}
