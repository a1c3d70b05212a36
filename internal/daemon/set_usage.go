package daemon

import (
	"context"
	"fmt"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/telemetry"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// setStat reads the sizes of sets; *ipset.Handle is one.
type setStat interface {
	Stat(ctx context.Context) ([]ipset.Info, error)
}

// A setUsageReader reads how full our sets are, for the metrics, with a handle of its own. One
// goroutine uses it at a time.
type setUsageReader struct {
	carries func() bool // the active mode has sets
	open    func() (setStat, error)
	sets    setStat
}

func newSetUsageReader(d *daemon) *setUsageReader {
	return &setUsageReader{
		carries: func() bool { return d.mode.ipvs != nil },
		open:    func() (setStat, error) { return ipset.New(ipset.Options{Called: d.kernel.calls.of("metrics")}) },
	}
}

func (r *setUsageReader) fill(ctx context.Context) ([]telemetry.SetFill, error) {
	if !r.carries() {
		return nil, nil
	}
	if r.sets == nil {
		h, err := r.open()
		if err != nil {
			return nil, fmt.Errorf("read how full sets are: %w", err)
		}
		r.sets = h
	}
	all, err := r.sets.Stat(ctx)
	if err != nil {
		return nil, err
	}
	var out []telemetry.SetFill
	for _, i := range all {
		if sets.Owned(i.Set.Name) && i.Set.MaxElem > 0 {
			out = append(out, telemetry.SetFill{Name: i.Set.Name, Entries: i.Elements, Most: i.Set.MaxElem})
		}
	}
	return out, nil
}
