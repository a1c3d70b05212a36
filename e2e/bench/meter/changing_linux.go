package meter

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Tables of the kernel, as changes of them are told apart.
const (
	TableIPVS      = "ipvs"
	TableSets      = "sets"
	TableLinks     = "links"
	TableAddresses = "addresses"
	TableRoutes    = "routes" // and what else there is in rtnetlink
	TableRules     = "rules"  // of nftables
	TableFlows     = "flows"  // of connection tracking
)

// changing is the table that a message to the kernel wants to change, nothing if it only asks. Flags do not tell: those of a dump are, in other
// messages, those for replacing what exists.
func changing(family uint16, message []byte) string {
	kind := binary.NativeEndian.Uint16(message[4:])
	switch family {
	case unix.NETLINK_ROUTE:
		return routeTable(kind)
	case unix.NETLINK_NETFILTER:
		return netfilterTable(kind>>8, kind&0xff)
	case unix.NETLINK_GENERIC:
		if kind > unix.GENL_ID_CTRL && len(message) > unix.NLMSG_HDRLEN && !ipvsReads[message[unix.NLMSG_HDRLEN]] {
			return TableIPVS
		}
	}
	return ""
}

// routeTable knows the types of rtnetlink, of which each four are one object's: new, del, get, set (include/uapi/linux/rtnetlink.h).
func routeTable(kind uint16) string {
	const get = 2
	switch {
	case kind < unix.RTM_BASE || kind&3 == get:
		return ""
	case kind <= unix.RTM_SETLINK:
		return TableLinks
	case kind <= unix.RTM_GETADDR:
		return TableAddresses
	}
	return TableRoutes
}

// ipvsReads are the commands of IPVS that read (enum of include/uapi/linux/ip_vs.h): GET_SERVICE, GET_DEST, GET_DAEMON, GET_CONFIG, GET_INFO.
// Other families of generic netlink are hardly ever used on a node, and their numbers are not fixed, so every family is taken for IPVS.
var ipvsReads = map[byte]bool{4: true, 8: true, 11: true, 13: true, 15: true}

// netfilterTable knows the subsystems that carry Services: sets (enum ipset_cmd of linux/netfilter/ipset/ip_set.h), nftables (enum
// nf_tables_msg_types of linux/netfilter/nf_tables.h) and connection tracking (enum cntl_msg_types of linux/netfilter/nfnetlink_conntrack.h).
func netfilterTable(subsystem, command uint16) string {
	switch {
	case subsystem == unix.NFNL_SUBSYS_IPSET && (command >= 2 && command <= 6 || command == 9 || command == 10): // create, destroy, flush, rename, swap; add, del
		return TableSets
	case subsystem == unix.NFNL_SUBSYS_NFTABLES && !nftablesReads[command]:
		return TableRules
	case subsystem == unix.NFNL_SUBSYS_CTNETLINK && (command == 0 || command == 2): // new, delete
		return TableFlows
	}
	return ""
}

var nftablesReads = map[uint16]bool{
	unix.NFT_MSG_GETTABLE: true, unix.NFT_MSG_GETCHAIN: true, unix.NFT_MSG_GETRULE: true, unix.NFT_MSG_GETSET: true, unix.NFT_MSG_GETSETELEM: true,
	unix.NFT_MSG_GETGEN: true, unix.NFT_MSG_GETOBJ: true, unix.NFT_MSG_GETOBJ_RESET: true, unix.NFT_MSG_GETFLOWTABLE: true, unix.NFT_MSG_GETRULE_RESET: true,
}
