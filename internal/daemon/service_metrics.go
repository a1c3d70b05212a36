package daemon

import (
	"context"
	"fmt"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/telemetry"
)

// trafficKernel reads the counters of virtual servers; *vserver.Handle is one.
type trafficKernel interface {
	ListTraffic(ctx context.Context) (map[vserver.ServerKey]vserver.ServerTraffic, error)
	ListLoads(ctx context.Context) (map[vserver.ServerKey]vserver.Load, error)
}

// A serviceMetricsReader reads the counters for the metrics by Service. It has a handle of its own,
// because only the loop uses that of the loop, and opens it at the first reading. One goroutine
// uses it at a time.
type serviceMetricsReader struct {
	// carries reports whether the active mode has virtual servers.
	carries func() bool
	open    func() (trafficKernel, error)
	kernel  trafficKernel
}

func (d *daemon) newServiceMetricsReader() *serviceMetricsReader {
	return &serviceMetricsReader{
		carries: func() bool { return d.mode.ipvs != nil },
		open: func() (trafficKernel, error) {
			return vserver.New(d.log, vserver.Options{Called: d.kernel.calls.of("metrics")})
		},
	}
}

// serviceSources returns what the metrics by Service read from the loop and from the kernel.
func (d *daemon) serviceSources(most int) telemetry.ServiceSources {
	r := d.newServiceMetricsReader()
	return telemetry.ServiceSources{
		Traffic: r.traffic, Loads: r.loads, Services: d.loop.Services, ServicesInfo: d.loop.ServicesInfo, Changes: d.known.Changes, Most: most,
	}
}

func (r *serviceMetricsReader) ready() error {
	if !r.carries() {
		return telemetry.ErrNoServers
	}
	if r.kernel != nil {
		return nil
	}
	k, err := r.open()
	if err != nil {
		return fmt.Errorf("read traffic: %w", err)
	}
	r.kernel = k
	return nil
}

func (r *serviceMetricsReader) traffic(ctx context.Context, visit func(model.FrontendKey, telemetry.VirtualServer)) error {
	if err := r.ready(); err != nil {
		return err
	}
	all, err := r.kernel.ListTraffic(ctx)
	if err != nil {
		return err
	}
	for k, s := range all {
		visit(frontendKey(k), telemetry.VirtualServer{Scheduler: s.Scheduler, Carried: telemetry.Carried(s.Traffic)})
	}
	return nil
}

func (r *serviceMetricsReader) loads(ctx context.Context, visit func(model.FrontendKey, telemetry.Load)) error {
	if err := r.ready(); err != nil {
		return err
	}
	all, err := r.kernel.ListLoads(ctx)
	if err != nil {
		return err
	}
	for k, l := range all {
		visit(frontendKey(k), telemetry.Load{Active: l.Active, Inactive: l.Inactive, Quiet: l.Quiet})
	}
	return nil
}

// frontendKey returns the frontend of a virtual server.
func frontendKey(k vserver.ServerKey) model.FrontendKey {
	return k
}

var _ trafficKernel = (*vserver.Handle)(nil)
