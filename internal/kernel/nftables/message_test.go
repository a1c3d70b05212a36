package nftables_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
)

func TestTablesOfADatagram(t *testing.T) {
	var b []byte
	for number, name := range map[uint8]string{1: "inet", 2: "ip", 3: "arp", 5: "netdev", 7: "bridge", 10: "ip6", 12: "family-12"} {
		b = nftables.AppendTable(b[:0], 1, number, "x")
		n, got := nftables.Walk(b)
		if diff := cmp.Diff([]nftables.Key{{Family: name, Name: "x"}}, got); diff != "" || n != 1 {
			t.Errorf("family %d: %d messages (-want +got):\n%s", number, n, diff)
		}
	}
	if n, got := nftables.Walk(nftables.AppendTable(nil, 1, 2, "")); n != 1 || len(got) != 0 {
		t.Errorf("a table without a name: %d messages, %v", n, got)
	}
}

func TestAFamilyWithoutANameIsNotDeleted(t *testing.T) {
	_, got := nftables.Walk(nftables.AppendTable(nil, 1, 12, "x"))
	if len(got) != 1 || got[0].Check() == nil || !strings.Contains(got[0].Check().Error(), "arp, bridge, inet, ip, ip6, netdev") {
		t.Errorf("%v: %v, want the names of families", got, got[0].Check())
	}
}

// FuzzTables: with any contents of a datagram, reading it ends and does not panic, and
// no table comes out without a name.
func FuzzTables(f *testing.F) {
	f.Add(nftables.AppendTable(nftables.AppendTable(nil, 1, 2, "kube-proxy"), 1, 10, "filter"))
	f.Add([]byte{20, 0, 0, 0, 3, 0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{36, 0, 0, 0, 2, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		n, tables := nftables.Walk(b)
		if n > len(b)/16+1 {
			t.Errorf("%d messages in %d bytes", n, len(b))
		}
		for _, k := range tables {
			if k.Name == "" || strings.Contains(k.Name, "\x00") {
				t.Errorf("table %q", k)
			}
		}
	})
}

// FuzzRules: with any contents of a message about a rule or a set, reading it ends and does not panic.
func FuzzRules(f *testing.F) {
	f.Add([]byte{8, 0, 4, 0, 1, 2, 3, 4})
	f.Add([]byte{36, 0, 4, 128, 32, 0, 1, 128, 8, 0, 1, 0, 'c', 'm', 'p', 0, 20, 0, 2, 128, 8, 0, 1, 0, 0, 0, 0, 1, 8, 0, 2, 0, 0, 0, 0, 0})
	f.Add([]byte{12, 0, 3, 128, 8, 0, 1, 128, 4, 0, 1, 128})
	f.Add([]byte{3, 0, 4, 0})
	f.Fuzz(func(_ *testing.T, b []byte) { _, _, _ = nftables.DecodeRule(b) })
}
