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

// featureGates reads --feature-gates and tells whether external IPs are served.
// Of a gate that is given twice the last counts.
func (p *problems) featureGates(list []string) (externalIPs bool) {
	const flag = "--feature-gates"
	externalIPs = true
	for _, text := range list {
		name, value, _ := strings.Cut(text, "=")
		name = strings.TrimSpace(name)
		on, err := strconv.ParseBool(strings.TrimSpace(value))
		switch {
		case !gates[name]:
			p.add(flag, fmt.Sprintf("%q is not one of %s", name, strings.Join(slices.Sorted(maps.Keys(gates)), ", ")))
		case err != nil:
			p.add(flag, fmt.Sprintf("%q is not true or false, in %q", strings.TrimSpace(value), text))
		case name == allowExternalIPs:
			externalIPs = on
		}
	}
	return externalIPs
}
