package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

// lockout frees an address of the API server that this node has bound: packets to it end
// here, and are refused. A running agent binds none. But a name may lead to another address
// while no agent runs, and before its first sync the next one removes nothing: it would wait
// for an API server that it keeps from itself.
type lockout struct {
	log   *zap.Logger
	links interface {
		List(ctx context.Context) (map[netip.Addr]struct{}, error)
		Write(ctx context.Context, changes []link.Change) []error
	}
	servers interface {
		ListServers(ctx context.Context) (map[vserver.ServerKey]vserver.Server, error)
	}
	// lost is told which address is not bound any more.
	lost func(netip.Addr)
}

// free unbinds an address at which a connection was refused, unless a virtual server has the
// port: then the refusal came from there, as it does from default/kubernetes while the API
// server restarts.
func (l lockout) free(ctx context.Context, at netip.AddrPort) error {
	bound, err := l.links.List(ctx)
	if errors.Is(err, link.ErrNotExist) {
		return nil
	}
	if _, is := bound[at.Addr()]; err != nil || !is {
		return err
	}
	servers, err := l.servers.ListServers(ctx)
	if err != nil {
		return err
	}
	if _, served := servers[vserver.ServerKey{Addr: at.Addr(), Port: at.Port(), Protocol: vserver.ProtocolTCP}]; served {
		return nil
	}
	if errs := l.links.Write(ctx, []link.Change{{Op: link.Delete, Addr: at.Addr()}}); errs != nil {
		return errors.Join(errs...)
	}
	l.lost(at.Addr())
	l.log.Warn("the API server's address was bound on this node, so that the agent could not reach it; it is unbound now", zap.Stringer("address", at.Addr()))
	return nil
}

// unlockWithin bounds one try; the client dials again in any case.
const unlockWithin = 10 * time.Second

// refused is called when the API server refuses a connection. The client goes on meanwhile,
// for the loop may wait for it.
func (p *program) refused(at netip.AddrPort) {
	mode := p.ipvsMode()
	if mode == nil || p.known.Synced() {
		return // nothing is bound, or what is bound is known to be right
	}
	if p.unlocking.CompareAndSwap(false, true) {
		go func() {
			defer p.unlocking.Store(false)
			p.unlock(mode, at)
		}()
	}
}

func (p *program) unlock(mode *ipvs.Mode, at netip.AddrPort) {
	ctx, cancel := context.WithTimeout(context.Background(), unlockWithin)
	defer cancel()
	l := lockout{log: p.log, links: p.kernel.link, servers: p.kernel.servers, lost: mode.AddressLost}
	err := p.loop.Repair(ctx, func(ctx context.Context) error { return l.free(ctx, at) })
	if err != nil {
		p.log.Warn("cannot tell whether this node keeps the API server from itself", zap.Error(fmt.Errorf("%s: %w", at, err)))
	}
}
