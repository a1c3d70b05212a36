// Package capture watches packets of a few addresses and ports on all links of a network
// namespace, as they pass, and changes nothing.
//
// It knows headers, not Services: a caller names endpoints and gets packets that come
// from or go to one of them, and the messages of ICMP that refuse such packets.
//
//	[]netip.AddrPort ──► filter (classic BPF) ──► packet socket ──► kernel
//	                                                  │ 256 bytes of each packet that passes
//	Packet ◄── IPv4, IPv6, TCP, UDP, SCTP, ICMP ◄─────┘
//
// The filter runs in the kernel, so other traffic costs a few instructions a packet and no copy.
// Where a packet is seen: coming in before the rules of iptables, going out after them (packet(7)).
// The filter cannot match fragments other than the first, or IPv6 packets with extension headers,
// so these are not seen.
//
// The law of the package: it is bounded. The kernel keeps a socket's worth of packets and
// counts those for which there was no room; Stats tells.
package capture
