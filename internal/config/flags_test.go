package config_test

import (
	"testing"

	"github.com/spf13/pflag"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
)

// TestFlagsOfKubeProxy requires every flag of kube-proxy v1.37 with its default. An empty
// default that stands for another value is replaced by that value.
func TestFlagsOfKubeProxy(t *testing.T) {
	want := map[string]string{
		"config": "", "write-config-to": "", "cleanup": "false", "init-only": "false", "master": "", "hostname-override": "", "kubeconfig": "",
		"kube-api-content-type": "application/vnd.kubernetes.protobuf", "kube-api-qps": "5", "kube-api-burst": "10", "feature-gates": "[]",
		"bind-address": "0.0.0.0", "healthz-bind-address": "0.0.0.0:10256", "metrics-bind-address": "127.0.0.1:10249",
		"healthz-port": "10256", "metrics-port": "10249", "bind-address-hard-fail": "false", "profiling": "false", "show-hidden-metrics-for-version": "",
		"proxy-mode":                   "ipvs",  // kube-proxy's is iptables
		"iptables-localhost-nodeports": "false", // kube-proxy's is true
		"iptables-masquerade-bit":      "14", "masquerade-all": "false", "iptables-sync-period": "30s", "ipvs-sync-period": "30s",
		"iptables-min-sync-period": "0s", "ipvs-min-sync-period": "0s", // kube-proxy's are 1s
		"ipvs-scheduler": "", "ipvs-exclude-cidrs": "[]", "ipvs-strict-arp": "false", "ipvs-tcp-timeout": "0s", "ipvs-tcpfin-timeout": "0s", "ipvs-udp-timeout": "0s",
		"detect-local-mode": "ClusterCIDR", // the meaning of the empty one
		"cluster-cidr":      "", "pod-bridge-interface": "", "pod-interface-name-prefix": "", "nodeport-addresses": "[]", "oom-score-adj": "-999",
		"conntrack-max-per-core": "32768", "conntrack-min": "131072", "conntrack-tcp-timeout-established": "24h0m0s", "conntrack-tcp-timeout-close-wait": "1h0m0s",
		"conntrack-tcp-be-liberal": "false", "conntrack-udp-timeout": "0s", "conntrack-udp-timeout-stream": "0s", "config-sync-period": "15m0s",
		"v": "0", "vmodule": "", "logging-format": "text", "log-flush-frequency": "5s", "log-text-split-stream": "false", "log-text-info-buffer-size": "0",
		"log-json-split-stream": "false", "log-json-info-buffer-size": "0", "boot-id-file": "", "machine-id-file": "",

		"source-dir": "", "run-dir": "/run/kube-ipvs", "iptables-backend": "auto", "rules": "auto", "service-node-port-range": "30000-32767", "external-ip-allowed-cidrs": "[]",
		"drain": "30s", "on-missing-ipvs": "iptables", "log-level": "", "watch-nodes": "auto", "readyz-watch-bound": "2m0s", "healthz-watch-bound": "0s", "service-metrics": "500", "service-frontends": "4096", "service-source-ranges": "4096", "service-rows": "262144", "dns-services": "[]", "api-server-probe-period": "10s",
		"announce-table": "0", "announce-lead": "5s", "vip-binding": "address", "external-binding": "auto", "service-cidrs": "[]",
	}
	s := config.Defaults()
	fs := pflag.NewFlagSet("kube-ipvs", pflag.ContinueOnError)
	config.Bind(fs, &s)
	fs.VisitAll(func(f *pflag.Flag) {
		value, known := want[f.Name]
		if !known || value != f.DefValue {
			t.Errorf("--%s has the default %q, want %q (listed: %t)", f.Name, f.DefValue, value, known)
		}
		if f.Usage == "" || config.GroupOf(f) == "" {
			t.Errorf("--%s has no words for help", f.Name)
		}
		delete(want, f.Name)
	})
	for name := range want {
		t.Errorf("--%s is missing", name)
	}
}

// TestLogLevel: a level of our own wins over kube-proxy's verbosity, wherever either
// is said.
func TestLogLevel(t *testing.T) {
	for _, tt := range []struct {
		name, file string
		args       []string
		want       string
	}{
		{"nothing said", "", nil, "info"},
		{"little verbosity", "", []string{"-v=3"}, "info"},
		{"much", "", []string{"-v", "4"}, "debug"},
		{"long form", "", []string{"--v=10"}, "debug"},
		{"level beside it", "", []string{"-v=9", "--log-level=warn"}, "warn"},
		{"verbosity of the file", proxyHead + "logging: {verbosity: 5}\n", nil, "debug"},
		{"flag over the file's", proxyHead + "logging: {verbosity: 5}\n", []string{"-v=0"}, "info"},
		{"level of the file", ownHead + "logLevel: error\n", []string{"-v=5"}, "error"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := loaded(t, tt.file, tt.args...).Config.LogLevel; got != tt.want {
				t.Errorf("level %s, want %s", got, tt.want)
			}
		})
	}
	if err := pflagError("-v=loud"); err == nil {
		t.Error("a verbosity of words is taken")
	}
}

func pflagError(args ...string) error {
	s := config.Defaults()
	fs := pflag.NewFlagSet("kube-ipvs", pflag.ContinueOnError)
	config.Bind(fs, &s)
	return fs.Parse(args)
}

// TestListeners: forms of addresses, defaults by family, and the deprecated ports.
func TestListeners(t *testing.T) {
	for _, tt := range []struct {
		name, file       string
		args             []string
		healthz, metrics string
	}{
		{"defaults", "", nil, "0.0.0.0:10256", "127.0.0.1:10249"},
		{"empty in the file", proxyHead + "healthzBindAddress: ''\n", nil, "0.0.0.0:10256", "127.0.0.1:10249"},
		{"a file that binds IPv6", proxyHead + "bindAddress: '::'\n", nil, "[::]:10256", "[::1]:10249"},
		{"a flag that makes the file bind IPv6", proxyHead, []string{"--bind-address=2001:db8::1"}, "[::]:10256", "[::1]:10249"},
		{"flags that bind IPv6", "", []string{"--bind-address=::"}, "0.0.0.0:10256", "127.0.0.1:10249"},
		{"addresses alone", proxyHead + "healthzBindAddress: 192.0.2.1\nmetricsBindAddress: '::'\n", nil, "192.0.2.1:10256", "[::]:10249"},
		{"addresses and ports", "", []string{"--healthz-bind-address=[2001:db8::1]:1", "--metrics-bind-address=0.0.0.0:2"}, "[2001:db8::1]:1", "0.0.0.0:2"},
		{"any port", "", []string{"--healthz-bind-address=127.0.0.1:0", "--metrics-bind-address=127.0.0.1:0"}, "127.0.0.1:0", "127.0.0.1:0"},
		{"deprecated ports", "", []string{"--healthz-port=1", "--metrics-port=2"}, "0.0.0.0:1", "127.0.0.1:2"},
		{"deprecated ports, off", "", []string{"--healthz-port=0", "--metrics-port=0"}, "", ""},
		{"off wins over the file", proxyHead + "healthzBindAddress: 192.0.2.1:1\n", []string{"--healthz-port=0"}, "", "127.0.0.1:10249"},
		{"port for an address without", "", []string{"--healthz-bind-address=192.0.2.1", "--healthz-port=1"}, "192.0.2.1:1", "127.0.0.1:10249"},
		{"an address with a port keeps it", "", []string{"--healthz-bind-address=192.0.2.1:3", "--healthz-port=1"}, "192.0.2.1:3", "127.0.0.1:10249"},
		{"so does that of the file", proxyHead + "metricsBindAddress: 192.0.2.1:3\n", []string{"--metrics-port=1"}, "0.0.0.0:10256", "192.0.2.1:3"},
		{"one port, two addresses", "", []string{"--healthz-bind-address=192.0.2.1:9", "--metrics-bind-address=192.0.2.2:9"}, "192.0.2.1:9", "192.0.2.2:9"},
		{"one port, two families", "", []string{"--healthz-bind-address=0.0.0.0:9", "--metrics-bind-address=[::1]:9"}, "0.0.0.0:9", "[::1]:9"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := loaded(t, tt.file, tt.args...).Config
			if c.Healthz != tt.healthz || c.Metrics != tt.metrics {
				t.Errorf("listens on %q and %q, want %q and %q", c.Healthz, c.Metrics, tt.healthz, tt.metrics)
			}
		})
	}
}
