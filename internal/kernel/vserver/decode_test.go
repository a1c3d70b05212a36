package vserver_test

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

// body strips the generic netlink header, as the Handle does before it decodes.
func body(row []byte) []byte { return row[4:] }

func TestDecodeServerRejectsIncompleteRows(t *testing.T) {
	key := serverKey("10.96.0.1:80", vserver.ProtocolTCP)
	whole := body(serverRow(key, vserver.Server{Scheduler: "rr"}, vserver.Traffic{}))
	if _, _, mine, err := vserver.DecodeServer(whole); err != nil || !mine {
		t.Fatalf("a whole row: mine %t, %v", mine, err)
	}
	addr := addrAttr(3, key.Addr)
	tests := map[string][]byte{
		"nothing":                    nil,
		"a destination":              nestAttr(2, u16Attr(1, 2)),
		"no family":                  nestAttr(1, u16Attr(2, 6), addr, portAttr(4, 80), u32Attr(7, 0), u32Attr(8, 0), u32Attr(9, 0)),
		"an unknown family":          nestAttr(1, u16Attr(1, 7), u16Attr(2, 6), addr, portAttr(4, 80), u32Attr(7, 0), u32Attr(8, 0), u32Attr(9, 0)),
		"a short address":            nestAttr(1, u16Attr(1, 2), u16Attr(2, 6), attr(3, []byte{10, 0}), portAttr(4, 80), u32Attr(7, 0), u32Attr(8, 0), u32Attr(9, 0)),
		"no port":                    nestAttr(1, u16Attr(1, 2), u16Attr(2, 6), addr, u32Attr(7, 0), u32Attr(8, 0), u32Attr(9, 0)),
		"no flags":                   nestAttr(1, u16Attr(1, 2), u16Attr(2, 6), addr, portAttr(4, 80), u32Attr(8, 0), u32Attr(9, 0)),
		"an attribute that overruns": {0xff, 0, 1, 0},
		"an attribute of length 0":   {0, 0, 1, 0, 1, 2, 3, 4},
	}
	for name, b := range tests {
		t.Run(name, func(t *testing.T) {
			if k, s, mine, err := vserver.DecodeServer(b); err == nil {
				t.Errorf("got %s %+v mine %t, want an error", k, s, mine)
			}
		})
	}
}

func TestDecodeDestinationOfOldKernels(t *testing.T) {
	rest := []byte{}
	for kind := uint16(3); kind <= 6; kind++ {
		rest = append(rest, u32Attr(kind, 0)...)
	}
	tests := []struct {
		name, server, addr, want string
	}{
		{"IPv4", "10.96.0.1:80", "10.0.0.1", "10.0.0.1"},
		{"IPv6", "[fd00::1]:80", "fd01::1", "fd01::1"},
		{"IPv6 with zeros like IPv4", "[fd00::1]:80", "a00:1::", "a00:1::"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			// Linux before 3.18 does not say the family: it is the server's.
			row := nestAttr(2, addrAttr(1, netip.MustParseAddr(tt.addr)), portAttr(2, 8080), rest)
			k, _, err := vserver.DecodeDestination(serverKey(tt.server, vserver.ProtocolTCP), row)
			if err != nil || k.Addr.String() != tt.want || k.Port != 8080 {
				t.Errorf("got %s, %v; want address %s", k, err, tt.want)
			}
		})
	}
}

func TestDecodeDestinationSaturatesWeight(t *testing.T) {
	row := nestAttr(2, addrAttr(1, netip.MustParseAddr("10.0.0.1")), portAttr(2, 80), u16Attr(11, 2),
		u32Attr(3, 0), u32Attr(4, 70000), u32Attr(5, 0), u32Attr(6, 0))
	_, d, err := vserver.DecodeDestination(serverKey("10.96.0.1:80", vserver.ProtocolTCP), row)
	if err != nil || d.Weight != 65535 {
		t.Errorf("weight %d, %v; want 65535", d.Weight, err)
	}
}

func TestVerdicts(t *testing.T) {
	tests := []struct {
		errno syscall.Errno
		text  string
		want  error
	}{
		{syscall.EEXIST, "", vserver.ErrExist},
		{syscall.ENOENT, "", vserver.ErrNotExist},
		{syscall.ESRCH, "", vserver.ErrNotExist},
		{syscall.EBUSY, "", vserver.ErrBusy},
		{syscall.EAFNOSUPPORT, "", vserver.ErrUnsupported},
		{syscall.EOPNOTSUPP, "with a text", vserver.ErrUnsupported},
		{syscall.EINVAL, "with a text", syscall.EINVAL},
		{syscall.EPERM, "", syscall.EPERM},
	}
	for _, tt := range tests {
		t.Run(tt.errno.Error(), func(t *testing.T) {
			body := binary.NativeEndian.AppendUint32(nil, uint32(-int32(tt.errno)))
			body = append(body, make([]byte, 16)...)
			flags := uint16(0x100)
			if tt.text != "" {
				flags |= 0x200
				body = append(body, cAttr(1, tt.text)...)
			}
			verdict, err := vserver.ExtAck(datagram(2, flags, 1, 1, body))
			if err != nil || !errors.Is(verdict, tt.want) || !strings.Contains(verdict.Error(), tt.text) {
				t.Errorf("verdict %v, %v; want %v and %q", verdict, err, tt.want, tt.text)
			}
		})
	}
}

// FuzzAnswer: with any contents of a datagram, reading it ends and does not panic.
func FuzzAnswer(f *testing.F) {
	key := serverKey("10.96.0.1:80", vserver.ProtocolTCP)
	f.Add(datagram(0x1d, 2, 1, 1, serverRow(key, vserver.Server{Scheduler: "rr"}, vserver.Traffic{})))
	f.Add(datagram(0x1d, 2, 1, 1, append([]byte{1, 1, 0, 0}, destinationRow(destinationKey(key, "10.0.0.1:80"), vserver.Destination{Weight: 1}, vserver.Connections{}, vserver.Traffic{})...)))
	f.Add(datagram(2, 0x300, 1, 1, append(make([]byte, 20), cAttr(1, "text")...)))
	f.Add(datagram(3, 0x10, 1, 1, make([]byte, 4)))
	f.Add([]byte{0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if n := vserver.Walk(b); n > len(b)/16+1 {
			t.Errorf("%d messages in %d bytes", n, len(b))
		}
	})
}
