package agent

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// HostReader tells what the machine answers on by itself and where its way out
// leads; *link.Handle is one.
type HostReader interface {
	// Local returns the addresses of all links but ours, with the link of each.
	Local(ctx context.Context) (map[netip.Addr]string, error)
	// Gateways returns the next hops of the default routes, sorted.
	Gateways(ctx context.Context) ([]netip.Addr, error)
}

// HostChanged has the loop read the addresses of the machine again, soon, and as
// one reading for all events of a moment. It never waits and may be called from
// any goroutine.
func (a *Agent) HostChanged() {
	select {
	case a.moved <- struct{}{}:
	default: // one is on its way already
	}
}

// hostEvent has the machine read soon, once for all events of a moment.
func (a *Agent) hostEvent(context.Context) {
	a.reread.armUnlessSet(max(a.opts.Coalesce, hostPause-time.Since(a.asked)))
}

// follow takes over what has changed of the machine and writes what follows.
func (a *Agent) follow(ctx context.Context) {
	if changed, _ := a.readAgain(ctx); changed {
		a.apply(ctx, false)
	}
}

// readHost asks the machine. After an error what was known before stays: a read
// error is never "no addresses".
func (a *Agent) readHost(ctx context.Context) error {
	a.asked = time.Now()
	links, err := a.opts.Host.Local(ctx)
	if err != nil {
		return fmt.Errorf("read the addresses of this machine: %w", err)
	}
	gateways, err := a.opts.Host.Gateways(ctx)
	if err != nil {
		return fmt.Errorf("read the gateways of this machine: %w", err)
	}
	var servers []netip.Addr
	if a.opts.APIServers != nil {
		servers = a.opts.APIServers()
	}
	if !a.hostRead || !maps.Equal(links, a.known.Links) || !slices.Equal(gateways, a.known.Gateways) || !slices.Equal(servers, a.known.APIServers) {
		a.known.Links, a.known.Gateways, a.known.APIServers, a.hostMoved = links, gateways, servers, true
	}
	a.hostRead = true
	return nil
}

// needHost makes sure that the machine was read once.
func (a *Agent) needHost(ctx context.Context) error {
	if a.hostRead {
		return nil
	}
	if err := a.readHost(ctx); err != nil {
		return err
	}
	concerned, _ := a.adopt()
	a.compile(ctx, concerned)
	return nil
}

// readAgain takes over what has changed of the machine and tells whether anything
// has. What cannot be read now, the next audit reads.
func (a *Agent) readAgain(ctx context.Context) (changed bool, err error) {
	if err := a.readHost(ctx); err != nil {
		if ctx.Err() == nil {
			a.log.Warn("host cannot be read, what was known of it holds", zap.Error(err))
		}
		return false, err
	}
	concerned, changed := a.adopt()
	a.compile(ctx, concerned)
	return changed, nil
}

// adopt makes what is known of the host what is compiled for. It returns the
// Services that look at what has changed; before the sources are in sync those of them
// that are served already, for the others are still to be taken.
func (a *Agent) adopt() (concerned []catalog.Input, changed bool) {
	if !a.hostMoved {
		return nil, false // comparing costs what all Nodes cost
	}
	a.hostMoved = false
	before, now := a.host, a.known
	if a.opts.NodePorts != nil {
		now.NodePorts = a.opts.NodePorts(now)
	}
	if now.Equal(before) {
		return nil, false
	}
	a.logHost(before, now)
	a.move(now)
	return a.matching(a.opts.Concerns(before, now)), true
}

// matching asks the catalog for Services that were taken.
func (a *Agent) matching(concerned func(*model.Service, []*model.Slice) bool) []catalog.Input {
	inputs := a.opts.Catalog.Matching(concerned)
	if a.synced {
		return inputs
	}
	return slices.DeleteFunc(inputs, func(in catalog.Input) bool {
		_, served := a.services[in.ID]
		return !served
	})
}

// move makes now what is compiled for, and tells who works by it.
func (a *Agent) move(now model.Host) {
	before := a.host
	a.host, a.compiler = now, a.opts.Compiler(now)
	a.mode.SetHost(now)
	if a.opts.Health != nil && !slices.Equal(before.NodePorts, now.NodePorts) {
		a.opts.Health.Listen(now.NodePorts)
	}
}
