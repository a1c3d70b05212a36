package meter

import (
	"encoding/binary"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/cell"
)

func TestChanging(t *testing.T) {
	tests := []struct {
		name         string
		family, kind uint16
		command      byte
		want         string
	}{
		{"an address is added", unix.NETLINK_ROUTE, unix.RTM_NEWADDR, 0, TableAddresses},
		{"a route is deleted", unix.NETLINK_ROUTE, unix.RTM_DELROUTE, 0, TableRoutes},
		{"a link is set", unix.NETLINK_ROUTE, unix.RTM_SETLINK, 0, TableLinks},
		{"addresses are listed", unix.NETLINK_ROUTE, unix.RTM_GETADDR, 0, ""},
		{"the end of a list", unix.NETLINK_ROUTE, unix.NLMSG_DONE, 0, ""},
		{"a destination of IPVS is added", unix.NETLINK_GENERIC, 0x21, 5, TableIPVS},
		{"destinations of IPVS are listed", unix.NETLINK_GENERIC, 0x21, 8, ""},
		{"a family is looked up", unix.NETLINK_GENERIC, unix.GENL_ID_CTRL, 3, ""},
		{"an entry of a set is added", unix.NETLINK_NETFILTER, unix.NFNL_SUBSYS_IPSET<<8 | 9, 0, TableSets},
		{"a set is listed", unix.NETLINK_NETFILTER, unix.NFNL_SUBSYS_IPSET<<8 | 7, 0, ""},
		{"a rule is added", unix.NETLINK_NETFILTER, unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWRULE, 0, TableRules},
		{"the generation is asked for", unix.NETLINK_NETFILTER, unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN, 0, ""},
		{"a batch begins", unix.NETLINK_NETFILTER, unix.NFNL_MSG_BATCH_BEGIN, 0, ""},
		{"a flow is deleted", unix.NETLINK_NETFILTER, unix.NFNL_SUBSYS_CTNETLINK<<8 | 2, 0, TableFlows},
		{"sockets are listed", unix.NETLINK_SOCK_DIAG, 20, 0, ""},
	}
	for _, tt := range tests {
		message := make([]byte, unix.NLMSG_HDRLEN+4)
		binary.NativeEndian.PutUint32(message, uint32(len(message)))
		binary.NativeEndian.PutUint16(message[4:], tt.kind)
		binary.NativeEndian.PutUint16(message[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP) // those of a dump are those of NLM_F_REPLACE and NLM_F_EXCL
		message[unix.NLMSG_HDRLEN] = tt.command
		if got := changing(tt.family, message); got != tt.want {
			t.Errorf("%s: changes %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestWritingTakesUntilTheLastAnswer: each answer that says how a change went is part of it, whatever comes later is not.
func TestWritingTakesUntilTheLastAnswer(t *testing.T) {
	tap := &Tap{traffic: map[string]cell.Volume{}, open: map[uint16]*exchange{}, writing: map[string]time.Duration{}}
	message := func(kind, flags uint16, command byte) []byte {
		m := make([]byte, unix.NLMSG_HDRLEN+4)
		binary.NativeEndian.PutUint32(m, uint32(len(m)))
		binary.NativeEndian.PutUint16(m[4:], kind)
		binary.NativeEndian.PutUint16(m[6:], flags)
		m[unix.NLMSG_HDRLEN] = command
		return m
	}
	request := func(command byte) []byte { return message(0x21, unix.NLM_F_REQUEST|unix.NLM_F_ACK, command) }
	answer := message(unix.NLMSG_ERROR, unix.NLM_F_CAPPED, 0)
	began := time.Unix(1000, 0)
	for _, d := range []struct {
		milliseconds int
		message      []byte
	}{
		{0, request(5)}, {3, answer}, {4, answer},
		{90, message(0x21, 0, 1)},                                                   // somebody is told something
		{100, request(8)}, {150, message(0x21, unix.NLM_F_MULTI, 5)}, {151, answer}, // a list
		{200, request(7)}, {210, answer},
	} {
		from := &unix.SockaddrLinklayer{Protocol: unix.NETLINK_GENERIC << 8}
		tap.take(from, began.Add(time.Duration(d.milliseconds)*time.Millisecond), d.message, len(d.message))
	}
	if v := tap.traffic["NETLINK_GENERIC"]; v.Messages != 3 || v.FromMessages != 6 {
		t.Errorf("%v messages to the kernel and %v from it, want 3 and 6", v.Messages, v.FromMessages)
	}
	if got := tap.Writing(); len(got) != 1 || got[TableIPVS] != 0.014 {
		t.Errorf("writing took %v, want 14 ms of IPVS", got)
	}
	if at := tap.Changed().Sub(began); at != 200*time.Millisecond {
		t.Errorf("the last change was after %s, want 200 ms", at)
	}
}
