package ipvs_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

// pickups notes what the mode has picked up, and refuses some of it.
type pickups struct {
	wants   []string
	on      map[model.Protocol]bool
	refused model.Protocol
}

func (p *pickups) Want(_ context.Context, protocols []model.Protocol) {
	p.wants, p.on = append(p.wants, fmt.Sprintf("%v", protocols)), map[model.Protocol]bool{}
	for _, one := range protocols {
		p.on[one] = one != p.refused
	}
}

func (p *pickups) InForce(one model.Protocol) bool { return p.on[one] }

// pickedUp is a plan whose external IP has a scheduler and a way, in some protocol.
func pickedUp(spec string, way model.Forward, protocol model.Protocol) model.ServicePlan {
	p := forwarded("203.0.113.10", way)
	p.Frontends[1].Scheduler, p.Frontends[1].Key.Protocol = scheduler.MustParse(spec), protocol
	return p
}

// TestPickup: connections of other nodes are picked up while a frontend in force has mh and is not
// translated, and nothing is taken back before all Services are known.
func TestPickup(t *testing.T) {
	kernel, set, c := newKernel(), &pickups{}, config()
	deps := kernel.deps()
	deps.Pickup = set
	m := ipvs.New(zap.NewNop(), c, deps)
	if err := m.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	gone := model.ServicePlan{ID: pickedUp("mh", model.ForwardNAT, model.TCP).ID}
	for _, step := range []struct {
		name  string
		plan  model.ServicePlan
		known bool
		want  []string // calls of this step
	}{
		{"not all Services are known, and none needs it", pickedUp("mh", model.ForwardNAT, model.TCP), false, nil},
		{"not all Services are known", pickedUp("mh", model.ForwardDirect, model.TCP), false, []string{"[tcp]"}},
		{"nothing is taken back yet", gone, false, nil},
		{"all are known", gone, true, []string{"[]"}},
		{"another scheduler", pickedUp("wlc", model.ForwardTunnel, model.TCP), true, nil},
		{"nat", pickedUp("mh", model.ForwardNAT, model.TCP), true, nil},
		{"a tunnel", pickedUp("mh", model.ForwardTunnel, model.TCP), true, []string{"[tcp]"}},
		{"the same again", pickedUp("mh", model.ForwardTunnel, model.TCP), true, nil},
		{"SCTP", pickedUp("mh", model.ForwardDirect, model.SCTP), true, []string{"[sctp]"}},
		{"UDP needs nothing", pickedUp("mh", model.ForwardDirect, model.UDP), true, []string{"[]"}},
	} {
		set.wants = nil
		m.Set(step.plan)
		if r := m.Apply(t.Context(), dataplane.ApplyOptions{KeepOrphans: !step.known}); r.Total().Err() != nil {
			t.Fatalf("%s: %v", step.name, r.Total().Err())
		}
		if !slices.Equal(set.wants, step.want) {
			t.Errorf("%s: wanted %q, want %q", step.name, set.wants, step.want)
		}
	}
}

// Sysctls of an earlier agent are restored, if no Service needs them when all are known.
func TestPickupOfAnEarlierAgentEnds(t *testing.T) {
	set := &pickups{}
	deps := newKernel().deps()
	deps.Pickup = set
	m := ipvs.New(zap.NewNop(), config(), deps)
	if err := m.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		apply(t, m)
	}
	if !slices.Equal(set.wants, []string{"[]"}) {
		t.Errorf("wanted %q, want nothing, once", set.wants)
	}
	m.Clear()
	apply(t, m)
	if len(set.wants) != 1 {
		t.Errorf("cleanup wanted %q: it restores the sysctls itself", set.wants)
	}
}

// The path of a packet has the fate of a connection that another node began.
func TestPickupInThePath(t *testing.T) {
	for _, tt := range []struct {
		name    string
		spec    string
		change  func(*model.Frontend)
		refused model.Protocol
		want    string
	}{
		{"picked up", "mh", nil, 0, "is picked up, with the backend that it had"},
		{"refused", "mh", nil, model.TCP, "is reset: net.ipv4.vs.sloppy_tcp could not be set"},
		{"another scheduler", "wlc", nil, 0, ""},
		{"policy Local", "mh", func(f *model.Frontend) { f.Local = true }, 0, "externalTrafficPolicy Local gives each node other backends"},
		{"affinity", "mh", func(f *model.Frontend) { f.Affinity = 1e9 }, 0, "sessionAffinity with mh-port gives each node other backends"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			deps := newKernel().deps()
			deps.Pickup = &pickups{refused: tt.refused}
			m := ipvs.New(zap.NewNop(), config(), deps)
			p := pickedUp(tt.spec, model.ForwardTunnel, model.TCP)
			if tt.change != nil {
				tt.change(&p.Frontends[1])
			}
			m.Set(p)
			if err := m.Load(t.Context()); err != nil {
				t.Fatal(err)
			}
			apply(t, m)
			path := m.PacketPath(dataplane.Packet{To: p.Frontends[1], Origin: dataplane.FromOutside})
			got := ""
			for _, step := range path.Steps {
				if strings.Contains(step, "began on another node") {
					got += step
				}
			}
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("the path says %q, want %q", got, tt.want)
			}
		})
	}
}

// Under mh every node adds the same destinations in the same order with the same weights, whatever
// its name: the kernel builds the table of mh from exactly these (ip_vs_mh_populate).
func TestNodesAgreeUnderMH(t *testing.T) {
	backends := someBackends(12)
	p := with(service("web", vip, backends...), func(f *model.Frontend) {
		f.Scheduler, f.SlowStart = scheduler.MustParse("mh"), 0
		for i := range f.Backends {
			f.Backends[i].Weight = uint16(1 + i%3)
		}
	})
	type added struct {
		Destination string
		Weight      uint16
	}
	tables := map[string][]added{}
	for _, node := range []string{"node-a", "node-b", "worker-17.example", "", "zz"} {
		k, c := newKernel(), config()
		var order []vserver.DestinationKey
		deps := k.deps()
		deps.Servers = recorder{servers{k}, &order}
		c.Node = node
		m := ipvs.New(zap.NewNop(), c, deps)
		m.Set(p)
		if err := m.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		apply(t, m)
		there, err := k.servers.ListDestinations(t.Context(), vserver.ServerKey{Addr: netip.MustParseAddr(vip), Port: 80, Protocol: vserver.ProtocolTCP})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range order {
			tables[node] = append(tables[node], added{d.String(), there[d].Weight})
		}
	}
	for node, got := range tables {
		if diff := cmp.Diff(tables["node-a"], got); diff != "" || len(got) != len(backends) {
			t.Errorf("node %q adds others than node-a, or in another order (-node-a +%s):\n%s", node, node, diff)
		}
	}
}
