package relay

import (
	"context"
	"io"
	"net"
	"net/netip"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// setTargets replaces the targets. Connections stay; flows of UDP to a target that is gone end.
func (p *port) setTargets(want model.Relay) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.targets, p.pin.timeout = want.Targets, want.Affinity
	if p.flows != nil {
		p.flows.keep(want.Targets)
	}
}

// settle opens the port if it has targets, and closes it if it has none, so that clients are
// refused. It reports false for a port that cannot be opened; that is tried again in a retry alone.
func (p *port) settle(ctx context.Context, retry bool) bool {
	p.mu.Lock()
	wanted, open, failed := len(p.targets) > 0, p.socket != nil, p.err != nil
	if !wanted {
		p.err = nil
	}
	p.mu.Unlock()
	switch {
	case open && !wanted:
		p.closeSocket()
		p.log.Debug("localhost NodePort closed: no endpoint")
	case wanted && !open && failed && !retry:
		return false
	case wanted && !open:
		if err := p.listen(ctx); err != nil {
			p.fail(err)
			return false
		}
	}
	return true
}

// listen opens the socket. Its network names the family, because a socket of both would take the
// port of the other.
func (p *port) listen(ctx context.Context) error {
	family, at := "4", netip.AddrPortFrom(p.key.Addr, p.key.Port).String()
	if p.key.Addr.Is6() {
		family = "6"
	}
	var lc net.ListenConfig
	var serve func() error
	if p.key.Protocol == model.UDP {
		c, err := lc.ListenPacket(ctx, "udp"+family, at)
		if err != nil {
			return err
		}
		flows := newFlows(p, c.(*net.UDPConn))
		p.opened(c, flows)
		serve = flows.serve
	} else {
		l, err := lc.Listen(ctx, "tcp"+family, at)
		if err != nil {
			return err
		}
		p.opened(l, nil)
		serve = func() error { return p.accept(l.(*net.TCPListener)) }
	}
	p.log.Debug("localhost NodePort open")
	p.relay.group.Go(func() {
		if err := serve(); err != nil {
			select {
			case p.relay.lost <- loss{p, err}:
			case <-p.ctx.Done():
			}
		}
	})
	return nil
}

func (p *port) opened(socket io.Closer, f *flows) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.socket, p.flows, p.err = socket, f, nil
	if f != nil {
		f.keep(p.targets)
	}
}

// fail notes why the port is not open. It is logged once, and again when the reason changes.
func (p *port) fail(err error) {
	p.closeSocket()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil || p.err.Error() != err.Error() {
		p.log.Warn("localhost NodePort cannot be opened, will be tried again; ss -lntup shows which process has the port", zap.Error(err))
	}
	p.err = err
}

// closeSocket refuses new clients. Connections stay, flows of UDP end.
func (p *port) closeSocket() {
	p.mu.Lock()
	socket, flows := p.socket, p.flows
	p.socket, p.flows = nil, nil
	p.mu.Unlock()
	if socket != nil {
		_ = socket.Close()
	}
	if flows != nil {
		flows.keep(nil)
	}
}

// end closes the port and its connections.
func (p *port) end() {
	p.cancel()
	p.closeSocket()
}

// state reports whether the port is open, and why it is not; a nil error is that it is not to be.
func (p *port) state() (open bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.socket != nil, p.err
}
