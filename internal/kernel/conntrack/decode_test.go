package conntrack_test

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/conntrack"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/conntrack/conntracktest"
)

// row is a flow as a dump tells it, less the netlink header.
func row(f conntracktest.Flow, id uint32) []byte {
	return conntracktest.AppendID(conntracktest.AppendFlow([]byte{2, 0, 0, 0}, f), id)
}

func TestDecodeFlow(t *testing.T) {
	f := from(dns6, "[fd00:10:244::1]:4001", "[fd00:10:244:1::1]:5353")
	f.Zone = 7
	k, answers, deletion, err := conntrack.DecodeFlow(row(f, 99))
	if err != nil || k != dns6 || answers != f.Answers {
		t.Fatalf("got %s answered by %s, %v", k, answers, err)
	}
	named, id, err := conntracktest.ParseFlow(deletion[20:])
	f.Answers, f.Towards = netip.AddrPort{}, netip.AddrPort{}
	if err != nil || named != f || id != 99 {
		t.Errorf("the deletion names %s number %d, %v; want %s number 99", named, id, err, f)
	}
}

// TestDecodeOddFlows: an entry that is not a flow with ports matches no key, and without its key it
// is not deleted.
func TestDecodeOddFlows(t *testing.T) {
	whole := row(from(dns, "10.244.0.1:4001", "10.244.1.1:5353"), 99)
	short := append([]byte{2, 0, 0, 0}, whole[4:]...)
	binary.NativeEndian.PutUint16(short[4:], 400)
	tests := map[string]struct {
		body   []byte
		broken bool
	}{
		"nothing":                      {nil, true},
		"no attributes":                {[]byte{2, 0, 0, 0}, false},
		"no tuple":                     {conntracktest.AppendID([]byte{2, 0, 0, 0}, 99), false},
		"an empty tuple":               {append([]byte{2, 0, 0, 0}, 4, 0, 1, 0x80), false},
		"an empty tuple with a number": {conntracktest.AppendID(append([]byte{2, 0, 0, 0}, 4, 0, 1, 0x80), 99), false},
		"an attribute that overruns":   {short, true},
		"an attribute of no length":    {append([]byte{2, 0, 0, 0}, 0, 0, 1, 0), true},
		"an attribute that is cut":     {append([]byte{2, 0, 0, 0}, 4, 0), true},
		"no number of the entry":       {whole[:len(whole)-8], false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			k, _, deletion, err := conntrack.DecodeFlow(tt.body)
			if (err != nil) != tt.broken || deletion != nil {
				t.Errorf("got %s, deletion % x, %v", k, deletion, err)
			}
		})
	}
}

func TestStale(t *testing.T) {
	who := func(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }
	near := func(from ...string) conntrack.Order {
		o := keep(dns, "10.244.1.1:53")
		o.Near = []netip.AddrPort{who("10.244.1.2:53")}
		for _, f := range from {
			o.From = append(o.From, netip.MustParsePrefix(f))
		}
		return o
	}
	tests := []struct {
		name    string
		order   conntrack.Order
		answers string
		want    bool
	}{
		{"near, of any client", near(), "10.244.1.2:53", false},
		{"near, of this client", near("192.168.0.1/32", "10.244.0.0/24"), "10.244.1.2:53", false},
		{"near, of others", near("10.244.7.0/24"), "10.244.1.2:53", true},
		{"kept beside near", near("10.244.7.0/24"), "10.244.1.1:53", false},
		{"kept", keep(dns, "10.244.1.1:53", "10.244.1.2:53"), "10.244.1.2:53", false},
		{"not kept", keep(dns, "10.244.1.1:53"), "10.244.1.2:53", true},
		{"another port", keep(dns, "10.244.1.1:53"), "10.244.1.1:54", true},
		{"never rewritten", keep(dns, "10.244.1.1:53"), "10.96.0.10:53", true},
		{"the key is an endpoint", keep(dns, "10.96.0.10:53"), "10.96.0.10:53", false},
		{"never rewritten, and should be", conntrack.Order{Key: dns, Untranslated: true}, "10.96.0.10:53", true},
		{"rewritten, whichever peer answers", conntrack.Order{Key: dns, Untranslated: true}, "10.244.1.1:53", false},
		{"unserved", unserved(dns), "10.244.1.1:53", true},
		{"unserved and never rewritten", unserved(dns), "10.96.0.10:53", false},
		{"unserved, the address answers from another port", unserved(dns), "10.96.0.10:5353", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.order.Stale(who("10.244.0.1:4001").Addr(), who(tt.answers)); got != tt.want {
				t.Errorf("Stale(%s) = %t, want %t", tt.answers, got, tt.want)
			}
		})
	}
}

func TestKeyText(t *testing.T) {
	for want, k := range map[string]conntrack.Key{
		"10.96.0.10:53/udp":    dns,
		"[fd00:96::a]:53/udp":  dns6,
		"10.96.0.10:53/tcp":    {Addr: dns.Addr, Port: 53, Protocol: conntrack.ProtocolTCP},
		"10.96.0.10:53/sctp":   {Addr: dns.Addr, Port: 53, Protocol: conntrack.ProtocolSCTP},
		"10.96.0.10:0/1":       {Addr: dns.Addr, Protocol: 1},
		"invalid AddrPort/udp": {Protocol: conntrack.ProtocolUDP},
	} {
		if got := k.String(); got != want {
			t.Errorf("String() = %q, want %q", got, want)
		}
	}
}

// FuzzDecode: no datagram makes the decoder panic or go on for ever.
func FuzzDecode(f *testing.F) {
	whole := row(from(dns, "10.244.0.1:4001", "10.244.1.1:5353"), 99)
	message := append([]byte{byte(16 + len(whole)), 0, 0, 0, 0, 1, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0}, whole...)
	f.Add(message)
	f.Add(append(message, message...))
	f.Add(message[:len(message)-3])
	f.Add([]byte{20, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, err := conntrack.Digest(b); err == nil && n > len(b)/16 {
			t.Errorf("%d messages in %d bytes", n, len(b))
		}
		if _, _, deletion, _ := conntrack.DecodeFlow(b); deletion != nil {
			if attrs, err := conntracktest.Attrs(deletion[20:]); err != nil || len(attrs[1]) == 0 || len(attrs[12]) == 0 {
				t.Errorf("a deletion that does not name one flow: % x, %v", deletion, err)
			}
		}
	})
}
