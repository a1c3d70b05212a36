package config

import (
	"encoding/json"
	"errors"
	"fmt"

	kubeproxy "k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"
)

// fill is the settings with every value that follows from others, as they would
// have to be written in a file to mean the same.
func (s *Settings) fill(c Config, gates map[string]bool) Settings {
	out := s.clone()
	out.Proxy.Mode = kubeproxy.ProxyMode(c.Mode)
	out.Proxy.FeatureGates, out.FeatureGates = gates, nil
	out.Proxy.HealthzBindAddress, out.Proxy.MetricsBindAddress = c.Healthz, c.Metrics
	out.Proxy.BindAddress = c.BindAddress.String()
	out.Proxy.IPVS.Scheduler = c.Scheduler.Name()
	out.Own.LogLevel = c.LogLevel
	return out
}

// Configz returns the body of /configz: the effective documents, keyed by API group as in
// kube-proxy.
func (c Config) Configz() ([]byte, error) {
	return json.Marshal(struct {
		Proxy kubeproxy.KubeProxyConfiguration `json:"kubeproxy.config.k8s.io"`
		Own   KubeIPVSConfiguration            `json:"kube-ipvs.io"`
	}{c.effective.Proxy, c.effective.Own})
}

// YAML is a file that means what c means, but for what is on the command line
// alone. A listener that is off cannot be said in a file.
func (c Config) YAML() ([]byte, error) {
	if c.Healthz == "" || c.Metrics == "" {
		return nil, errors.New("a file cannot turn a listener off: keep --healthz-port=0 and --metrics-port=0 on the command line")
	}
	proxy, err := yaml.Marshal(c.effective.Proxy)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", proxyKind, err)
	}
	own, err := yaml.Marshal(c.effective.Own)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", OwnKind, err)
	}
	return append(append(proxy, "---\n"...), own...), nil
}
