package vservertest

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
)

// Proc prints the table and servers for firewall marks as the kernel's list
// /proc/net/ip_vs does, in an order of its own.
func (t *Table) Proc(marks ...uint32) string {
	var b strings.Builder
	b.WriteString("IP Virtual Server version 1.2.1 (size=4096)\n" +
		"Prot LocalAddress:Port Scheduler Flags\n" +
		"  -> RemoteAddress:Port Forward Weight ActiveConn InActConn\n")
	for _, k := range slices.SortedFunc(maps.Keys(t.Servers), vserver.CompareServers) {
		b.WriteString(procServer(k, t.Servers[k]))
		for _, d := range slices.SortedFunc(maps.Keys(t.Destinations[k]), vserver.DestinationKey.Compare) {
			c := t.Connections[d]
			fmt.Fprintf(&b, "  -> %s      %-7s %-6d %-10d %-10d\n", procEndpoint(d.Addr, d.Port),
				procForward[t.Destinations[k][d].Forward], t.Destinations[k][d].Weight, c.Active, c.Inactive)
		}
	}
	for _, mark := range marks {
		fmt.Fprintf(&b, "FWM  %08X rr \n", mark)
	}
	return b.String()
}

var procForward = map[uint8]string{
	vserver.ForwardMasq: "Masq", vserver.ForwardLocal: "Local", vserver.ForwardTunnel: "Tunnel", vserver.ForwardRoute: "Route",
}

func procServer(k vserver.ServerKey, s vserver.Server) string {
	protocol := map[netkey.Protocol]string{vserver.ProtocolTCP: "TCP", vserver.ProtocolUDP: "UDP", vserver.ProtocolSCTP: "SCTP"}[k.Protocol]
	if protocol == "" {
		protocol = fmt.Sprintf("IP_%d", k.Protocol)
	}
	text := protocol + "  " + procEndpoint(k.Addr, k.Port) + " " + s.Scheduler + " "
	if k.Addr.Is4() && s.Flags&vserver.FlagOnePacket != 0 {
		text += "ops "
	}
	if s.Flags&vserver.FlagPersistent != 0 {
		text += fmt.Sprintf("persistent %d %08X", s.Timeout*procHZ, procMask(k, s))
	}
	return text + "\n"
}

// procHZ is how many of the kernel's ticks are a second (CONFIG_HZ).
const procHZ = 250

// procMask is a netmask, or of IPv6 the length of a prefix with its bytes swapped.
func procMask(k vserver.ServerKey, s vserver.Server) uint32 {
	if k.Addr.Is4() {
		return ^uint32(0) << s.HostBits
	}
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], 128-uint32(s.HostBits))
	return binary.BigEndian.Uint32(b[:])
}

func procEndpoint(a netip.Addr, port uint16) string {
	if a.Is4() {
		return fmt.Sprintf("%08X:%04X", a.As4(), port)
	}
	return fmt.Sprintf("[%s]:%04X", a.StringExpanded(), port)
}
