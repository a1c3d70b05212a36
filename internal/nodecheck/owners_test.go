package nodecheck

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/ownership"
	"github.com/kube-ipvs/kube-ipvs/internal/diagnosis"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
	"github.com/kube-ipvs/kube-ipvs/internal/nodecheck/host"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

func serverAt(addrPort string, protocol netkey.Protocol) vserver.ServerKey {
	at := netip.MustParseAddrPort(addrPort)
	return vserver.ServerKey{Addr: at.Addr(), Port: at.Port(), Protocol: protocol}
}

// one runs one check.
func one(t *testing.T, c diagnosis.Check) diagnosis.Verdict {
	t.Helper()
	return diagnosis.Run(t.Context(), []diagnosis.Check{c})[0]
}

// TestCheckOwners: each server carries a mark of ours, is excluded, or is foreign.
func TestCheckOwners(t *testing.T) {
	addr := netip.MustParseAddr
	ours := ipvsOwners{
		servers: []vserver.ServerKey{
			serverAt("10.96.0.1:443", vserver.ProtocolTCP), serverAt("10.96.0.9:53", vserver.ProtocolUDP), serverAt("192.0.2.1:30080", vserver.ProtocolTCP),
			serverAt("10.97.3.4:80", vserver.ProtocolTCP), serverAt("198.18.0.1:80", vserver.ProtocolTCP),
		},
		routes: []netip.Prefix{netip.MustParsePrefix("10.97.0.0/16")},
		marks: ownership.Snapshot{
			Bound: map[netip.Addr]struct{}{addr("10.96.0.1"): {}}, Links: map[netip.Addr]string{addr("192.0.2.1"): "eth0"},
			Excluded: []netip.Prefix{netip.MustParsePrefix("198.18.0.0/24")},
		},
	}
	unmarked := ours
	for set, entry := range map[string]ipset.Entry{
		"KUBE-CLUSTER-IP":             ipset.IPPort(addr("10.96.0.9"), ipset.UDP, 53),
		"KUBE-NODE-PORT-TCP":          ipset.Port(30080),
		"KUBE-6-IPVS-IPS":             ipset.IP(addr("fd00:96::1")),
		"KUBE-NODE-PORT-UDP":          ipset.Port(30053),
		"KUBE-HEALTH-CHECK-NODE-PORT": ipset.Port(30999), // names no server
	} {
		ours.marks.Add(set, []ipset.Entry{entry})
	}
	for _, tt := range []struct {
		name   string
		change func(*ipvsOwners)
		of     int // which check
		state  diagnosis.State
		says   string
		fix    string
	}{
		{name: "ours alone", state: diagnosis.OK, says: "none; 5 in total"},
		{name: "ours of IPv6", change: func(p *ipvsOwners) {
			p.servers = append(p.servers, serverAt("[fd00:96::1]:80", vserver.ProtocolTCP), serverAt("192.0.2.1:30053", vserver.ProtocolUDP))
		}, state: diagnosis.OK, says: "none; 7 in total"},
		{name: "a port that names no server", change: func(p *ipvsOwners) { p.servers = append(p.servers, serverAt("192.0.2.1:30999", vserver.ProtocolTCP)) },
			state: diagnosis.Warn, says: "1 of 6 do not belong to kube-ipvs: 192.0.2.1:30999/tcp", fix: "ipvsadm -D -t 192.0.2.1:30999"},
		{name: "no sockets", of: 1, state: diagnosis.OK},
		{name: "a foreign server", change: func(p *ipvsOwners) { p.servers = append(p.servers, serverAt("192.0.2.1:8443", vserver.ProtocolTCP)) },
			state: diagnosis.Warn, says: "1 of 6 do not belong to kube-ipvs: 192.0.2.1:8443/tcp", fix: "ipvsadm -D -t 192.0.2.1:8443"},
		{name: "no set left", change: func(p *ipvsOwners) { p.marks = unmarked.marks },
			state: diagnosis.Warn, says: "2 of 5 do not belong to kube-ipvs: 192.0.2.1:30080/tcp, 10.96.0.9:53/udp", fix: "--ipvs-exclude-cidrs=192.0.2.1/32"},
		{name: "a socket on a NodePort", change: func(p *ipvsOwners) { p.listeners = []host.Listener{{TCP: true, Port: 30080}, {Port: 30080}} }, of: 1,
			state: diagnosis.Warn, says: "that IPVS handles, so it gets no packets: 192.0.2.1:30080/tcp", fix: "ss -lntup 'sport = :30080'"},
		{name: "a socket of another protocol", change: func(p *ipvsOwners) { p.listeners = []host.Listener{{Port: 30080}} }, of: 1, state: diagnosis.OK},
		{name: "a socket on the port of a ClusterIP", change: func(p *ipvsOwners) { p.listeners = []host.Listener{{TCP: true, Port: 443}} }, of: 1, state: diagnosis.OK},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := ours
			if tt.change != nil {
				tt.change(&p)
			}
			v := one(t, ownerChecks(func(context.Context) (ipvsOwners, error) { return p, nil })[tt.of])
			if v.State != tt.state || !strings.Contains(v.Detail, tt.says) || !strings.Contains(v.Fix, tt.fix) {
				t.Errorf("%+v, want %s, %q, %q", v, tt.state, tt.says, tt.fix)
			}
		})
	}
	for _, c := range ownerChecks(func(context.Context) (ipvsOwners, error) { return ipvsOwners{}, errors.New("no answer") }) {
		if v := one(t, c); v.State != diagnosis.Failed || v.Fix == "" {
			t.Errorf("%+v, want failed", v)
		}
	}
}

func TestSomeOfMany(t *testing.T) {
	var list []vserver.ServerKey
	for _, p := range []string{"192.0.2.5:1", "192.0.2.4:1", "192.0.2.1:1", "192.0.2.3:1", "192.0.2.2:1"} {
		list = append(list, serverAt(p, vserver.ProtocolTCP))
	}
	if got, want := some(list), "192.0.2.1:1/tcp, 192.0.2.2:1/tcp, 192.0.2.3:1/tcp, and 2 more"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
