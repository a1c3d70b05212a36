package daemon

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/telemetry"
)

// countedRules have been read of some kernel.
type countedRules struct {
	list []rules.Counted
	err  error
}

func (c *countedRules) Counted(_ context.Context, _ []string, wanted func(rules.ChainKey) bool) ([]rules.Counted, error) {
	var out []rules.Counted
	for _, one := range c.list {
		if wanted(one.Chain) {
			out = append(out, one)
		}
	}
	return out, c.err
}

func inChain(name, rule string, packets uint64) rules.Counted {
	return rules.Counted{Chain: rules.ChainKey{Family: rules.IPv4, Table: "filter", Name: name}, Rule: rule, Packets: packets}
}

// A rule that is written again counts from zero, and the total does not.
func TestDropsAddUp(t *testing.T) {
	k := &countedRules{}
	r := &dropReader{rules: k, mode: func() string { return ipvs.Name }, families: []model.Family{model.IPv4}, total: map[dropKey]uint64{}}
	const refuse = "-m conntrack --ctstate NEW -m set --match-set KUBE-IPVS-IPS dst -j REJECT --reject-with icmp-port-unreachable"
	for i, tt := range []struct {
		counters []uint64
		want     uint64
	}{{[]uint64{5}, 5}, {[]uint64{8}, 8}, {[]uint64{2}, 10}, {nil, 10}, {[]uint64{3, 4}, 17}} {
		k.list = []rules.Counted{inChain("INPUT", "-j DROP", 99), inChain("KUBE-IPVS-FILTER", "-m conntrack ! --ctstate NEW -j RETURN", 99)}
		for _, n := range tt.counters {
			k.list = append(k.list, inChain("KUBE-IPVS-FILTER", refuse, n))
		}
		got, err := r.read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var want []telemetry.Dropped
		for _, why := range []string{"detour", "no_endpoints", "no_local_endpoints", "no_service", "scheduler_change", "source_ranges"} {
			one := telemetry.Dropped{Reason: why, Family: "IPv4"}
			if why == "no_service" {
				one.Packets = tt.want
			}
			want = append(want, one)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("reading %d (-want +got):\n%s", i, diff)
		}
	}
	k.err = errors.New("no reply")
	if got, err := r.read(t.Context()); !errors.Is(err, k.err) {
		t.Errorf("%v, %v of counters that cannot be read", got, err)
	}
}
