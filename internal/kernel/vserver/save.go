package vserver

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// WriteSave prints rows as `ipvsadm -Sn` does, in a form that `ipvsadm -R`
// reads: each server followed by its destinations, in the order of the keys.
// The lines are the tool's own but for connection thresholds, which it reads
// and does not print. The tool's order of addresses is not a usable one, it
// compares the first four bytes as a signed difference.
// Destinations of servers that are not in the map are left out.
func WriteSave(w io.Writer, servers map[ServerKey]Server, destinations map[DestinationKey]Destination) error {
	out := bufio.NewWriter(w)
	byServer := make(map[ServerKey][]DestinationKey, len(servers))
	for _, k := range slices.SortedFunc(maps.Keys(destinations), DestinationKey.Compare) {
		byServer[k.Server] = append(byServer[k.Server], k)
	}
	for _, k := range slices.SortedFunc(maps.Keys(servers), CompareServers) {
		fmt.Fprintln(out, SaveServer(k, servers[k]))
		for _, d := range byServer[k] {
			fmt.Fprintln(out, SaveDestination(d, destinations[d]))
		}
	}
	return out.Flush()
}

// SaveServer prints one server, as "-A -t 10.96.0.1:443 -s rr".
func SaveServer(k ServerKey, s Server) string {
	var b strings.Builder
	b.WriteString("-A " + saveKey(k) + " -s " + s.Scheduler)
	if s.Flags&FlagPersistent != 0 {
		b.WriteString(" -p " + strconv.FormatUint(uint64(s.Timeout), 10))
		if s.HostBits != 0 {
			b.WriteString(" -M " + saveMask(k, s))
		}
		if s.Engine != "" {
			b.WriteString(" --pe " + s.Engine)
		}
	}
	if s.Flags&FlagOnePacket != 0 {
		b.WriteString(" -o")
	}
	if flags := saveFlags(s); flags != "" {
		b.WriteString(" -b " + flags)
	}
	return b.String()
}

// SaveDestination prints one destination, as
// "-a -t 10.96.0.1:443 -r 10.0.0.1:6443 -m -w 1".
func SaveDestination(k DestinationKey, d Destination) string {
	text := fmt.Sprintf("-a %s -r %s %s -w %d", saveKey(k.Server), netip.AddrPortFrom(k.Addr, k.Port), saveForward(d), d.Weight)
	if d.Forward == ForwardTunnel {
		text += " --tun-type " + saveTunnel(d)
	}
	if d.Upper != 0 {
		text += fmt.Sprintf(" -x %d", d.Upper)
	}
	if d.Lower != 0 {
		text += fmt.Sprintf(" -y %d", d.Lower)
	}
	return text
}

func saveKey(k ServerKey) string {
	option := "--" + k.Protocol.String() + "-service"
	switch k.Protocol {
	case ProtocolTCP:
		option = "-t"
	case ProtocolUDP:
		option = "-u"
	}
	return option + " " + netip.AddrPortFrom(k.Addr, k.Port).String()
}

// saveFlags names the scheduler flags: sh and mh have words for the first two,
// everything else is numbered.
func saveFlags(s Server) string {
	words := [...]string{"flag-1", "flag-2", "flag-3"}
	if s.Scheduler == "sh" || s.Scheduler == "mh" {
		words[0], words[1] = s.Scheduler+"-fallback", s.Scheduler+"-port"
	}
	var names []string
	for i, bit := range []uint32{FlagSched1, FlagSched2, FlagSched3} {
		if s.Flags&bit != 0 {
			names = append(names, words[i])
		}
	}
	return strings.Join(names, ",")
}

func saveMask(k ServerKey, s Server) string {
	if !k.Addr.Is4() {
		return strconv.Itoa(128 - int(s.HostBits))
	}
	mask := bits.ReverseBytes32(^uint32(0) << s.HostBits)
	return netip.AddrFrom4([4]byte{byte(mask), byte(mask >> 8), byte(mask >> 16), byte(mask >> 24)}).String()
}

// saveTunnel prints a kind of tunnel with what belongs to it.
func saveTunnel(d Destination) string {
	if d.Tunnel == TunnelIPIP {
		return "ipip"
	}
	checksums := [...]string{"--tun-nocsum", "--tun-csum", "--tun-remcsum"}[min(d.TunnelFlags, 2)]
	if d.Tunnel == TunnelGRE {
		return "gre " + checksums
	}
	return fmt.Sprintf("gue --tun-port %d %s", d.TunnelPort, checksums)
}

func saveForward(d Destination) string {
	switch d.Forward {
	case ForwardMasq:
		return "-m"
	case ForwardTunnel:
		return "-i"
	default:
		return "-g"
	}
}
