package drive

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/cell"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/crowd"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/world"
)

// How speed is measured: rounds of each kind, in turn, and how long one is; and to how many Services connections go.
const (
	speedRounds = 15
	speedLength = time.Second
	speedVIPs   = 16
)

// packets measures the data plane, and the same to endpoints, which no proxy has a part in.
func (r *run) packets(ctx context.Context) error {
	var vips, direct []netip.AddrPort
	for _, i := range crowd.Spread(r.n, speedVIPs) {
		vips = append(vips, r.api.VIP(i))
		direct = append(direct, netip.AddrPortFrom(world.Endpoint(i*r.Endpoints), world.BackendPort))
	}
	var rounds [4][]float64
	err := r.world.Inside(func() error {
		for range speedRounds {
			for i, measure := range []func() (float64, error){
				func() (float64, error) { return r.world.Connect(ctx, vips, speedLength) },
				func() (float64, error) { return r.world.Connect(ctx, direct, speedLength) },
				func() (float64, error) { return r.world.Request(ctx, vips[0], speedLength) },
				func() (float64, error) { return r.world.Request(ctx, direct[0], speedLength) },
			} {
				speed, err := measure()
				if err != nil {
					return err
				}
				rounds[i] = append(rounds[i], speed)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	p := &cell.Packets{Rate: cell.NewSpeed(rounds[0]), RateDirect: cell.NewSpeed(rounds[1]), Request: cell.NewSpeed(rounds[2]), RequestDirect: cell.NewSpeed(rounds[3])}
	r.cell.Packets = p
	r.say("%s, %d Services: %.0f connections and %.0f requests a second, without a proxy %.0f and %.0f", r.cell.Candidate, r.n, p.Rate.Median, p.Request.Median, p.RateDirect.Median, p.RequestDirect.Median)
	return nil
}

// How many changes are made while netlink is counted.
const (
	tappedChanges  = 10
	tappedServices = 5
)

// netlink counts messages and bytes. A copy of all of them costs, so it has changes of its own.
func (r *run) netlink(ctx context.Context) (err error) {
	out := &cell.Netlink{Length: cell.Took(idleTime)}
	several := func(n int, do change) func() error {
		return func() error {
			for i := range n {
				if _, _, _, err := r.used(ctx, func() error {
					_, err := do(ctx, i)
					return err
				}); err != nil {
					return err
				}
			}
			return nil
		}
	}
	if out.Change, err = r.tapped(out, several(tappedChanges, r.changeProbe(r.Limit))); err != nil {
		return err
	}
	if out.Service, err = r.tapped(out, several(tappedServices, r.addService("tapped"))); err != nil {
		return err
	}
	if out.Idle, err = r.tapped(out, func() error { return pauseFor(ctx, idleTime) }); err != nil {
		return err
	}
	out.Change, out.Service = out.Change.Per(tappedChanges), out.Service.Per(tappedServices)
	r.cell.Netlink = out
	messages, bytes := out.Change.Sum()
	r.say("%s, %d Services: netlink: %.0f messages of %.0f bytes for one endpoint", r.cell.Candidate, r.n, messages, bytes)
	return nil
}

// tapped is what goes over netlink on the node while f runs.
func (r *run) tapped(out *cell.Netlink, f func() error) (cell.Traffic, error) {
	tap, err := r.tap()
	if err != nil {
		return nil, err
	}
	failed := f()
	traffic, lost, err := tap.Close()
	out.Dropped += lost
	if failed != nil {
		return nil, failed
	}
	if err != nil {
		return nil, fmt.Errorf("count netlink: %w", err)
	}
	return traffic, nil
}
