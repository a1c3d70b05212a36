package dataplane_test

import (
	"cmp"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// FuzzFrontends has four Services take and leave four keys by every kind of claim, and grow
// younger. For each key it compares the holder with the Service that has the strongest claim or,
// among equal claims, is the eldest. The reported changes and conflicts, applied to the earlier
// ones, must give the same result.
func FuzzFrontends(f *testing.F) {
	f.Add([]byte{0x1f, 0x0f, 0x10, 0x31, 0x8f})
	f.Add([]byte{0x03, 0x17, 0x2f, 0x80, 0x10, 0x41, 0x61})
	f.Add([]byte{0x11, 0x41, 0x81}) // a Service that lost a key is created again, and still loses it
	f.Fuzz(func(t *testing.T, ops []byte) {
		front := dataplane.NewFrontends()
		plans := map[model.ServiceID]model.ServicePlan{}
		inForce := map[model.FrontendKey]model.Frontend{}
		lost := map[string]bool{}
		for i, op := range ops {
			p := wanting(op, i)
			plans[p.ID] = p
			changes, conflicts := front.Set(p)
			for _, c := range changes {
				if old, had := inForce[c.Key]; had != (c.Old != nil) || had && !old.Equal(*c.Old) {
					t.Fatalf("step %d: the old %v at %s was never told", i, c.Old, c.Key)
				}
				if delete(inForce, c.Key); c.New != nil {
					inForce[c.Key] = *c.New
				}
			}
			for _, c := range conflicts {
				lost[fmt.Sprint(c.Key, c.Loser)] = !c.Over
			}
			compareFrontends(t, front, plans, inForce)
			compareConflicts(t, front, lost)
		}
	})
}

// wanting is the plan of one of four Services: its low bits are the keys, the next the Service, the last its age.
func wanting(op byte, step int) model.ServicePlan {
	p := model.ServicePlan{ID: model.ServiceID{Name: string('a' + rune(op>>4&3))}, Created: time.Unix(1+int64(op>>6), 0)}
	for bit := range 4 {
		if op&(1<<bit) != 0 {
			p.Frontends = append(p.Frontends, model.Frontend{
				Key:  model.FrontendKey{Addr: netip.AddrFrom4([4]byte{10, 96, 0, byte(bit)}), Port: 80, Protocol: model.TCP},
				Kind: model.Kind(1 + (int(op>>4)+bit+step%2)%4), Service: p.ID, Affinity: time.Duration(step % 3),
			})
		}
	}
	return p
}

// strength orders the kinds of claims, independently of the code under test.
var strength = map[model.Kind]int{model.KindClusterIP: 1, model.KindLoadBalancer: 2, model.KindNodePort: 3, model.KindExternalIP: 4}

func compareFrontends(t *testing.T, f *dataplane.Frontends, plans map[model.ServiceID]model.ServicePlan, told map[model.FrontendKey]model.Frontend) {
	t.Helper()
	for _, all := range wanting(0x0f, 0).Frontends {
		k := all.Key
		var best model.ServicePlan
		var want model.Frontend
		for _, p := range plans {
			for _, fe := range p.Frontends {
				if fe.Key != k {
					continue
				}
				order := cmp.Or(cmp.Compare(strength[fe.Kind], strength[want.Kind]), p.Created.Compare(best.Created), p.ID.Compare(best.ID))
				if want.Service == (model.ServiceID{}) || order < 0 {
					best, want = p, fe
				}
			}
		}
		got, _ := f.Get(k)
		if !got.Equal(want) || !told[k].Equal(want) {
			t.Fatalf("%s: %+v in force and %+v told, want %+v", k, got, told[k], want)
		}
	}
}

func compareConflicts(t *testing.T, f *dataplane.Frontends, lost map[string]bool) {
	t.Helper()
	standing := map[string]bool{}
	for _, c := range f.Conflicts() {
		standing[fmt.Sprint(c.Key, c.Loser)] = true
	}
	for k, stands := range lost {
		if stands != standing[k] {
			t.Fatalf("%s lost: %t was told, %t stands", k, stands, standing[k])
		}
	}
	for k := range standing {
		if !lost[k] {
			t.Fatalf("%s lost, and it was not told", k)
		}
	}
}
