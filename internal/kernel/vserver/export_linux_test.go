package vserver

import (
	"context"
	"net/netip"
)

// Apart runs a function on a thread that may be lost.
var Apart = apart

// ProbeReuseWith is ProbeReuse with other settings around it.
var ProbeReuseWith = probeReuse

// Reply is what became of one connection.
type Reply struct {
	Answered bool
	Name     byte
	Lost     bool
}

// DialFrom opens a connection as the probe does.
func DialFrom(ctx context.Context, from, to netip.AddrPort) (Reply, error) {
	r, err := dialFrom(ctx, from, to)
	return Reply{Answered: r.answered, Name: r.name, Lost: r.lost}, err
}
