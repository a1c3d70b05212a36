//go:build !linux

package capture

import (
	"context"
	"fmt"
	"runtime"
)

// Socket exists on Linux only; elsewhere Open fails.
type Socket struct{}

var errOS = fmt.Errorf("packet sockets on %s: %w", runtime.GOOS, ErrUnsupported)

// Open always fails with ErrUnsupported.
func Open(Filter) (*Socket, error) { return nil, errOS }

// Next fails with ErrUnsupported.
func (s *Socket) Next(context.Context) (Packet, error) { return Packet{}, errOS }

// Queued fails with ErrUnsupported.
func (s *Socket) Queued() (Packet, bool, error) { return Packet{}, false, errOS }

// Stats fails with ErrUnsupported.
func (s *Socket) Stats() (Stats, error) { return Stats{}, errOS }

// Close does nothing.
func (s *Socket) Close() {}
