package drive

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/moby/ipvs"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/cell"
)

// driftGlance is how often the kernel is asked whether what was taken away is back.
const driftGlance = 200 * time.Millisecond

// drift takes a destination away by hand and waits until the candidate has put it back.
func (r *run) drift(ctx context.Context) error {
	if r.cell.Kernel == nil || r.cell.Kernel.Destinations == 0 {
		return errNoIPVS
	}
	out := &cell.Drift{}
	period, err := r.syncPeriod(ctx)
	switch {
	case err == nil:
		seconds := cell.Took(period)
		out.Period = &seconds
	case !errors.Is(err, errNotTold):
		return err
	}
	var h *ipvs.Handle
	if err := r.world.Node.Do(func() (err error) {
		h, err = ipvs.New("")
		return err
	}); err != nil {
		return fmt.Errorf("open IPVS: %w", err)
	}
	defer h.Close()
	vip := r.api.VIP(r.n / 2)
	s := &ipvs.Service{AddressFamily: unix.AF_INET, Address: net.IP(vip.Addr().AsSlice()), Port: vip.Port(), Protocol: unix.IPPROTO_TCP}
	all, err := h.GetDestinations(s)
	if err != nil {
		return fmt.Errorf("read destinations of %s: %w", vip, err)
	}
	if len(all) == 0 {
		return fmt.Errorf("%s has no destinations", vip)
	}
	lost := all[0]
	before, err := r.subject.Cost()
	if err != nil {
		return err
	}
	start := time.Now()
	if err := h.DelDestination(s, lost); err != nil {
		return fmt.Errorf("take a destination of %s away: %w", vip, err)
	}
	if out.Back, err = r.untilBack(ctx, h, s, lost, start); err != nil {
		return err
	}
	after, err := r.subject.Cost()
	if err != nil {
		return err
	}
	length, cost := cell.Took(time.Since(start)), after.Sub(before)
	out.Length, out.Cost = &length, &cost
	r.cell.Idle.Drift = out
	r.say("%s, %d Services: a destination that was taken away is back after %s", r.cell.Candidate, r.n, text(out.Back))
	return nil
}

func (r *run) untilBack(ctx context.Context, h *ipvs.Handle, s *ipvs.Service, lost *ipvs.Destination, start time.Time) (cell.Wait, error) {
	for {
		if err := errors.Join(pauseFor(ctx, driftGlance), r.subject.Alive()); err != nil {
			return cell.Wait{}, err
		}
		all, err := h.GetDestinations(s)
		if err != nil {
			return cell.Wait{}, fmt.Errorf("look for the destination: %w", err)
		}
		w := since(start, time.Now())
		if slices.ContainsFunc(all, func(d *ipvs.Destination) bool { return d.Address.Equal(lost.Address) && d.Port == lost.Port }) {
			return w, nil
		}
		if time.Since(start) > r.Drift {
			w.Over = true
			return w, nil
		}
	}
}
