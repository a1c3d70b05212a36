package cli

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// lacksClusterIP reports whether an API server would assign a cluster IP to a Service of a manifest:
// it has none, not even one that cannot be parsed.
func lacksClusterIP(s *model.Service) bool {
	return len(s.ClusterIPs) == 0 && !s.Headless && s.Type != "ExternalName" &&
		!slices.ContainsFunc(s.Problems, func(p string) bool { return strings.HasPrefix(p, "spec.clusterIP") })
}

// assignClusterIPs assigns to each Service without a cluster IP the next free address of each
// range, in the order of names. As an API server it never assigns the first address of a range
// and, for IPv4, the last.
func assignClusterIPs(services []model.Service, ranges []netip.Prefix) (said []string, err error) {
	if len(ranges) == 0 {
		return nil, nil
	}
	taken := map[netip.Addr]bool{}
	for i := range services {
		for _, a := range services[i].ClusterIPs {
			taken[a] = true
		}
	}
	next := map[netip.Prefix]netip.Addr{}
	for i := range services {
		s := &services[i]
		if !lacksClusterIP(s) {
			continue
		}
		for _, r := range ranges {
			a, ok := freeIn(r, next[r], taken)
			if !ok {
				return said, fmt.Errorf("--assign-cluster-ips: %s has no free address for %s", r, s.ID)
			}
			next[r], taken[a] = a, true
			s.ClusterIPs = append(s.ClusterIPs, a)
			said = append(said, fmt.Sprintf("%s: gets the cluster IP %s (--assign-cluster-ips)", s.ID, a))
		}
	}
	return said, nil
}

// freeIn returns the next free address of a range after the given one, or after its first.
func freeIn(r netip.Prefix, after netip.Addr, taken map[netip.Addr]bool) (netip.Addr, bool) {
	if !after.IsValid() {
		after = r.Addr()
	}
	for a := after.Next(); a.IsValid() && r.Contains(a); a = a.Next() {
		broadcast := a.Is4() && !r.Contains(a.Next())
		if !taken[a] && !broadcast {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// parseRanges reads --assign-cluster-ips.
func parseRanges(list []string) (out []netip.Prefix, err error) {
	have := map[bool]bool{}
	for _, text := range list {
		p, err := netip.ParsePrefix(text)
		switch {
		case err != nil || p.Addr().Is4In6():
			return nil, fmt.Errorf("--assign-cluster-ips: %q is not a CIDR such as 10.96.0.0/16", text)
		case have[p.Addr().Is4()]:
			return nil, errors.New("--assign-cluster-ips: one range of each family at most")
		}
		have[p.Addr().Is4()] = true
		out = append(out, p.Masked())
	}
	return out, nil
}
