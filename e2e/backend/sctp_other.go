//go:build !linux

package backend

import (
	"context"
	"errors"
	"net"
	"net/netip"
)

var errNoSCTP = errors.New("sctp is unsupported on this OS")

func listenSCTP(string) (net.Listener, error) { return nil, errNoSCTP }

func dialSCTP(context.Context, netip.AddrPort, netip.Addr) (net.Conn, error) { return nil, errNoSCTP }
