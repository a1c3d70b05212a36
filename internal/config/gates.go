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

// gates are those that kube-proxy asks (contract section 1.4), with AllAlpha and
// AllBeta, which every component has. The command line of a kube-proxy is to work
// here, so they are all accepted.
var gates = map[string]bool{
	allowExternalIPs:                true,
	"AllAlpha":                      true,
	"AllBeta":                       true,
	"ComponentFlagz":                true,
	"ComponentStatusz":              true,
	"ContextualLogging":             true,
	"KubeProxyIPVS":                 true,
	"LoggingAlphaOptions":           true,
	"LoggingBetaOptions":            true,
	"MultiCIDRServiceAllocator":     true,
	"NativeHistograms":              true,
	"PreferSameTrafficDistribution": true,
}

// featureGates reads the gates of the file, and over them those of the command
// line, and tells whether external IPs are served. Of a gate that is given twice
// the last counts.
func (p *problems) featureGates() (externalIPs bool) {
	const flag = "feature-gates"
	known := strings.Join(slices.Sorted(maps.Keys(gates)), ", ")
	merged := maps.Clone(p.s.Proxy.FeatureGates)
	for _, name := range slices.Sorted(maps.Keys(merged)) {
		if !gates[name] {
			p.list = append(p.list, fmt.Errorf("featureGates: %q is not one of %s", name, known))
		}
	}
	for _, text := range p.s.FeatureGates {
		name, on, err := parseGate(text)
		switch {
		case !gates[name]:
			p.list = append(p.list, fmt.Errorf("--%s: %q is not one of %s", flag, name, known))
		case err != nil:
			p.list = append(p.list, fmt.Errorf("--%s: %w", flag, err))
		default:
			if merged == nil {
				merged = map[string]bool{}
			}
			merged[name] = on
		}
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
	return strings.TrimSpace(name), on, err
}
