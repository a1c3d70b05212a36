package kube

import (
	"context"
	"net"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// polite makes connections that read when it is their turn: HTTP/2 reads megabytes of a
// list ahead of who decodes it, and decrypts them.
type polite struct {
	turns *source.Turns
	dials func(ctx context.Context, network, address string) (net.Conn, error)
}

// dialTime is client-go's own (k8s.io/client-go/transport, tlsTransportCache.get), for
// connecting and between probes of a connection that is idle.
const dialTime = 30 * time.Second

func (p polite) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := p.dials(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return politeConn{conn, p.turns}, nil
}

type politeConn struct {
	net.Conn
	turns *source.Turns
}

// Read implements net.Conn.
func (c politeConn) Read(b []byte) (int, error) {
	c.turns.Read()
	return c.Conn.Read(b)
}
