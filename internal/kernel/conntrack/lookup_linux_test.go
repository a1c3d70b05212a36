package conntrack_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/conntrack"
)

// The client of a flow is found by the two ends of its answers, also if both were rewritten.
func TestOrigin(t *testing.T) {
	h, k := kernel(t, conntrack.Options{})
	masqueraded := from(dns, "10.244.0.2:4001", "10.244.1.1:5353")
	masqueraded.Towards = netip.MustParseAddrPort("192.0.2.1:61000")
	dns6 := key("[fd00:96::a]:53")
	world{h, k}.add(t, from(dns, "10.244.0.1:4001", "10.244.1.1:5353"), masqueraded, from(dns6, "[fd00:1::1]:4001", "[fd00:1::2]:5353"))
	for _, tt := range []struct {
		from, to, client string
		dialled          conntrack.Key
		err              error
	}{
		{from: "10.244.1.1:5353", to: "10.244.0.1:4001", client: "10.244.0.1:4001", dialled: dns},
		{from: "10.244.1.1:5353", to: "192.0.2.1:61000", client: "10.244.0.2:4001", dialled: dns},
		{from: "[fd00:1::2]:5353", to: "[fd00:1::1]:4001", client: "[fd00:1::1]:4001", dialled: dns6},
		{from: "10.244.1.1:5353", to: "10.244.0.2:4001", err: conntrack.ErrNotExist},
		{from: "10.244.1.2:5353", to: "10.244.0.1:4001", err: conntrack.ErrNotExist},
	} {
		client, dialled, err := h.Origin(t.Context(), conntrack.ProtocolUDP, netip.MustParseAddrPort(tt.from), netip.MustParseAddrPort(tt.to))
		if !errors.Is(err, tt.err) || err == nil && (client.String() != tt.client || dialled != tt.dialled) {
			t.Errorf("%s to %s: %s dialled %s, %v; want %s, %s, %v", tt.from, tt.to, client, dialled, err, tt.client, tt.dialled, tt.err)
		}
		if tt.err != nil {
			continue
		}
		from, to, err := h.Answers(t.Context(), client, dialled)
		if err != nil || from.String() != tt.from || to.String() != tt.to {
			t.Errorf("%s to %s is answered from %s to %s, %v; want %s, %s", client, dialled, from, to, err, tt.from, tt.to)
		}
	}
	if _, _, err := h.Answers(t.Context(), netip.MustParseAddrPort("10.244.0.9:4001"), dns); !errors.Is(err, conntrack.ErrNotExist) {
		t.Errorf("Answers: %v, want %v", err, conntrack.ErrNotExist)
	}
}
