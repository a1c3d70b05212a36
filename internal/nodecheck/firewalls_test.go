package nodecheck

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/diagnosis"
	"github.com/kube-ipvs/kube-ipvs/internal/firewall"
	"github.com/kube-ipvs/kube-ipvs/internal/firewall/firewalltest"
)

func TestFirefirewallCheck(t *testing.T) {
	web := func(context.Context) ([]firewall.Frontend, error) {
		return []firewall.Frontend{{Service: "default/web", Kind: firewall.ClusterIP, Addr: netip.MustParseAddr("10.96.0.10"), Port: 80, Protocol: 6}}, nil
	}
	for _, tt := range []struct {
		name        string
		k           *firewalltest.Kernel
		state       diagnosis.State
		detail, fix string
	}{
		{"none", &firewalltest.Kernel{}, diagnosis.OK, "none drops packets to the 1 addresses and ports of Services", ""},
		{"policy of drop", &firewalltest.Kernel{Drop: true}, diagnosis.Warn, firewalltest.PolicyDrops, firewalltest.PolicyFix},
		{"a rule of iptables", &firewalltest.Kernel{Input: "-A INPUT -i eth0 -j ACCEPT\n-A INPUT -d 10.96.0.0/12 -j DROP\n"}, diagnosis.OK,
			"1 addresses and ports checked; unknown for table iptables-nft filter, chain INPUT", ""},
		{"unread", &firewalltest.Kernel{Failed: errors.New("busy")}, diagnosis.Warn, "busy", "run as root, in the network namespace of the host"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := diagnosis.Run(t.Context(), []diagnosis.Check{firewallCheck(config.Config{ModeChoice: config.ModeChoice{Mode: config.ModeIPVS}}, tt.k.Reader().Read, web)})[0]
			if diff := cmp.Diff([]string{string(tt.state), tt.detail, tt.fix}, []string{string(v.State), v.Detail, v.Fix}); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}
