package cell_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/cell"
)

func TestSavedIsLoaded(t *testing.T) {
	dir := t.TempDir()
	want := &cell.Cell{
		Candidate: "a", Services: 100, Endpoints: 10, Began: time.Unix(1, 0).UTC(), Command: []string{"a", "--b"},
		Start:    &cell.Start{First: cell.Wait{Seconds: 1.5}, Last: cell.Wait{Seconds: 60, Over: true}},
		Endpoint: &cell.Changes{Samples: cell.Summarize([]cell.Wait{{Seconds: 1}, {Seconds: 2}}), Each: cell.Cost{User: 1, Launches: 3}},
		Netlink:  &cell.Netlink{Change: cell.Traffic{"NETLINK_GENERIC": {Messages: 2}}},
	}
	want.Skip("roll", "not asked for")
	for range 2 { // the second time over the first
		if err := want.Save(dir); err != nil {
			t.Fatal(err)
		}
	}
	got, err := cell.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]*cell.Cell{want}, got); diff != "" {
		t.Errorf("loaded (-want +got):\n%s", diff)
	}
}

func TestOrderOfCells(t *testing.T) {
	dir := t.TempDir()
	at := time.Unix(0, 0)
	for i, c := range []cell.Cell{{Candidate: "z", Services: 100}, {Candidate: "a", Services: 100}, {Candidate: "z", Services: 20}, {Candidate: "a", Services: 20}} {
		c.Began = at.Add(time.Duration(i) * time.Second)
		if err := c.Save(dir); err != nil {
			t.Fatal(err)
		}
	}
	cells, err := cell.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range cells {
		got = append(got, c.Name())
	}
	want := []string{"cell-00020-z.json", "cell-00020-a.json", "cell-00100-z.json", "cell-00100-a.json"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestLoadSaysWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	if _, err := cell.Load(dir); !errors.Is(err, cell.ErrNoCells) {
		t.Errorf("Load of nothing: %v, want ErrNoCells", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cell-1-a.json"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := cell.Load(dir); err == nil {
		t.Error("a broken file is no error")
	}
}

func TestPercentileThatTheLimitEnded(t *testing.T) {
	waits := []cell.Wait{{Seconds: 1}, {Seconds: 2}, {Seconds: 3}, {Seconds: 60, Over: true}}
	s := cell.Summarize(waits)
	if s.Missed != 1 || s.P50 != 2 || s.P99 != 60 {
		t.Errorf("summary is %+v, want one missed, p50 2, p99 60", s)
	}
	if got := s.Percentile(50); got != (cell.Wait{Seconds: 2}) {
		t.Errorf("p50 is %+v, want 2, which was measured", got)
	}
	if got := s.Percentile(90); got != (cell.Wait{Seconds: 60, Over: true}) {
		t.Errorf("p90 is %+v, want over 60", got)
	}
}

func TestCalmer(t *testing.T) {
	noisy := func(halves float64, missed int) *cell.Changes {
		return &cell.Changes{Samples: cell.Samples{Halves: halves, Missed: missed}}
	}
	tests := []struct {
		name          string
		first, second *cell.Changes
		want          float64
	}{
		{"once", noisy(0.5, 0), nil, 0.5},
		{"the second is better", noisy(0.5, 0), noisy(0.1, 0), 0.1},
		{"the second is worse", noisy(0.5, 0), noisy(0.6, 0), 0.5},
		{"the second is steady because more of it ended at the limit", noisy(0.5, 0), noisy(0, 3), 0.5},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.first.Repeated = tt.second
			if got := tt.first.Calmer().Halves; got != tt.want {
				t.Errorf("noise is %g, want %g", got, tt.want)
			}
		})
	}
	if (*cell.Changes)(nil).Calmer() != nil {
		t.Error("what was not measured became calmer")
	}
}

func TestCosts(t *testing.T) {
	c := cell.Cost{User: 4, System: 2, Launches: 6, Busy: 8, SoftIRQ: 10}
	if got, want := c.Per(2), (cell.Cost{User: 2, System: 1, Launches: 3, Busy: 4, SoftIRQ: 5}); got != want {
		t.Errorf("half is %+v, want %+v", got, want)
	}
	if got := c.Per(2).Add(c.Per(2)).Sub(c); got != (cell.Cost{}) {
		t.Errorf("two halves without all are %+v, want nothing", got)
	}
	if got := c.Per(0); got != (cell.Cost{}) {
		t.Errorf("none of them cost %+v", got)
	}
	if c.CPU() != 6 {
		t.Errorf("CPU is %v, want 6", c.CPU())
	}
}

func TestTrafficPerChange(t *testing.T) {
	all := cell.Traffic{"A": {Messages: 4, Bytes: 40, FromMessages: 2, FromBytes: 20}, "B": {Bytes: 6}}
	messages, bytes := all.Per(2).Sum()
	if messages != 3 || bytes != 33 {
		t.Errorf("of two one is %g messages, %g bytes, want 3 and 33", messages, bytes)
	}
}

func TestTenths(t *testing.T) {
	s := &cell.Soak{}
	for i := range 40 {
		s.Memory = append(s.Memory, cell.Held{At: cell.Seconds(i), RSS: float64(100 + i)})
	}
	if first, last, known := s.Tenths(); first != 104 || last != 137.5 || !known {
		t.Errorf("tenths are %v and %v, known %t, want the fifth sample and the median of the last four", first, last, known)
	}
	s.Memory = s.Memory[:9]
	if _, _, known := s.Tenths(); known {
		t.Error("nine samples have tenths")
	}
}
