package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// allowExternalIPs is the one gate that changes what is done here.
const allowExternalIPs = "AllowServiceExternalIPs"

// gates are the feature gates that kube-proxy v1.37 reads, with AllAlpha and AllBeta, which
// every component has. A cluster gives all its components one list, so an unknown gate is
// ignored with a warning.
var gates = map[string]bool{
	allowExternalIPs:                      true,
	"AllAlpha":                            true,
	"AllBeta":                             true,
	"ComponentFlagz":                      true,
	"ComponentStatusz":                    true,
	"ContextualLogging":                   true,
	"KubeProxyIPVS":                       true,
	"KubeProxyNFTablesLocalhostNodePorts": true,
	"LoggingAlphaOptions":                 true,
	"LoggingBetaOptions":                  true,
	"MultiCIDRServiceAllocator":           true,
	"NFTablesNetlink":                     true,
	"NativeHistograms":                    true,
	"PreferSameTrafficDistribution":       true,
}

// featureGates reads the gates of the file and then those of the command line, which override them,
// and reports whether external IPs are served. Of a gate that is given twice the last counts.
func (p *problems) featureGates() (externalIPs bool) {
	merged := maps.Clone(p.s.Proxy.FeatureGates)
	if merged == nil && len(p.s.FeatureGates) > 0 {
		merged = map[string]bool{}
	}
	for _, text := range p.s.FeatureGates {
		name, on, err := parseGate(text)
		if err != nil {
			p.list = append(p.list, fmt.Errorf("--feature-gates: %w", err))
			continue
		}
		merged[name] = on
	}
	p.gates = merged
	on, said := merged[allowExternalIPs]
	return on || !said
}

func parseGate(text string) (name string, on bool, err error) {
	name, value, _ := strings.Cut(text, "=")
	value = strings.TrimSpace(value)
	if on, err = strconv.ParseBool(value); err != nil {
		err = fmt.Errorf("%q is not true or false, in %q", value, text)
	}
	if name = strings.TrimSpace(name); name == "" {
		err = fmt.Errorf("%q has no gate name", text)
	}
	return name, on, err
}

// foreignGates names the gates that kube-proxy does not ask.
func foreignGates(given map[string]bool) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(given)), func(name string) bool { return gates[name] })
}
