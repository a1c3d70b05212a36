package vservertest

import (
	"context"
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

// NewLoaded returns a kernel with one server, 10.96.0.1:80/tcp, and two destinations with
// connections, one of which drains.
func NewLoaded(ctx context.Context) *Fake {
	f := NewFake()
	web := vserver.ServerKey{Addr: netip.MustParseAddr("10.96.0.1"), Port: 80, Protocol: vserver.ProtocolTCP}
	f.WriteServers(ctx, []vserver.ServerChange{{Op: vserver.Add, Key: web, Server: vserver.Server{Scheduler: "wlc"}}})
	taking := vserver.DestinationKey{Server: web, Addr: netip.MustParseAddr("10.0.0.1"), Port: 8080}
	drains := vserver.DestinationKey{Server: web, Addr: netip.MustParseAddr("10.0.0.2"), Port: 8080}
	f.WriteDestinations(ctx, []vserver.DestinationChange{{Op: vserver.Add, Key: taking, Destination: vserver.Destination{Weight: 1}}, {Op: vserver.Add, Key: drains}})
	f.SetConnections(taking, vserver.Connections{Active: 3, Inactive: 1})
	f.SetConnections(drains, vserver.Connections{Active: 1})
	f.Carry(taking, vserver.Traffic{Connections: 9, PacketsIn: 90, PacketsOut: 80, BytesIn: 9000, BytesOut: 80000})
	return f
}
