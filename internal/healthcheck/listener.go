package healthcheck

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/connlimit"
)

// The limits of one connection. A probe is a few hundred bytes, and any client that reaches the
// node can open a connection.
const (
	readWithin     = 5 * time.Second
	writeWithin    = 5 * time.Second
	idleFor        = 2 * time.Minute
	maxHeaderBytes = 16 << 10
	// grace is the time that requests under way get when a port closes, within the two
	// seconds that the agent has to stop (internal/DECISIONS.md, Stop within two seconds).
	grace = time.Second
)

// listener is a port open at one address.
type listener struct {
	net.Listener
	server *http.Server
	slot   slot
	addr   netip.Addr
}

// loss is a listener that stopped by itself.
type loss struct {
	*listener
	err error
}

func (k *listenerManager) newServer(h http.Handler) *http.Server {
	errorLog, _ := zap.NewStdLogAt(k.log, zap.DebugLevel) // cannot fail: the level exists
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: readWithin, ReadTimeout: readWithin, WriteTimeout: writeWithin, IdleTimeout: idleFor,
		MaxHeaderBytes:               maxHeaderBytes,
		DisableGeneralOptionsHandler: true, // any method is answered, OPTIONS * too
		ErrorLog:                     errorLog,
		ConnState:                    connlimit.Bound(connlimit.Most),
	}
}

// serve answers until the listener is closed, and reports a close that was not requested here.
func (k *listenerManager) serve(l *listener) {
	err := l.server.Serve(l)
	if errors.Is(err, net.ErrClosed) || errors.Is(err, http.ErrServerClosed) {
		return
	}
	select {
	case k.lost <- loss{l, err}:
	case <-k.done:
	}
}

// closeListener frees the address at once and lets requests under way end.
func (k *listenerManager) closeListener(p *port, l *listener) {
	delete(p.open, l.addr)
	_ = l.Close() // a socket that listens has nothing to lose
	k.group.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		if l.server.Shutdown(ctx) != nil {
			_ = l.server.Close()
		}
	})
}

// closePort closes a port that no Service wants; p is nil if there is none.
func (k *listenerManager) closePort(at slot, p *port) {
	if p == nil {
		return
	}
	for _, l := range p.open {
		k.closeListener(p, l)
	}
	delete(k.ports, at)
	k.log.Info("health-check port closed", zap.Stringer("service", p.holder.service), zap.Uint16("port", at.port), zap.Stringer("family", at.family))
}

// close closes everything and waits until nothing of it runs.
func (k *listenerManager) close() {
	close(k.done)
	for at, p := range k.ports {
		k.closePort(at, p)
	}
	k.group.Wait()
}
