package config_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
)

func TestCheck(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*config.Settings)
		want   []string // one for each mistake; none: good
	}{
		{"defaults", func(*config.Settings) {}, nil},
		{"mode of a kube-proxy that is not here", func(s *config.Settings) { s.Proxy.Mode = "nftables" }, []string{`--proxy-mode: "nftables" is not one of ipvs, iptables, auto: only kube-proxy has this mode; use ipvs`}},
		{"mode of Windows", func(s *config.Settings) { s.Proxy.Mode = "kernelspace" }, []string{`--proxy-mode: "kernelspace" is not one of ipvs, iptables, auto`}},
		{"without IPVS", func(s *config.Settings) { s.Own.OnMissingIPVS = "panic" }, []string{`--on-missing-ipvs: "panic" is not one of iptables, fail`}},
		{"scheduler", func(s *config.Settings) { s.Proxy.IPVS.Scheduler = "best" }, []string{`--ipvs-scheduler: unknown scheduler "best": use one of rr wrr`}},
		{"blank name", func(s *config.Settings) { s.Proxy.HostnameOverride = "  " }, []string{"--hostname-override: is blank"}},
		{"impossible name", func(s *config.Settings) { s.Proxy.HostnameOverride = "a_b" }, []string{`"a_b" cannot be the name of a Node`}},
		{"bit", func(s *config.Settings) { s.Proxy.IPTables.MasqueradeBit = new(int32(32)) }, []string{"32 is not a bit"}},
		{"cluster range", func(s *config.Settings) { s.Proxy.ClusterCIDR = "10.0.0.0" }, []string{`--cluster-cidr: "10.0.0.0" is not a CIDR`}},
		{"two ranges of a family", func(s *config.Settings) { s.Proxy.ClusterCIDR = "10.0.0.0/8,11.0.0.0/8" }, []string{"more than one range of a family"}},
		{"exclusion", func(s *config.Settings) { s.Proxy.IPVS.ExcludeCIDRs = []string{"x"} }, []string{`--ipvs-exclude-cidrs: "x" is not a CIDR`}},
		{"local mode", func(s *config.Settings) { s.Proxy.DetectLocalMode = "Guess" }, []string{`--detect-local-mode: "Guess" is not one of`}},
		{"bridge without a name", func(s *config.Settings) { s.Proxy.DetectLocalMode = "BridgeInterface" }, []string{"--pod-bridge-interface: is required"}},
		{"prefix too long", func(s *config.Settings) {
			s.Proxy.DetectLocalMode, s.Proxy.DetectLocal.InterfaceNamePrefix = "InterfaceNamePrefix", strings.Repeat("x", 16)
		}, []string{"cannot be an interface name or its prefix"}},
		{"backend", func(s *config.Settings) { s.Own.IPTablesBackend = "ebpf" }, []string{`--iptables-backend: "ebpf"`}},
		{"level and format", func(s *config.Settings) { s.Own.LogLevel, s.Proxy.Logging.Format = "loud", "xml" }, []string{`--log-level: "loud"`, `--logging-format: "xml"`}},
		{"run dir", func(s *config.Settings) { s.Own.RunDir = "run" }, []string{`--run-dir: "run" is not an absolute path`}},
		{"sync period", func(s *config.Settings) { s.Proxy.IPVS.SyncPeriod.Duration = 1 }, []string{"--ipvs-sync-period: 1ns is too short"}},
		{"sync period of iptables mode", func(s *config.Settings) { s.Proxy.IPTables.SyncPeriod.Duration = 1 }, []string{"--iptables-sync-period: 1ns is too short"}},
		{"exclusion of a mapped range", func(s *config.Settings) { s.Proxy.IPVS.ExcludeCIDRs = []string{"::ffff:10.0.0.0/104"} }, []string{`--ipvs-exclude-cidrs: "::ffff:10.0.0.0/104" is not a CIDR`}},
		{"addresses of NodePorts", func(s *config.Settings) {
			s.Proxy.NodePortAddresses = []string{"primary", "Primary", " 10.0.0.1", "", "10.0.0.0/33"}
		}, []string{`--nodeport-addresses: "Primary" is not primary, localhost, all or a CIDR`, `"10.0.0.1" is not`, `"" is not`, `"10.0.0.0/33" is not`}},
		{"external IPs", func(s *config.Settings) { s.Own.ExternalIPAllowedCIDRs = []string{"all"} }, []string{`--external-ip-allowed-cidrs: "all" is not a CIDR`}},
		{"gates", func(s *config.Settings) {
			s.FeatureGates = []string{"KubeProxyIPVS=perhaps", "AllowServiceExternalIPs", "Fast=maybe", "=true"}
		}, []string{
			`--feature-gates: "perhaps" is not true or false, in "KubeProxyIPVS=perhaps"`, `"" is not true or false, in "AllowServiceExternalIPs"`,
			`"maybe" is not true or false, in "Fast=maybe"`, `"=true" has no gate name`,
		}},
		{"addresses of the node", func(s *config.Settings) {
			s.NodeAddresses = []string{"worker-1", "fe80::1%eth0", "::", "224.0.0.1", "192.0.2.1/32"}
		}, []string{`--node-address: "worker-1" is not an address of a node`, `"fe80::1%eth0"`, `"::"`, `"224.0.0.1"`, `"192.0.2.1/32"`}},
		{"everything is reported together", func(s *config.Settings) {
			s.Proxy.Mode, s.Proxy.IPVS.Scheduler, s.Proxy.IPTables.MasqueradeBit, s.Own.ServiceNodePortRange = "x", "y", new(int32(-1)), "z"
		}, []string{"--proxy-mode", "--service-node-port-range", "--ipvs-scheduler", "--iptables-masquerade-bit"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := config.Defaults()
			tt.change(&s)
			_, err := s.Check("Node-A")
			var lines []string
			if err != nil {
				lines = strings.Split(err.Error(), "\n")
			}
			if len(lines) != len(tt.want) {
				t.Fatalf("mistakes %q, want %d", lines, len(tt.want))
			}
			for i, want := range tt.want {
				if !strings.Contains(lines[i], want) {
					t.Errorf("mistake %q, want %q", lines[i], want)
				}
			}
		})
	}
}

func TestMeaning(t *testing.T) {
	s := config.Defaults()
	s.Proxy.ClusterCIDR = "10.244.3.0/16, fd00:10:244::/56"
	s.Proxy.HostnameOverride = " Worker-1 "
	s.Proxy.IPVS.Scheduler = "wlc"
	c, err := s.Check("ignored")
	if err != nil {
		t.Fatal(err)
	}
	want := []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:10:244::/56")}
	if diff := cmp.Diff(want, c.DetectLocal.ClusterCIDRs, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("ranges (-want +got):\n%s", diff)
	}
	if c.NodeName != "worker-1" || c.Scheduler.Name() != "wlc" || c.IPTables != "" || c.Socket() != "/run/kube-ipvs/agent.sock" {
		t.Errorf("config %+v", c)
	}
}

func TestHostNameIsUsedWhereNoneIsGiven(t *testing.T) {
	c, err := config.Defaults().Check(" Node-A\n")
	if err != nil || c.NodeName != "node-a" {
		t.Errorf("name %q, error %v", c.NodeName, err)
	}
}
