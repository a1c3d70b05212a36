package sysctl

// The keys by which IPVS schedules a packet from the middle of a connection that it does not know
// (tcp_conn_schedule in net/netfilter/ipvs/ip_vs_proto_tcp.c, sctp_conn_schedule in
// ip_vs_proto_sctp.c). They apply to every virtual server of the network namespace.
const (
	keySloppyTCP  = "net.ipv4.vs.sloppy_tcp"
	keySloppySCTP = "net.ipv4.vs.sloppy_sctp"
)

// PickupKeys returns the keys of PickupSysctls with both protocols.
func PickupKeys() []string { return []string{keySloppyTCP, keySloppySCTP} }

// PickupSysctls returns the sysctls by which IPVS picks up connections of a protocol that another
// node began.
func PickupSysctls(tcp, sctp bool) []Sysctl {
	var all []Sysctl
	for _, p := range []struct {
		wanted    bool
		key, name string
	}{{tcp, keySloppyTCP, "TCP"}, {sctp, keySloppySCTP, "SCTP"}} {
		if p.wanted {
			all = append(all, Sysctl{Key: p.key, Value: "1", Policy: Wanted,
				Why: p.name + " connections that another node began continue here (mh with forward dr or tunnel)"})
		}
	}
	return all
}
