package scheduler_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		name, in, flags string
		want            string
		bits            uint32
		err             error
	}{
		{name: "plain", in: "rr", want: "rr"},
		{name: "empty means the default", in: "", want: "rr"},
		{name: "blanks and case", in: " WLC ", want: "wlc"},
		{name: "mh gets both flags", in: "mh", want: "mh (mh-fallback,mh-port)", bits: 0x18},
		{name: "mh with one flag keeps one", in: "mh", flags: "mh-port", want: "mh (mh-port)", bits: 0x10},
		{name: "sh gets its fallback", in: "sh", want: "sh (sh-fallback)", bits: 0x08},
		{name: "sh with both", in: "sh", flags: " sh-port , SH-fallback,", want: "sh (sh-fallback,sh-port)", bits: 0x18},
		{name: "no such algorithm", in: "random", err: scheduler.ErrUnknown},
		{name: "flag of another algorithm", in: "sh", flags: "mh-port", err: scheduler.ErrFlag},
		{name: "flag where none is known", in: "rr", flags: "sh-port", err: scheduler.ErrFlag},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := scheduler.Parse(tt.in, tt.flags)
			if !errors.Is(err, tt.err) {
				t.Fatalf("error %v, want %v", err, tt.err)
			}
			if got.String() != tt.want || got.KernelFlags() != tt.bits {
				t.Errorf("got %q %#x, want %q %#x", got, got.KernelFlags(), tt.want, tt.bits)
			}
		})
	}
}

func TestBadNameListsTheGoodOnes(t *testing.T) {
	_, err := scheduler.Parse("ip_vs_rr", "")
	for _, name := range scheduler.Names() {
		if err == nil || !strings.Contains(err.Error(), " "+name) {
			t.Errorf("%v does not offer %q", err, name)
		}
	}
}

func TestBadFlagSaysWhatIsPossible(t *testing.T) {
	_, err := scheduler.Parse("mh", "sticky")
	if want := `unknown scheduler flag "sticky" for scheduler "mh": use mh-fallback or mh-port`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestAlgorithmsAreComplete(t *testing.T) {
	want := []string{"rr", "wrr", "lc", "wlc", "lblc", "lblcr", "sh", "dh", "sed", "nq", "mh", "fo", "ovf", "twos"}
	if diff := cmp.Diff(want, scheduler.Names()); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	for _, a := range scheduler.Algorithms() {
		if a.Module != "ip_vs_"+a.Name || a.Summary == "" || len(a.Name) > 15 {
			t.Errorf("incomplete: %+v", a)
		}
		if got := scheduler.MustParse(a.Name).Algorithm().Name; got != a.Name {
			t.Errorf("%s leads to %s", a.Name, got)
		}
	}
}

func TestCallersCannotChangeTheData(t *testing.T) {
	scheduler.Algorithms()[6].Flags[0] = "broken"
	a, _ := scheduler.Lookup("sh")
	if a.Flags[0] == "broken" {
		t.Error("the package's own data was changed")
	}
}

func TestWeightRules(t *testing.T) {
	want := map[string]string{
		"rr": "ignored", "wrr": "share", "lc": "ignored", "wlc": "share", "lblc": "share", "lblcr": "share",
		"sh": "share", "dh": "ignored", "sed": "share", "nq": "share", "mh": "share", "fo": "rank", "ovf": "limit", "twos": "share",
	}
	got := map[string]string{}
	for _, a := range scheduler.Algorithms() {
		got[a.Name] = a.Weight.String()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("weight rules (-want +got):\n%s", diff)
	}
}

func TestZeroSpec(t *testing.T) {
	var s scheduler.Spec
	if !s.IsZero() || s.String() != "" || s.Algorithm().Name != "" {
		t.Errorf("zero Spec is %q", s)
	}
}

func TestMustParsePanicsOnNonsense(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	scheduler.MustParse("nonsense")
}

// For any input Parse either returns an error or a Spec that prints as a known algorithm.
func FuzzParse(f *testing.F) {
	f.Add("mh", "mh-port")
	f.Add("rr", "")
	f.Fuzz(func(t *testing.T, name, flags string) {
		s, err := scheduler.Parse(name, flags)
		if (err == nil) == s.IsZero() {
			t.Fatalf("%q %q: spec %q with error %v", name, flags, s, err)
		}
	})
}
