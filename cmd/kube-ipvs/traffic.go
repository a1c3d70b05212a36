package main

import (
	"context"
	"fmt"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/telemetry"
)

// trafficKernel is where the counters of virtual servers are.
type trafficKernel interface {
	ListTraffic(ctx context.Context) (map[vserver.ServerKey]vserver.ServerTraffic, error)
	ListLoads(ctx context.Context) (map[vserver.ServerKey]vserver.Load, error)
}

// trafficReader reads them for the metrics by Service. Its handle is its own, for that of
// the loop is the loop's alone; it is opened when somebody asks for the first time. One
// goroutine uses it at a time.
type trafficReader struct {
	// carries tells whether the mode that runs has virtual servers.
	carries func() bool
	open    func() (trafficKernel, error)
	kernel  trafficKernel
}

func (p *program) newTrafficReader() *trafficReader {
	return &trafficReader{
		carries: func() bool { return p.ipvsMode() != nil },
		open: func() (trafficKernel, error) {
			return vserver.New(p.log, vserver.Options{Called: p.kernel.calls.of("metrics")})
		},
	}
}

// serviceSources joins the metrics by Service to the loop and to the kernel.
func (p *program) serviceSources(most int) telemetry.ServiceSources {
	r := p.newTrafficReader()
	return telemetry.ServiceSources{
		Traffic: r.traffic, Loads: r.loads, Services: p.loop.Services, ServicesInfo: p.loop.ServicesInfo, Changes: p.known.Changes, Most: most,
	}
}

func (r *trafficReader) ready() error {
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

func (r *trafficReader) traffic(ctx context.Context, visit func(model.FrontendKey, telemetry.VirtualServer)) error {
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

func (r *trafficReader) loads(ctx context.Context, visit func(model.FrontendKey, telemetry.Load)) error {
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

// frontendKey is the frontend that a virtual server is of.
func frontendKey(k vserver.ServerKey) model.FrontendKey {
	return model.FrontendKey{Addr: k.Addr, Port: k.Port, Protocol: model.Protocol(k.Protocol)}
}

var _ trafficKernel = (*vserver.Handle)(nil)
