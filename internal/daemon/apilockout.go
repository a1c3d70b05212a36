package daemon

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

// lockout unbinds an address of the API server that this node has bound, so that its packets end
// here and are refused. A running agent binds no such address. But while no agent runs, the name of
// the API server may change to another address. Before its first sync the next agent removes
// nothing, so it would wait forever for an API server that it cannot reach.
type lockout struct {
	log   *zap.Logger
	links interface {
		List(ctx context.Context) (map[netip.Addr]struct{}, error)
		Write(ctx context.Context, changes []link.Change) []error
	}
	servers interface {
		ListServers(ctx context.Context) (map[vserver.ServerKey]vserver.Server, error)
	}
	// lost is called with each address that was unbound.
	lost func(netip.Addr)
}

// free unbinds an address at which a connection was refused, unless a virtual server has the port.
// In that case the server's destination refused the connection, as the kubernetes Service does
// while the API server restarts.
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
	l.log.Warn("the address of the API server was bound on this node, so the agent could not reach the API server; the address is removed", zap.Stringer("address", at.Addr()))
	return nil
}

// unlockWithin bounds one try; the client dials again anyway.
const unlockWithin = 10 * time.Second

// refused is called when the API server refuses a connection. It does not block the client, for
// which the loop may wait.
func (d *daemon) refused(at netip.AddrPort) {
	mode := d.mode.ipvs
	if mode == nil || d.known.Synced() {
		return // nothing is bound, or the loop knows what is to be
	}
	if d.mode.unlocking.CompareAndSwap(false, true) {
		go func() {
			defer d.mode.unlocking.Store(false)
			d.unlock(mode, at)
		}()
	}
}

func (d *daemon) unlock(mode *ipvs.Mode, at netip.AddrPort) {
	ctx, cancel := context.WithTimeout(context.Background(), unlockWithin)
	defer cancel()
	l := lockout{log: d.log, links: d.kernel.link, servers: d.kernel.servers, lost: mode.AddressLost}
	err := d.loop.Repair(ctx, func(ctx context.Context) error { return l.free(ctx, at) })
	if err != nil {
		d.log.Warn("cannot check whether an address on this node hides the API server", zap.Error(fmt.Errorf("%s: %w", at, err)))
	}
}
