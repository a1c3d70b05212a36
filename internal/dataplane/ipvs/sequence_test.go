package ipvs_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

// recorder notes destinations as they are added.
type recorder struct {
	servers
	added *[]vserver.DestinationKey
}

func (r recorder) WriteDestinations(ctx context.Context, changes []vserver.DestinationChange) []error {
	for _, c := range changes {
		if c.Op == vserver.Add {
			*r.added = append(*r.added, c.Key)
		}
	}
	return r.servers.WriteDestinations(ctx, changes)
}

// addedBy are the destinations that a node adds to an empty kernel, in their order.
func addedBy(t *testing.T, node string, plans ...model.ServicePlan) []vserver.DestinationKey {
	t.Helper()
	k, c := newKernel(), config()
	var added []vserver.DestinationKey
	deps := k.deps()
	deps.Servers = recorder{servers{k}, &added}
	c.Node = node
	m := ipvs.New(zap.NewNop(), c, deps)
	for _, p := range plans {
		m.Set(p)
	}
	if err := m.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	apply(t, m)
	return added
}

// someBackends are endpoints on as many nodes.
func someBackends(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("10.244.%d.7:8080", i)
	}
	return out
}

// The destination that is added last is the first of the kernel's list, where rr begins.
func TestNodesBeginAtDifferentDestinations(t *testing.T) {
	for _, n := range []int{3, 4, 5, 8, 10} {
		nodes := 100
		if n > 5 { // no share is checked
			nodes = 10
		}
		t.Run(fmt.Sprintf("backends=%d", n), func(t *testing.T) {
			first := map[string]int{}
			for node := range nodes {
				added := addedBy(t, fmt.Sprintf("node-%d", node), service("web", vip, someBackends(n)...))
				if len(added) != n {
					t.Fatalf("%d destinations added, want %d", len(added), n)
				}
				first[added[n-1].Addr.String()]++
			}
			most := 0
			for _, b := range someBackends(n) {
				addr, _, _ := strings.Cut(b, ":")
				most = max(most, first[addr])
				t.Logf("%-12s first on %2d of %d nodes", addr, first[addr], nodes)
			}
			if share := float64(most*n) / float64(nodes); n <= 5 && share >= 1.6 {
				t.Errorf("one is first on %d of %d nodes, %.2f times the mean", most, nodes, share)
			}
		})
	}
}

// Servers of one node differ, too, and are kept together.
func TestOrderOfANode(t *testing.T) {
	var plans []model.ServicePlan
	for i := range 50 {
		plans = append(plans, service(fmt.Sprint("web-", i), fmt.Sprintf("10.96.0.%d", i+1), someBackends(5)...))
	}
	added := addedBy(t, "node-a", plans...)
	if diff := cmp.Diff(added, addedBy(t, "node-a", plans...), cmp.Comparer(func(a, b vserver.DestinationKey) bool { return a == b })); diff != "" {
		t.Errorf("the same node adds in another order (-first +second):\n%s", diff)
	}
	first := map[string]int{}
	for one := range slices.Chunk(added, 5) {
		if i := slices.IndexFunc(one, func(k vserver.DestinationKey) bool { return k.Server != one[0].Server }); i >= 0 {
			t.Fatalf("%s is added among those of %s", one[i], one[0].Server)
		}
		first[one[4].Addr.String()]++
	}
	for addr, n := range first {
		if n > 20 {
			t.Errorf("%s is first of %d of 50 servers", addr, n)
		}
	}
}

// Where the order decides which client meets which destination, all nodes have one.
func TestOrderOfSchedulersThatHash(t *testing.T) {
	for _, name := range scheduler.Names() {
		p := with(service("web", vip, someBackends(10)...), func(f *model.Frontend) { f.Scheduler = scheduler.MustParse(name) })
		sorted := slices.IsSortedFunc(addedBy(t, "node-a", p), vserver.DestinationKey.Compare)
		if want := slices.Contains([]string{"sh", "dh", "mh", "fo", "ovf"}, name); sorted != want {
			t.Errorf("%s: in the order of addresses: %t", name, sorted)
		}
	}
}
