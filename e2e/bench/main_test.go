package main

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/measure"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/report"
)

func TestFlags(t *testing.T) {
	var out strings.Builder
	o, err := parse([]string{"-n", "10, 20", "-candidates", "kube-proxy-ipvs", "-candidate", "mine=/opt/mine {kubeconfig}", "-parts", "start,roll", "-samples", "7"}, &out)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(o.Services, []int{10, 20}) || len(o.Candidates) != 2 || o.Candidates[1].Command != "/opt/mine {kubeconfig}" || !slices.Equal(o.Parts, []string{"start", "roll"}) || o.Samples != 7 {
		t.Errorf("options are %+v", o)
	}
	for _, args := range [][]string{{"-n", "20,10"}, {"-n", "x"}, {"-candidates", "unknown"}, {"-candidates", ""}, {"-parts", "end"}, {"-samples", "0"}, {"-limit", "0s"}, {"more"}, {"-candidate", "x"}} {
		if _, err := parse(args, &out); err == nil {
			t.Errorf("%v is no error", args)
		}
	}
}

func TestHelpNamesWhatThereIs(t *testing.T) {
	var out strings.Builder
	if _, err := parse([]string{"-help"}, &out); !errors.Is(err, flag.ErrHelp) {
		t.Fatal(err)
	}
	for _, want := range []string{"kube-proxy-nftables", "{kubeconfig}", "-samples", "bench report DIR"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the help has no %q:\n%s", want, out.String())
		}
	}
}

func TestReportOfADirectory(t *testing.T) {
	dir := t.TempDir()
	var out strings.Builder
	if err := bench(t.Context(), []string{"report", dir}, &out); !errors.Is(err, report.ErrNoResults) {
		t.Errorf("report of nothing: %v", err)
	}
	c := &report.Result{Candidate: "a", Services: 10, Start: &report.Start{Quiet: measure.Wait{Seconds: 2}}}
	if err := c.Save(dir); err != nil {
		t.Fatal(err)
	}
	if err := bench(t.Context(), []string{"report", dir}, &out); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"bench.md", "bench.svg"} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || len(text) == 0 {
			t.Errorf("%s: %d bytes, %v", name, len(text), err)
		}
	}
	if !strings.Contains(out.String(), "2 s") {
		t.Errorf("the table is %s", out.String())
	}
}
