package dataplane

import (
	"context"
	"errors"
	"fmt"
)

// Sweep deletes all rows of a mode from the kernel, in as many passes as rows have to wait for others,
// and then removes the device. It calls report after each pass. It returns the rows that it could not
// delete as an error; calling it again retries them.
func Sweep(ctx context.Context, d Removable, report func(Result)) error {
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

// passes applies until nothing is pending or a pass writes nothing.
func passes(ctx context.Context, d Dataplane, report func(Result)) error {
	for {
		r := d.Apply(ctx, ApplyOptions{Retry: true})
		report(r)
		if total := r.Total(); r.Pending == 0 || total.Written() == 0 {
			return total.Err()
		}
	}
}

// leftovers returns the rows that the kernel still holds, as an error.
func leftovers(d Dataplane) error {
	var left []error
	for _, t := range d.Tables() {
		if t.Deletes > 0 {
			left = append(left, fmt.Errorf("could not be removed: %d %s", t.Deletes, t.Table))
		}
	}
	return errors.Join(left...)
}
