package report_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/measure"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/report"
)

func TestSavedIsLoaded(t *testing.T) {
	dir := t.TempDir()
	want := fast(100)
	want.Began, want.Command = time.Unix(1, 0).UTC(), []string{"a", "--b"}
	want.Start.Last = measure.Wait{Seconds: 60, Over: true}
	want.Skip("roll", "not asked for")
	for range 2 { // the second time over the first
		if err := want.Save(dir); err != nil {
			t.Fatal(err)
		}
	}
	got, err := report.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]*report.Result{want}, got); diff != "" {
		t.Errorf("loaded (-want +got):\n%s", diff)
	}
}

func TestOrderOfResults(t *testing.T) {
	dir := t.TempDir()
	at := time.Unix(0, 0)
	for i, r := range []report.Result{{Candidate: "z", Services: 100}, {Candidate: "a", Services: 100}, {Candidate: "z", Services: 20}, {Candidate: "a", Services: 20}} {
		r.Began = at.Add(time.Duration(i) * time.Second)
		if err := r.Save(dir); err != nil {
			t.Fatal(err)
		}
	}
	results, err := report.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range results {
		got = append(got, r.Name())
	}
	want := []string{"result-00020-z.json", "result-00020-a.json", "result-00100-z.json", "result-00100-a.json"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestLoadSaysWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	if _, err := report.Load(dir); !errors.Is(err, report.ErrNoResults) {
		t.Errorf("Load of nothing: %v, want ErrNoResults", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "result-1-a.json"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := report.Load(dir); err == nil {
		t.Error("a broken file is no error")
	}
}
