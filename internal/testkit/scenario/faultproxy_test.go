package scenario

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// batch writes three rows through a fault proxy and returns those that were carried out.
func batch(t *testing.T, tap *faultProxy, pkg string) (done []string, errs []error) {
	t.Helper()
	self := func(row string) string { return row }
	errs = write(t.Context(), tap, pkg, []string{"add a", "add b", "delete c"}, self, func(good []string) []error {
		done = append(done, good...)
		return nil
	})
	return done, errs
}

func TestKindsOfFaults(t *testing.T) {
	for _, tt := range []struct {
		pkg, spec string
		done      string // the rows that reach the kernel
		failed    string
		is        []error
	}{
		{pkgServers, "next", "", "add a add b delete c", nil},
		{pkgServers, "next hang", "", "add a add b delete c", []error{vserver.ErrUnknown, context.DeadlineExceeded}},
		{pkgServers, "next late", "add a add b delete c", "", nil},
		{pkgServers, "next lost", "add a add b delete c", "add a add b delete c", []error{vserver.ErrUnknown}},
		{pkgServers, "next ENOBUFS", "add a add b delete c", "add a add b delete c", []error{vserver.ErrUnknown}},
		{pkgRules, "next ENOBUFS", "", "add a add b delete c", nil},
		{pkgSets, "always EBUSY", "", "add a add b delete c", []error{ipset.ErrBusy}},
		{pkgLinks, "for 1 ENOENT", "", "add a add b delete c", []error{link.ErrNotExist}},
		{pkgLinks, "nth 2", "add a add b delete c", "", nil},
		{pkgLinks, "next EEXIST", "add a add b delete c", "", nil}, // a success to the package
		{pkgSets, "next interrupted", "add a add b delete c", "", nil},
		{pkgServers, "row b", "add a delete c", "add b", nil},
		{pkgServers, "row b lost", "add a add b delete c", "add b", []error{vserver.ErrUnknown}},
		{pkgServers, "row c ENOENT", "add a add b delete c", "", nil}, // a success to the package
	} {
		t.Run(tt.pkg+" "+tt.spec, func(t *testing.T) {
			tap := newFaultProxy()
			if err := tap.plan(tt.pkg, strings.Fields(tt.spec)); err != nil {
				t.Fatal(err)
			}
			done, errs := batch(t, tap, tt.pkg)
			if got := strings.Join(done, " "); got != tt.done {
				t.Errorf("carried out: %q, want %q", got, tt.done)
			}
			var failed []string
			for i, err := range errs {
				if err != nil {
					failed = append(failed, []string{"add a", "add b", "delete c"}[i])
				}
				for _, want := range append(tt.is, errInjected) {
					if err != nil && !errors.Is(err, want) {
						t.Errorf("%v is not %v", err, want)
					}
				}
			}
			if got := strings.Join(failed, " "); got != tt.failed {
				t.Errorf("failed: %q, want %q", got, tt.failed)
			}
		})
	}
}

// An error that a list of a package never returns is not injected into it: the fault waits for a
// write.
func TestListsAreNeverAbsent(t *testing.T) {
	for _, kind := range []FaultKind{"ENOENT", "EEXIST", Lost} {
		for _, pkg := range Packages() {
			if kind.can(pkg, reads) || kind.can(pkg, looks) {
				t.Errorf("a list of %s may be answered by %s", pkg, kind)
			}
		}
	}
	tap := newFaultProxy()
	if err := tap.plan(pkgServers, []string{"next", "ENOENT"}); err != nil {
		t.Fatal(err)
	}
	if _, err := read(t.Context(), tap, pkgServers, func(context.Context) (int, error) { return 1, nil }); err != nil {
		t.Error(err)
	}
	if _, errs := batch(t, tap, pkgServers); !errors.Is(errs[0], vserver.ErrNotExist) {
		t.Errorf("the write after it: %v", errs)
	}
}

// Trouble of one row takes the middle one and stays with it, and is told of once.
func TestTroubleOfOneRow(t *testing.T) {
	tap, struck := newFaultProxy(), 0
	tap.struck = func() { struck++ }
	tap.add(&fault{pkg: pkgSets, times: endless, kind: Fail, one: true, trouble: true})
	for range 3 {
		if done, _ := batch(t, tap, pkgSets); !slices.Equal(done, []string{"add a", "delete c"}) {
			t.Errorf("carried out: %v", done)
		}
	}
	if hits, lasts := tap.lasting(); struck != 1 || hits != 3 || !lasts {
		t.Errorf("told %d times of %d hits, lasting %t", struck, hits, lasts)
	}
	tap.endTrouble()
	if done, _ := batch(t, tap, pkgSets); len(done) != 3 {
		t.Errorf("carried out after the end: %v", done)
	}
}

// A call that hangs ends with its context, or at its deadline.
func TestHangEnds(t *testing.T) {
	tap := newFaultProxy()
	if err := tap.plan(pkgRules, []string{"always", "hang"}); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if _, errs := batch(t, tap, pkgRules); !errors.Is(errs[0], context.DeadlineExceeded) || time.Since(start) < quickCall {
		t.Errorf("after %s: %v", time.Since(start), errs[0])
	}
	tap.kill()
	if _, errs := batch(t, tap, pkgRules); !errors.Is(errs[0], errDead) {
		t.Errorf("of a dead process: %v", errs[0])
	}
}
