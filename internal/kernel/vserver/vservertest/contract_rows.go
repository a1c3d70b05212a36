package vservertest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
)

// server makes a key from "10.96.0.1:80" and a protocol.
func server(addrPort string, protocol netkey.Protocol) vserver.ServerKey {
	ap := netip.MustParseAddrPort(addrPort)
	return vserver.ServerKey{Addr: ap.Addr(), Port: ap.Port(), Protocol: protocol}
}

func destination(k vserver.ServerKey, addrPort string) vserver.DestinationKey {
	ap := netip.MustParseAddrPort(addrPort)
	return vserver.DestinationKey{Server: k, Addr: ap.Addr(), Port: ap.Port()}
}

var roundRobin = vserver.Server{Scheduler: "rr"}

// vip, web and weight1 are the server and destination of cases that need one.
var (
	vip     = server("10.96.0.1:80", vserver.ProtocolTCP)
	web     = destination(vip, "10.0.0.1:8080")
	weight1 = vserver.Destination{Weight: 1}
)

func writeServers(t *testing.T, s Subject, op vserver.Op, rows map[vserver.ServerKey]vserver.Server) {
	t.Helper()
	changes := make([]vserver.ServerChange, 0, len(rows))
	for k, v := range rows {
		changes = append(changes, vserver.ServerChange{Op: op, Key: k, Server: v})
	}
	for _, err := range s.Client.WriteServers(context.Background(), changes) {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func writeDestination(t *testing.T, s Subject, op vserver.Op, k vserver.DestinationKey, d vserver.Destination) {
	t.Helper()
	errs := s.Client.WriteDestinations(context.Background(), []vserver.DestinationChange{{Op: op, Key: k, Destination: d}})
	if errs != nil {
		t.Fatal(errs[0])
	}
}

// startWith puts vip with web in the table.
func startWith(t *testing.T, s Subject) {
	t.Helper()
	writeServers(t, s, vserver.Add, map[vserver.ServerKey]vserver.Server{vip: roundRobin})
	writeDestination(t, s, vserver.Add, web, weight1)
}

// wantServers compares the table's servers, read by dump and one by one.
func wantServers(t *testing.T, s Subject, want map[vserver.ServerKey]vserver.Server) {
	t.Helper()
	got, err := s.Client.ListServers(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("servers (-want +got):\n%s", diff)
	}
	for k, v := range want {
		if one, err := s.Client.GetServer(context.Background(), k); err != nil || one != v {
			t.Errorf("GetServer(%s) = %+v, %v; want %+v", k, one, err, v)
		}
	}
}

// wantText compares the table with the text of `ipvsadm -Sn`, given one row a
// line.
func wantText(t *testing.T, s Subject, lines ...string) {
	t.Helper()
	want := strings.Join(append(lines, ""), "\n")
	if diff := cmp.Diff(want, save(t, s)); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func save(t *testing.T, s Subject) string {
	t.Helper()
	servers, destinations, err := s.Client.List(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := vserver.WriteSave(&b, servers, destinations); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func everyScheduler(t *testing.T, s Subject) {
	want := map[vserver.ServerKey]vserver.Server{}
	for i, name := range append([]string{"none"}, s.Schedulers...) {
		want[server(fmt.Sprintf("10.96.0.1:%d", 1+i), vserver.ProtocolTCP)] = vserver.Server{Scheduler: name}
	}
	writeServers(t, s, vserver.Add, want)
	wantServers(t, s, want)
}

// flagged has every flag, with and without persistence, in both families.
func flagged() map[vserver.ServerKey]vserver.Server {
	p := vserver.FlagPersistent
	values := []vserver.Server{
		{Scheduler: "rr"},
		{Scheduler: "rr", Flags: p, Timeout: 10800},
		{Scheduler: "rr", Flags: p, Timeout: 1, HostBits: 8},
		{Scheduler: "rr", Flags: p, Timeout: 86400},
		{Scheduler: "sh", Flags: vserver.FlagSched1},
		{Scheduler: "sh", Flags: vserver.FlagSched2},
		{Scheduler: "mh", Flags: vserver.FlagSched1 | vserver.FlagSched2},
		{Scheduler: "wlc", Flags: vserver.FlagOnePacket},
		{Scheduler: "rr", Flags: p | vserver.FlagOnePacket | vserver.FlagSched3, Timeout: 30},
	}
	rows := map[vserver.ServerKey]vserver.Server{}
	for i, v := range values {
		rows[server(fmt.Sprintf("10.96.0.2:%d", 1+i), vserver.ProtocolUDP)] = v
		rows[server(fmt.Sprintf("[fd00::2]:%d", 1+i), vserver.ProtocolUDP)] = v
	}
	return rows
}

func flagsAndPersistence(t *testing.T, s Subject) {
	writeServers(t, s, vserver.Add, flagged())
	wantServers(t, s, flagged())
}

func familiesAndProtocols(t *testing.T, s Subject) {
	want := map[vserver.ServerKey]vserver.Server{}
	for _, addrPort := range []string{"10.96.0.3:53", "[fd00::3]:53", "[a60:3::]:53", "10.96.0.3:0", "0.0.0.1:53", "[64:ff9b::a60:3]:53"} {
		for _, protocol := range []netkey.Protocol{vserver.ProtocolTCP, vserver.ProtocolUDP, vserver.ProtocolSCTP} {
			v := roundRobin
			if strings.HasSuffix(addrPort, ":0") { // the kernel takes port 0 with persistence only
				v = vserver.Server{Scheduler: "rr", Flags: vserver.FlagPersistent, Timeout: 60}
			}
			want[server(addrPort, protocol)] = v
		}
	}
	writeServers(t, s, vserver.Add, want)
	wantServers(t, s, want)
	four, six := server("10.96.0.3:53", vserver.ProtocolSCTP), server("[fd00::3]:53", vserver.ProtocolSCTP)
	writeDestination(t, s, vserver.Add, destination(four, "10.0.0.3:53"), weight1)
	writeDestination(t, s, vserver.Add, destination(six, "[fd01::3]:53"), weight1)
	writeDestination(t, s, vserver.Add, destination(six, "[a00:3::]:53"), weight1) // looks like 10.0.0.3 with zeros behind it
	got, err := s.Client.ListDestinations(context.Background(), six)
	if err != nil {
		t.Fatal(err)
	}
	wantRows := map[vserver.DestinationKey]vserver.Destination{
		destination(six, "[fd01::3]:53"): weight1,
		destination(six, "[a00:3::]:53"): weight1,
	}
	if diff := cmp.Diff(wantRows, got); diff != "" {
		t.Errorf("destinations (-want +got):\n%s", diff)
	}
}

func serverChangesInPlace(t *testing.T, s Subject) {
	startWith(t, s)
	steps := []struct {
		server vserver.Server
		text   string
	}{
		{vserver.Server{Scheduler: "rr", Flags: vserver.FlagPersistent, Timeout: 60}, "-A -t 10.96.0.1:80 -s rr -p 60"},
		{vserver.Server{Scheduler: "rr", Flags: vserver.FlagPersistent, Timeout: 90}, "-A -t 10.96.0.1:80 -s rr -p 90"},
		{vserver.Server{Scheduler: "mh", Flags: vserver.FlagSched2}, "-A -t 10.96.0.1:80 -s mh -b mh-port"},
		{vserver.Server{Scheduler: "sh", Flags: vserver.FlagSched1}, "-A -t 10.96.0.1:80 -s sh -b sh-fallback"},
		{vserver.Server{Scheduler: "none"}, "-A -t 10.96.0.1:80 -s none"},
		{vserver.Server{Scheduler: "rr"}, "-A -t 10.96.0.1:80 -s rr"},
	}
	for _, step := range steps {
		writeServers(t, s, vserver.Update, map[vserver.ServerKey]vserver.Server{vip: step.server})
		wantText(t, s, step.text, "-a -t 10.96.0.1:80 -r 10.0.0.1:8080 -m -w 1")
	}
}

// stagedServer creates a server that no client reaches before it is complete, and makes it
// unreachable again.
func stagedServer(t *testing.T, s Subject) {
	local := server("127.0.0.20:80", vserver.ProtocolTCP)
	web := destination(local, "127.0.0.21:8080")
	refuses := func(when string, want bool) {
		t.Helper()
		if s.Refuses != nil && s.Refuses(t, web) != want {
			t.Errorf("%s: a client is refused: %t, want %t", when, !want, want)
		}
	}
	row := func(scheduler string) string { return "-A -t 127.0.0.20:80 -s " + scheduler }
	const filled = "-a -t 127.0.0.20:80 -r 127.0.0.21:8080 -m -w 1"

	errs := s.Client.WriteServers(context.Background(), []vserver.ServerChange{{Op: vserver.Add, Key: local, Server: roundRobin, Staged: true}})
	if errs != nil {
		t.Fatal(errs[0])
	}
	wantText(t, s, row("none"))
	writeDestination(t, s, vserver.Add, web, weight1)
	wantText(t, s, row("none"), filled)
	refuses("filled", true)
	for _, name := range []string{"rr", "mh", "none", "mh", "none"} {
		writeServers(t, s, vserver.Update, map[vserver.ServerKey]vserver.Server{local: {Scheduler: name}})
		wantText(t, s, row(name), filled)
		refuses(name, name == "none")
	}
}

// stagingSparesServer: an add that meets a server never takes its scheduler away.
func stagingSparesServer(t *testing.T, s Subject) {
	startWith(t, s)
	for _, name := range []string{"rr", "wrr"} {
		errs := s.Client.WriteServers(context.Background(), []vserver.ServerChange{
			{Op: vserver.Add, Key: vip, Server: vserver.Server{Scheduler: name}, Staged: true},
		})
		if errs != nil {
			t.Fatal(errs[0])
		}
		wantText(t, s, "-A -t 10.96.0.1:80 -s "+name, "-a -t 10.96.0.1:80 -r 10.0.0.1:8080 -m -w 1")
	}
	errs := s.Client.WriteServers(context.Background(), []vserver.ServerChange{
		{Op: vserver.Add, Key: vip, Server: vserver.Server{Scheduler: "nosuch"}, Staged: true},
	})
	wantErrors(t, errs, 1, map[int]error{0: vserver.ErrUnsupported}, "add server 10.96.0.1:80/tcp: ")
	if errors.Is(errs[0], vserver.ErrNoStaging) {
		t.Errorf("%v: it is not staging that was refused", errs[0])
	}
}

func weightChangesInPlace(t *testing.T, s Subject) {
	startWith(t, s)
	for _, weight := range []uint16{0, 1, 65535, 7} {
		writeDestination(t, s, vserver.Update, web, vserver.Destination{Weight: weight})
		wantText(t, s, "-A -t 10.96.0.1:80 -s rr", fmt.Sprintf("-a -t 10.96.0.1:80 -r 10.0.0.1:8080 -m -w %d", weight))
	}
}

func deleteTakesDestinations(t *testing.T, s Subject) {
	startWith(t, s)
	writeServers(t, s, vserver.Delete, map[vserver.ServerKey]vserver.Server{vip: {}})
	wantText(t, s)
	writeServers(t, s, vserver.Add, map[vserver.ServerKey]vserver.Server{vip: roundRobin})
	wantText(t, s, "-A -t 10.96.0.1:80 -s rr")
}

// kindsOfTunnels changes what a destination's packets are wrapped in, in place.
func kindsOfTunnels(t *testing.T, s Subject) {
	startWith(t, s)
	k := destination(vip, "10.0.0.1:8080")
	gue := vserver.Destination{Weight: 2, Forward: vserver.ForwardTunnel, Tunnel: vserver.TunnelGUE, TunnelPort: 5555}
	other := gue
	other.TunnelPort = 6080
	for _, d := range []vserver.Destination{gue, other, {Weight: 2, Forward: vserver.ForwardTunnel}, gue, {Weight: 2}} {
		writeDestination(t, s, vserver.Update, k, d)
		got, err := s.Client.ListDestinations(context.Background(), vip)
		if err != nil || got[k] != d {
			t.Errorf("destination %+v, error %v, want %+v", got[k], err, d)
		}
		if read := s.Readers[s.ReadsTunnels]; read != nil {
			if diff := cmp.Diff(SortSave(read(t)), SortSave(save(t, s))); diff != "" {
				t.Errorf("our list against %s (-%[1]s +ours):\n%s", s.ReadsTunnels, diff)
			}
		}
	}
	gue.TunnelPort = 0
	for name, d := range map[string]vserver.Destination{"no port": gue, "no tunnel": {Tunnel: vserver.TunnelGUE, TunnelPort: 5555}} {
		errs := s.Client.WriteDestinations(context.Background(), []vserver.DestinationChange{{Op: vserver.Update, Key: k, Destination: d}})
		if len(errs) != 1 || !errors.Is(errs[0], vserver.ErrInvalid) {
			t.Errorf("%s: errors %v, want %v", name, errs, vserver.ErrInvalid)
		}
	}
}
