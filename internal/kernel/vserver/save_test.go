package vserver_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
)

func serverKey(addrPort string, protocol netkey.Protocol) vserver.ServerKey {
	ap := netip.MustParseAddrPort(addrPort)
	return vserver.ServerKey{Addr: ap.Addr(), Port: ap.Port(), Protocol: protocol}
}

func destinationKey(server vserver.ServerKey, addrPort string) vserver.DestinationKey {
	ap := netip.MustParseAddrPort(addrPort)
	return vserver.DestinationKey{Server: server, Addr: ap.Addr(), Port: ap.Port()}
}

// The expected lines were printed by ipvsadm 1.31 after it had been told the
// same by hand; -x and -y it does not print.
func TestSaveServer(t *testing.T) {
	tcp, persistent := vserver.ProtocolTCP, vserver.FlagPersistent
	tests := []struct {
		key    vserver.ServerKey
		server vserver.Server
		want   string
	}{
		{serverKey("10.96.0.1:443", tcp), vserver.Server{Scheduler: "rr"}, "-A -t 10.96.0.1:443 -s rr"},
		{serverKey("10.96.0.2:443", tcp), vserver.Server{Scheduler: "rr", Flags: persistent, Timeout: 10800}, "-A -t 10.96.0.2:443 -s rr -p 10800"},
		{serverKey("10.96.0.3:443", tcp), vserver.Server{Scheduler: "sh", Flags: 0x19, Timeout: 60}, "-A -t 10.96.0.3:443 -s sh -p 60 -b sh-fallback,sh-port"},
		{serverKey("10.96.0.4:443", tcp), vserver.Server{Scheduler: "mh", Flags: 0x10}, "-A -t 10.96.0.4:443 -s mh -b mh-port"},
		{serverKey("10.96.0.5:443", tcp), vserver.Server{Scheduler: "rr", Flags: 0x18}, "-A -t 10.96.0.5:443 -s rr -b flag-1,flag-2"},
		{serverKey("10.96.0.6:53", vserver.ProtocolUDP), vserver.Server{Scheduler: "wlc", Flags: 0x25, Timeout: 30}, "-A -u 10.96.0.6:53 -s wlc -p 30 -o -b flag-3"},
		{serverKey("10.96.0.7:99", vserver.ProtocolSCTP), vserver.Server{Scheduler: "lc"}, "-A --sctp-service 10.96.0.7:99 -s lc"},
		{serverKey("[fd00::1]:80", tcp), vserver.Server{Scheduler: "rr", Flags: persistent, Timeout: 60, HostBits: 64}, "-A -t [fd00::1]:80 -s rr -p 60 -M 64"},
		{serverKey("10.96.0.8:443", tcp), vserver.Server{Scheduler: "rr", Flags: persistent, Timeout: 60, HostBits: 8}, "-A -t 10.96.0.8:443 -s rr -p 60 -M 255.255.255.0"},
		{serverKey("10.96.0.9:0", tcp), vserver.Server{Scheduler: "rr", Flags: persistent, Timeout: 60}, "-A -t 10.96.0.9:0 -s rr -p 60"},
		{serverKey("10.96.0.9:5060", vserver.ProtocolUDP), vserver.Server{Scheduler: "rr", Flags: persistent, Timeout: 60, Engine: "sip"}, "-A -u 10.96.0.9:5060 -s rr -p 60 --pe sip"},
	}
	for _, tt := range tests {
		t.Run(tt.key.String(), func(t *testing.T) {
			if got := vserver.SaveServer(tt.key, tt.server); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestSaveDestination(t *testing.T) {
	four, six := serverKey("10.96.0.2:443", vserver.ProtocolTCP), serverKey("[fd00::1]:80", vserver.ProtocolTCP)
	tests := []struct {
		key         vserver.DestinationKey
		destination vserver.Destination
		want        string
	}{
		{destinationKey(four, "10.0.0.1:6443"), vserver.Destination{Weight: 1}, "-a -t 10.96.0.2:443 -r 10.0.0.1:6443 -m -w 1"},
		{destinationKey(four, "10.0.0.1:443"), vserver.Destination{Weight: 7, Forward: vserver.ForwardTunnel}, "-a -t 10.96.0.2:443 -r 10.0.0.1:443 -i -w 7 --tun-type ipip"},
		{destinationKey(four, "10.0.0.2:443"), vserver.Destination{Forward: vserver.ForwardRoute, Upper: 5, Lower: 3}, "-a -t 10.96.0.2:443 -r 10.0.0.2:443 -g -w 0 -x 5 -y 3"},
		{destinationKey(six, "[fd00::5]:8080"), vserver.Destination{Weight: 65535}, "-a -t [fd00::1]:80 -r [fd00::5]:8080 -m -w 65535"},
	}
	for _, tt := range tests {
		t.Run(tt.key.String(), func(t *testing.T) {
			if got := vserver.SaveDestination(tt.key, tt.destination); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestWriteSaveOrdersByKey(t *testing.T) {
	tcp, udp := vserver.ProtocolTCP, vserver.ProtocolUDP
	rr := vserver.Server{Scheduler: "rr"}
	servers := map[vserver.ServerKey]vserver.Server{
		serverKey("10.96.0.10:53", udp): rr, serverKey("10.96.0.9:53", tcp): rr, serverKey("[fd00::1]:53", tcp): rr,
		serverKey("10.96.0.10:53", tcp): rr, serverKey("10.96.0.10:9", tcp): rr,
	}
	parent := serverKey("10.96.0.10:53", tcp)
	one := vserver.Destination{Weight: 1}
	destinations := map[vserver.DestinationKey]vserver.Destination{
		destinationKey(parent, "10.0.0.10:53"): one, destinationKey(parent, "10.0.0.9:53"): one, destinationKey(parent, "10.0.0.9:5"): one,
		destinationKey(serverKey("10.96.0.99:53", tcp), "10.0.0.1:53"): one, // its server was deleted between two dumps
	}
	want := `-A -t 10.96.0.9:53 -s rr
-A -t 10.96.0.10:9 -s rr
-A -t 10.96.0.10:53 -s rr
-a -t 10.96.0.10:53 -r 10.0.0.9:5 -m -w 1
-a -t 10.96.0.10:53 -r 10.0.0.9:53 -m -w 1
-a -t 10.96.0.10:53 -r 10.0.0.10:53 -m -w 1
-A -u 10.96.0.10:53 -s rr
-A -t [fd00::1]:53 -s rr
`
	var b strings.Builder
	if err := vserver.WriteSave(&b, servers, destinations); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
}

type fullDisk struct{}

var errFull = errors.New("disk full")

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }

func TestWriteSaveReportsItsWriter(t *testing.T) {
	servers := map[vserver.ServerKey]vserver.Server{serverKey("10.96.0.1:1", 6): {Scheduler: "rr"}}
	if err := vserver.WriteSave(fullDisk{}, servers, nil); !errors.Is(err, errFull) {
		t.Errorf("error %v, want %v", err, errFull)
	}
}

func TestKeyStrings(t *testing.T) {
	four := serverKey("10.96.0.10:53", vserver.ProtocolUDP)
	tests := map[string]interface{ String() string }{
		"10.96.0.10:53/udp":                  four,
		"[fd00::a]:53/tcp":                   serverKey("[fd00::a]:53", vserver.ProtocolTCP),
		"10.96.0.10:53/sctp":                 serverKey("10.96.0.10:53", vserver.ProtocolSCTP),
		"10.96.0.10:53/47":                   serverKey("10.96.0.10:53", 47),
		"10.244.1.5:53 of 10.96.0.10:53/udp": destinationKey(four, "10.244.1.5:53"),
		"[fd01::5]:53 of 10.96.0.10:53/udp":  destinationKey(four, "[fd01::5]:53"),
	}
	for want, key := range tests {
		if got := key.String(); got != want {
			t.Errorf("String() = %q, want %q", got, want)
		}
	}
}
