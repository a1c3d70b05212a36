package apiload

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	discovery "k8s.io/api/discovery/v1"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/topology"
)

// Sizes of the big Service: slices are as full as the control plane makes them, and a step of a rolling update replaces some pods.
const (
	bigSlices, perSlice = 5, 100
	perStep             = 20

	BigEndpoints = bigSlices * perSlice
	BigSteps     = BigEndpoints / perStep
)

// Big is a Service of 500 endpoints that is rolled: step by step all are replaced.
type Big struct {
	load   *Load
	name   string
	slices [bigSlices][]int
	old    map[netip.Addr]bool
	VIP    netip.AddrPort
}

// AddBig writes the Service; Restore takes it away.
func (l *Load) AddBig(ctx context.Context, name string) (b *Big, err error) {
	b = &Big{load: l, name: name, old: map[netip.Addr]bool{}}
	var objects []*discovery.EndpointSlice
	for i := range b.slices {
		b.slices[i] = l.spares(perSlice)
		for _, e := range b.slices[i] {
			b.old[topology.Endpoint(e)] = true
		}
		objects = append(objects, b.object(i))
	}
	b.VIP, err = l.create(ctx, service(name), objects...)
	return b, err
}

func (b *Big) object(i int) *discovery.EndpointSlice {
	return slice(fmt.Sprintf("%s-%d", b.name, i), b.name, b.slices[i]...)
}

// Step replaces the next endpoints, by one write. There are BigSteps of them.
func (b *Big) Step(ctx context.Context, n int) error {
	i, at := n*perStep/perSlice, n*perStep%perSlice
	b.slices[i] = slices.Replace(b.slices[i], at, at+perStep, b.load.spares(perStep)...)
	return b.load.update(ctx, b.object(i))
}

// Old reports whether an endpoint is one of the first.
func (b *Big) Old(addr netip.Addr) bool { return b.old[addr] }
