package ipsettest_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/ipset"
	"github.com/kube-ipvs/kube-ipvs/ipset/ipsettest"
)

var ports = ipset.Set{Name: "p", Type: ipset.BitmapPort}

// withPorts returns a fake with one set of three ports.
func withPorts(t *testing.T) *ipsettest.Fake {
	t.Helper()
	f := ipsettest.New()
	if err := f.Create(t.Context(), ports); err != nil {
		t.Fatal(err)
	}
	if err := f.Add(t.Context(), "p", ipset.Port(1), ipset.Port(2), ipset.Port(3)); err != nil {
		t.Fatal(err)
	}
	return f
}

var errBroken = errors.New("broken")

func adds(n uint16) []ipset.Change {
	var changes []ipset.Change
	for port := range n {
		changes = append(changes, ipset.AddEntry(ipset.Port(100+port)))
	}
	return changes
}

func TestFaultsPickTheirCalls(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fault ipsettest.Fault
		want  []bool // per row of a write of three: failed
	}{
		{"always", ipsettest.Fault{Err: errBroken}, []bool{true, true, true}},
		{"second", ipsettest.Fault{Nth: 2, Err: errBroken}, []bool{false, true, false}},
		{"this entry", ipsettest.Fault{Entry: "102", Err: errBroken}, []bool{false, false, true}},
		{"this operation", ipsettest.Fault{Op: ipset.OpAdd, Err: errBroken}, []bool{true, true, true}},
		{"other operation", ipsettest.Fault{Op: ipset.OpDelete, Err: errBroken}, nil},
		{"other set", ipsettest.Fault{Set: "q", Err: errBroken}, nil},
		{"fourth of three", ipsettest.Fault{Nth: 4, Err: errBroken}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := withPorts(t)
			f.Inject(tt.fault)
			var got []bool
			for _, err := range f.Write(t.Context(), ports, adds(3)) {
				got = append(got, errors.Is(err, errBroken))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("failed rows (-want +got):\n%s", diff)
			}
			f.Heal()
			if errs := f.Write(t.Context(), ports, adds(3)); errs != nil {
				t.Errorf("after Heal: %v", errs)
			}
		})
	}
}

func TestFailedCallHasNoEffect(t *testing.T) {
	f := withPorts(t)
	before := f.String()
	f.Inject(ipsettest.Fault{Err: errBroken})
	_, listErr := f.ListSets(t.Context())
	_, _, oneErr := f.List(t.Context(), "p")
	_, probeErr := f.Probe(t.Context())
	_, revErr := f.Revision(t.Context(), ipset.HashIP, ipset.IPv4)
	for _, err := range []error{
		listErr, oneErr, probeErr, revErr, f.Flush(t.Context(), "p"), f.Destroy(t.Context(), "p"),
		f.Rename(t.Context(), "p", "q"), f.Delete(t.Context(), "p", ipset.Port(1)), f.Replace(t.Context(), ports, nil),
	} {
		if !errors.Is(err, errBroken) {
			t.Errorf("error %v", err)
		}
	}
	if diff := cmp.Diff(before, f.String()); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

func TestDropHidesEntriesFromLists(t *testing.T) {
	f := withPorts(t)
	f.Inject(ipsettest.Fault{Nth: 2, Drop: func(e ipset.Entry) bool { return e.Port == 2 }})
	for i, want := range []int{3, 2, 3} {
		_, entries, err := f.List(t.Context(), "p")
		if err != nil || len(entries) != want {
			t.Errorf("list %d: %v, %v, want %d entries", i, entries, err, want)
		}
	}
}

func TestHangEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := withPorts(t)
		f.Inject(ipsettest.Fault{Entry: "101", Hang: true})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		errs := f.Write(ctx, ports, adds(3))
		if len(errs) != 3 || errs[0] != nil {
			t.Fatalf("Write = %v", errs)
		}
		for _, err := range errs[1:] {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("row after the hang: %v", err)
			}
		}
	})
}

// A test can look at the fake while the code under test hangs in it.
func TestHangLetsOthersIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := withPorts(t)
		f.Inject(ipsettest.Fault{Op: ipset.OpFlush, Hang: true})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- f.Flush(ctx, "p") }()
		synctest.Wait() // until the flush hangs
		if n := f.Counts().Calls[ipset.OpFlush]; n != 1 {
			t.Errorf("%d flushes counted", n)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Flush = %v", err)
		}
	})
}

func TestCounts(t *testing.T) {
	f := withPorts(t)
	if errs := f.Write(t.Context(), ports, append(adds(2), ipset.DeleteEntry(ipset.Port(1)))); errs != nil {
		t.Fatal(errs)
	}
	got := f.Counts()
	want := ipsettest.Counts{
		Calls:  map[ipset.Op]int{ipset.OpCreate: 1, ipset.OpAdd: 5, ipset.OpDelete: 1},
		Writes: 1, Rows: 3,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got.Calls[ipset.OpAdd] = 0
	if f.Counts().Calls[ipset.OpAdd] != 5 {
		t.Error("the counters can be changed from outside")
	}
}

func TestPlantedSetsAreFound(t *testing.T) {
	f := withPorts(t)
	f.Plant(ipset.Set{Name: "nets", Type: "hash:net", Family: ipset.IPv4, HashSize: 1024, MaxElem: 65536})
	f.Plant(ipset.Set{Name: "p", Type: ipset.BitmapPort, PortTo: 9, Options: "counters"}, ipset.Port(9))
	want := `create nets hash:net family inet hashsize 1024 maxelem 65536
create p bitmap:port range 0-9 counters
add p 9
`
	if diff := cmp.Diff(want, f.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	set, _, err := f.List(t.Context(), "nets")
	if !errors.Is(err, ipset.ErrUnsupported) || set.Type != "hash:net" {
		t.Errorf("List = %+v, %v", set, err)
	}
}

func TestSetsKeepTheKernelsOrder(t *testing.T) {
	f := withPorts(t)
	for _, name := range []string{"b", "a"} {
		if err := f.Create(t.Context(), ipset.Set{Name: name, Type: ipset.BitmapPort}); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Destroy(t.Context(), "p"); err != nil {
		t.Fatal(err)
	}
	if err := f.Create(t.Context(), ipset.Set{Name: "z", Type: ipset.BitmapPort}); err != nil {
		t.Fatal(err)
	}
	sets, err := f.ListSets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range sets {
		names = append(names, s.Name)
	}
	if diff := cmp.Diff([]string{"z", "b", "a"}, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestClosedFakeRefuses(t *testing.T) {
	f := withPorts(t)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Flush(t.Context(), "p"); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Flush = %v", err)
	}
}

func TestReferringToNothingPanics(t *testing.T) {
	for name, refer := range map[string]func(*ipsettest.Fake){
		"missing set":       func(f *ipsettest.Fake) { f.Refer("gone", 1) },
		"missing reference": func(f *ipsettest.Fake) { f.Refer("p", -1) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic: the test that did this would go on wrong")
				}
			}()
			refer(withPorts(t))
		})
	}
}
