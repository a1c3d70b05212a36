package apiload

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestMembers(t *testing.T) {
	const n, endpoints = 1000, 10
	names, addresses, kinds := map[string]bool{}, map[string]bool{}, map[corev1.ServiceType]int{}
	for i := range n {
		s, slice := member(i, endpoints)
		names[s.Name] = true
		kinds[s.Spec.Type]++
		for _, e := range slice.Endpoints {
			addresses[e.Addresses[0]] = true
		}
	}
	if len(names) != n || len(addresses) != n*endpoints {
		t.Errorf("%d names and %d endpoints, want %d and %d", len(names), len(addresses), n, n*endpoints)
	}
	if kinds[corev1.ServiceTypeNodePort] != n/10 || kinds[corev1.ServiceTypeLoadBalancer] != n/20 {
		t.Errorf("kinds are %v, want a tenth with NodePorts and a twentieth with load balancers", kinds)
	}
}

func TestSpread(t *testing.T) {
	got := Spread(1000, 100)
	if len(got) < 90 || len(got) > 100 {
		t.Errorf("%d members, want about 100", len(got))
	}
	first, last := 0, 0
	for i := range 1000 {
		if memberName(i) > memberName(last) {
			last = i
		}
		if memberName(i) < memberName(first) {
			first = i
		}
	}
	for what, i := range map[string]int{"first made": 0, "last made": 999, "first by name": first, "last by name": last} {
		if !slices.Contains(got, i) {
			t.Errorf("the %s, %d, is not in %v", what, i, got)
		}
	}
	if one := Spread(7, 1); !slices.Equal(one, []int{6}) {
		t.Errorf("one of seven: %v, want the last made", one)
	}
	if all := Spread(5, 100); len(all) != 5 {
		t.Errorf("of five members %v, want each once", all)
	}
}
