package config_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
)

func TestFeatureGates(t *testing.T) {
	for _, tt := range []struct {
		name   string
		gates  []string
		allows bool
	}{
		{"external IPs are served unless something is said", nil, true},
		{"not served", []string{"AllowServiceExternalIPs=false"}, false},
		{"served", []string{"AllowServiceExternalIPs=true"}, true},
		{"blanks, and the other way to say false", []string{" AllowServiceExternalIPs = 0 "}, false},
		{"the last one counts", []string{"AllowServiceExternalIPs=false", "AllowServiceExternalIPs=true"}, true},
		{"others change nothing", []string{"KubeProxyIPVS=true", "AllAlpha=false", "PreferSameTrafficDistribution=true"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := config.Defaults()
			s.FeatureGates = tt.gates
			if got := meaning(t, s).AllowExternalIPs; got != tt.allows {
				t.Errorf("external IPs %t, want %t", got, tt.allows)
			}
		})
	}
}

func TestExternalIPRanges(t *testing.T) {
	s := config.Defaults()
	s.Own.ExternalIPAllowedCIDRs = []string{"192.0.2.77/24", "2001:db8::/64"}
	want := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/64")}
	if diff := cmp.Diff(want, meaning(t, s).ExternalIPCIDRs, byValue); diff != "" {
		t.Errorf("ranges (-want +got):\n%s", diff)
	}
}

func TestNodeAddresses(t *testing.T) {
	s := config.Defaults()
	s.NodeAddresses = []string{"192.0.2.10", " 2001:db8::10", "::ffff:192.0.2.11"}
	want := []netip.Addr{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("2001:db8::10"), netip.MustParseAddr("192.0.2.11")}
	if diff := cmp.Diff(want, meaning(t, s).NodeAddresses, byValue); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
}
