package topology

import (
	"context"
	"io"
	"net"
	"sync"
)

// Relay passes connections to a listener on to an address, both ways, until ctx ends: how a node reaches an API server outside of its
// network. It returns when nothing of it runs any more.
func Relay(ctx context.Context, l net.Listener, to string) {
	var running sync.WaitGroup
	defer running.Wait()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	for {
		near, err := l.Accept()
		if err != nil {
			return // it was closed
		}
		running.Go(func() { join(ctx, near, to) })
	}
}

// join makes one connection to the address, and ends both when either ends.
func join(ctx context.Context, near net.Conn, to string) {
	defer near.Close()
	var dialer net.Dialer
	far, err := dialer.DialContext(ctx, "tcp", to)
	if err != nil {
		return
	}
	defer far.Close()
	defer context.AfterFunc(ctx, func() { _, _ = near.Close(), far.Close() })()
	done := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		go func() {
			_, _ = io.Copy(way[1], way[0]) // an error is an end
			done <- struct{}{}
		}()
	}
	<-done
	_, _ = near.Close(), far.Close()
	<-done
}
