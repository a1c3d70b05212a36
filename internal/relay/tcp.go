package relay

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// accept takes connections until the listener is closed. It returns any other error.
func (p *port) accept(l *net.TCPListener) error {
	for {
		client, err := l.AcceptTCP()
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil
		case err != nil:
			return err
		case !p.take():
			p.limited("new ones are reset")
			reset(client)
		default:
			p.relay.group.Go(func() {
				defer p.release()
				p.connect(client)
			})
		}
	}
}

// connect joins a client to a target. Without one the client is reset.
func (p *port) connect(client *net.TCPConn) {
	to := p.pick()
	if !to.IsValid() {
		reset(client)
		return
	}
	d := net.Dialer{Timeout: p.relay.opts.Connect}
	conn, err := d.DialContext(p.ctx, "tcp", to.String())
	if err != nil {
		p.log.Debug("target of a localhost NodePort does not answer, the client is reset", zap.Error(err))
		reset(client)
		return
	}
	join(p.ctx, client, conn.(*net.TCPConn), p.relay.opts.Idle/2)
}

// join copies both directions until both have ended. An error in one ends both by a reset. So does
// the end of ctx, and a silence of two periods in both directions.
func join(ctx context.Context, a, b *net.TCPConn, period time.Duration) {
	abort := func() { reset(a); reset(b) }
	defer context.AfterFunc(ctx, abort)()
	var moved atomic.Int64 // when data was seen last
	moved.Store(time.Now().UnixNano())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if copyStream(a, b, &moved, period) != nil {
			abort()
		}
	}()
	if copyStream(b, a, &moved, period) != nil {
		abort()
	}
	<-done
	_, _ = a.Close(), b.Close()
}

// copyStream copies from src until its end, which it passes on. io.Copy moves the data inside the
// kernel, so it is interrupted once a period to see whether any came. A peer that takes no data for
// a period ends the connection.
func copyStream(dst, src *net.TCPConn, moved *atomic.Int64, period time.Duration) error {
	for {
		start := time.Now()
		if err := errors.Join(src.SetReadDeadline(start.Add(period)), dst.SetWriteDeadline(start.Add(2*period))); err != nil {
			return err
		}
		n, err := io.Copy(dst, src)
		switch now := time.Now(); {
		case err == nil:
			return dst.CloseWrite()
		case !errors.Is(err, os.ErrDeadlineExceeded), now.Sub(start) >= 2*period:
			return err
		case n > 0:
			moved.Store(now.UnixNano())
		case now.UnixNano()-moved.Load() >= int64(2*period):
			return err
		}
	}
}

// reset closes a connection so that its peer sees an error and not an orderly end.
func reset(c *net.TCPConn) {
	_, _ = c.SetLinger(0), c.Close()
}
