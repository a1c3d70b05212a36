package diagnosis_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/diagnosis"
)

func answer(err error) func(context.Context) error {
	return func(context.Context) error { return err }
}

func TestRunChecks(t *testing.T) {
	got := diagnosis.Run(t.Context(), []diagnosis.Check{
		{Name: "fine", Run: answer(nil), Fix: "nothing"},
		{Name: "lacks", Run: answer(diagnosis.Lacking(errors.New("no dummy links"))), Fix: "modprobe dummy"},
		{Name: "wrapped", Run: answer(fmt.Errorf("probe: %w", diagnosis.Lacking(errors.New("no rr")))), Fix: "modprobe ip_vs_rr"},
		{Name: "slow", Run: answer(diagnosis.Warning(errors.New("small table")))},
		{Name: "unknown", Run: answer(errors.New("timeout")), Fix: "try again"},
		{Name: "denied", Run: answer(diagnosis.Lacking(fmt.Errorf("probe: %w", os.ErrPermission))), Fix: "modprobe dummy"},
		{Name: "graded nothing", Run: answer(errors.Join(diagnosis.Lacking(nil), diagnosis.Warning(nil)))},
	})
	want := []diagnosis.Verdict{
		{Name: "fine", State: diagnosis.OK},
		{Name: "lacks", State: diagnosis.Lacks, Detail: "no dummy links", Fix: "modprobe dummy"},
		{Name: "wrapped", State: diagnosis.Lacks, Detail: "probe: no rr", Fix: "modprobe ip_vs_rr"},
		{Name: "slow", State: diagnosis.Warn, Detail: "small table"},
		{Name: "unknown", State: diagnosis.Failed, Detail: "timeout", Fix: "try again"},
		{Name: "denied", State: diagnosis.Lacks, Detail: "probe: permission denied", Fix: "run as root, or with CAP_NET_ADMIN and CAP_NET_RAW"},
		{Name: "graded nothing", State: diagnosis.OK},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
}

func TestGradeKeepsTheError(t *testing.T) {
	cause := errors.New("cause")
	if err := diagnosis.Lacking(fmt.Errorf("probe: %w", cause)); !errors.Is(err, cause) {
		t.Errorf("%v does not lead to its cause", err)
	}
}

func TestRunChecksStopsAtEndOfContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	got := diagnosis.Run(ctx, []diagnosis.Check{
		{Name: "last", Run: func(context.Context) error { cancel(); return nil }},
		{Name: "unasked", Run: func(context.Context) error { t.Error("asked after the end"); return nil }},
	})
	want := []diagnosis.Verdict{
		{Name: "last", State: diagnosis.OK},
		{Name: "unasked", State: diagnosis.Failed, Detail: "context canceled"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
}

func TestWriteVerdicts(t *testing.T) {
	var b strings.Builder
	err := diagnosis.Write(&b, []diagnosis.Verdict{
		{Name: "kernel release", State: diagnosis.OK},
		{Name: "dummy link", State: diagnosis.Lacks, Detail: "not supported", Fix: "modprobe dummy"},
		{Name: "sets", State: diagnosis.Failed, Detail: "no answer"},
	})
	if err != nil {
		t.Fatalf("WriteVerdicts: %v", err)
	}
	want := `
ok       kernel release
missing  dummy link      not supported
                         fix: modprobe dummy
failed   sets            no answer
`
	if diff := cmp.Diff(want[1:], b.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

// summary returns the lines above the table.
func summary(t *testing.T, verdicts []diagnosis.Verdict) string {
	t.Helper()
	var b strings.Builder
	if err := diagnosis.WriteSummary(&b, verdicts); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(b.String(), "\n"); lines > 3 {
		t.Errorf("a summary of %d lines:\n%s", lines, &b)
	}
	return b.String()
}

func TestSummaryNamesAll(t *testing.T) {
	got := summary(t, []diagnosis.Verdict{
		{Name: "a", State: diagnosis.Warn, Detail: "1"}, {Name: "b", State: diagnosis.OK}, {Name: "c", State: diagnosis.Lacks, Detail: "x\ny"},
		{Name: "d", State: diagnosis.Warn, Detail: "2"}, {Name: "e", State: diagnosis.Failed, Detail: "?"}, {Name: "f", State: diagnosis.Warn, Detail: "3"},
	})
	want := "missing: c: x; y\nfailed: e: ?\nwarning: a: 1; and 2 more below: d, f\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
}

func TestRemedies(t *testing.T) {
	got := diagnosis.Run(t.Context(), []diagnosis.Check{
		{Name: "a", Run: answer(diagnosis.Note("42 of %d", 43)), Fix: "never"},
		{Name: "b", Run: answer(diagnosis.Remedied(diagnosis.Warning(errors.New("w")), "own")), Fix: "general"},
		{Name: "c", Run: answer(diagnosis.Warning(diagnosis.Remedied(errors.New("w"), "own"))), Fix: "general"},
		{Name: "d", Run: answer(diagnosis.Remedied(nil, "own")), Fix: "general"},
	})
	want := []diagnosis.Verdict{
		{Name: "a", State: diagnosis.OK, Detail: "42 of 43"},
		{Name: "b", State: diagnosis.Warn, Detail: "w", Fix: "own"},
		{Name: "c", State: diagnosis.Warn, Detail: "w", Fix: "own"},
		{Name: "d", State: diagnosis.OK},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
}
