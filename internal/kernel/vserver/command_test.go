package vserver_test

import (
	"net/netip"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

func TestCommands(t *testing.T) {
	server := vserver.ServerKey{Addr: netip.MustParseAddr("10.96.0.10"), Port: 53, Protocol: vserver.ProtocolUDP}
	six := vserver.ServerKey{Addr: netip.MustParseAddr("fd00::1"), Port: 80, Protocol: vserver.ProtocolTCP}
	rr := vserver.Server{Scheduler: "rr", Flags: vserver.FlagPersistent, Timeout: 300}
	to := vserver.DestinationKey{Server: six, Addr: netip.MustParseAddr("fd00:244::1"), Port: 8080}
	at := vserver.Destination{Weight: 3, Forward: vserver.ForwardRoute}
	for got, want := range map[string]string{
		vserver.ServerCommand(vserver.ServerChange{Op: vserver.Add, Key: server, Server: rr}):               "ipvsadm -A -u 10.96.0.10:53 -s rr -p 300",
		vserver.ServerCommand(vserver.ServerChange{Op: vserver.Update, Key: server, Server: rr}):            "ipvsadm -E -u 10.96.0.10:53 -s rr -p 300",
		vserver.ServerCommand(vserver.ServerChange{Op: vserver.Delete, Key: server}):                        "ipvsadm -D -u 10.96.0.10:53",
		vserver.DestinationCommand(vserver.DestinationChange{Op: vserver.Add, Key: to, Destination: at}):    "ipvsadm -a -t [fd00::1]:80 -r [fd00:244::1]:8080 -g -w 3",
		vserver.DestinationCommand(vserver.DestinationChange{Op: vserver.Update, Key: to, Destination: at}): "ipvsadm -e -t [fd00::1]:80 -r [fd00:244::1]:8080 -g -w 3",
		vserver.DestinationCommand(vserver.DestinationChange{Op: vserver.Delete, Key: to, Destination: at}): "ipvsadm -d -t [fd00::1]:80 -r [fd00:244::1]:8080",
	} {
		if got != want {
			t.Errorf("command %q, want %q", got, want)
		}
	}
}
