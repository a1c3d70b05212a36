package daemon

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/telemetry"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

type stat func() ([]ipset.Info, error)

func (s stat) Stat(context.Context) ([]ipset.Info, error) { return s() }

// Only our own sets are shown, those that can be full, and only in the mode that has some.
func TestFillOfSets(t *testing.T) {
	carries, opened := false, 0
	var failed error
	r := &setUsageReader{carries: func() bool { return carries }, open: func() (setStat, error) {
		opened++
		return stat(func() ([]ipset.Info, error) {
			return []ipset.Info{
				{Set: ipset.Set{Name: "KUBE-CLUSTER-IP", MaxElem: 65536}, Elements: 7},
				{Set: ipset.Set{Name: "KUBE-NODE-PORT-TCP"}, Elements: 3}, // a bitmap
				{Set: ipset.Set{Name: "another-program", MaxElem: 10}, Elements: 10},
			}, failed
		}), nil
	}}
	if got, err := r.fill(t.Context()); err != nil || got != nil || opened != 0 {
		t.Errorf("in another mode: %v, error %v, %d opened", got, err, opened)
	}
	carries = true
	for range 2 {
		got, err := r.fill(t.Context())
		if diff := cmp.Diff([]telemetry.SetFill{{Name: "KUBE-CLUSTER-IP", Entries: 7, Most: 65536}}, got); err != nil || diff != "" {
			t.Errorf("error %v (-want +got):\n%s", err, diff)
		}
	}
	if failed = errors.New("no reply"); opened != 1 {
		t.Errorf("%d opened, want 1", opened)
	}
	if _, err := r.fill(t.Context()); !errors.Is(err, failed) {
		t.Errorf("error %v, want %v", err, failed)
	}
}
