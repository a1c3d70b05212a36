package ipvs_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// A large loss shows in the next sample, and everything is back after it and, where there is a
// doubt, the audit that follows.
func TestSampleFindsLargeLosses(t *testing.T) {
	var many []model.ServicePlan
	for i := range 40 {
		many = append(many, tenEndpoints(i, 0))
	}
	for name, lose := range map[string]func(t *testing.T, k *kernel){
		"all servers": drifts["all servers"],
		"every entry of a set": func(t *testing.T, k *kernel) {
			if err := k.sets.Flush(t.Context(), "KUBE-CLUSTER-IP"); err != nil {
				t.Fatal(err)
			}
		},
		"one entry": func(t *testing.T, k *kernel) {
			_, entries, err := k.sets.List(t.Context(), "KUBE-CLUSTER-IP")
			if err != nil {
				t.Fatal(err)
			}
			if err := k.sets.Delete(t.Context(), "KUBE-CLUSTER-IP", entries[0]); err != nil {
				t.Fatal(err)
			}
		},
		"a set": func(t *testing.T, k *kernel) {
			if err := k.sets.Destroy(t.Context(), "KUBE-CLUSTER-IP"); err != nil {
				t.Fatal(err)
			}
		},
		"an entry of a stranger": drifts["strange entry"],
	} {
		t.Run(name, func(t *testing.T) {
			k := newKernel()
			m := begin(t, k, many...)
			apply(t, m)
			want := k.String()
			lose(t, k)
			s, err := m.Sample(t.Context())
			if err != nil || s.Drift.Total() == 0 {
				t.Fatalf("found %v, %v", s.Drift, err)
			}
			apply(t, m)
			if s.Doubt {
				a, err := m.Audit(t.Context(), 0) // its first piece
				if err != nil || a.Done {
					t.Fatalf("%+v, %v", a, err)
				}
				round(t, m)
				apply(t, m)
			}
			if diff := cmp.Diff(want, k.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A sample of a node that is as it should be reads the headers of sets and eight servers,
// however many there are, and finds nothing.
func TestSampleIsSmall(t *testing.T) {
	k := newKernel()
	var many []model.ServicePlan
	for i := range 200 {
		many = append(many, tenEndpoints(i, 0))
	}
	m := begin(t, k, many...)
	apply(t, m)
	k.calls = nil
	s, err := m.Sample(t.Context())
	if err != nil || s.Drift.Total() != 0 || s.Doubt {
		t.Errorf("found %+v, %v", s, err)
	}
	want := append([]string{"stat sets", "get servers"}, slices.Repeat([]string{"list destinations"}, 8)...)
	if diff := cmp.Diff(want, k.calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// Every call of a sample may fail, and then nothing is believed lost.
func TestSampleThatCannotReadFindsNothing(t *testing.T) {
	for _, call := range []string{"stat sets", "get servers", "list destinations"} {
		k := newKernel()
		m := begin(t, k, web)
		apply(t, m)
		k.refuse = call
		if s, err := m.Sample(t.Context()); err == nil || s.Drift.Total() != 0 || s.Doubt {
			t.Errorf("%s fails: %+v, %v", call, s, err)
		}
	}
}

// Where the kernel counts other entries than it lists, the set is listed once and not each
// second.
func TestOddCountsAreLookedAtOnce(t *testing.T) {
	k := newKernel()
	deps := k.deps()
	deps.Sets = overcounted{sets{k}}
	m := ipvs.New(zap.NewNop(), config(), deps)
	m.Set(web)
	if err := m.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	apply(t, m)
	for i, lists := range []int{1, 0, 0} {
		k.calls = nil
		if s, err := m.Sample(t.Context()); err != nil || s.Drift.Total() != 0 {
			t.Fatalf("found %v, %v", s.Drift, err)
		}
		if n := count(k.calls, "list members"); n != lists {
			t.Errorf("sample %d lists %d sets, want %d", i, n, lists)
		}
	}
}

// overcounted are sets one of which counts an entry too many.
type overcounted struct{ sets }

func (o overcounted) Stat(ctx context.Context) ([]ipset.Info, error) {
	infos, err := o.sets.Stat(ctx)
	for i := range infos {
		if infos[i].Set.Name == "KUBE-CLUSTER-IP" {
			infos[i].Elements++
		}
	}
	return infos, err
}

func count(calls []string, call string) int {
	return len(calls) - len(slices.DeleteFunc(slices.Clone(calls), func(c string) bool { return c == call }))
}

// Half of many servers are lost: some sample of the next few shows it.
func TestSamplesFindWhatIsHalfLost(t *testing.T) {
	k := newKernel()
	var many []model.ServicePlan
	for i := range 400 {
		many = append(many, tenEndpoints(i, 0))
	}
	m := begin(t, k, many...)
	apply(t, m)
	all, err := k.servers.ListServers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lost := 0
	for key := range all {
		if lost++; lost > len(all)/2 {
			break
		}
		mustWrite(t, k.servers.WriteServers(t.Context(), []vserver.ServerChange{{Op: vserver.Delete, Key: key}}))
	}
	for range 10 { // once in 2^80 none shows it
		if s, err := m.Sample(t.Context()); err != nil {
			t.Fatal(err)
		} else if s.Doubt {
			return
		}
	}
	t.Error("no sample shows it")
}
