package ipset_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/ipset"
)

func TestLongListIsComplete(t *testing.T) {
	h := openKernel(t)
	set := ipset.Set{Name: "long", Type: ipset.HashIPPort, Family: ipset.IPv6, MaxElem: 100_000}
	if err := h.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	size := 70_000 // more than a set takes by default
	if os.Getenv("KUBE_IPVS_WHERE") == "vm" {
		size = 10_000 // an emulated machine is slow; that is many datagrams still
	}
	t.Logf("%d entries", size)
	changes := manyChanges(size)
	if errs := h.Write(t.Context(), set, changes); errs != nil {
		t.Fatal(errors.Join(errs...))
	}
	want := map[ipset.Entry]bool{}
	for _, c := range changes {
		want[c.Entry] = true
	}
	got, entries, err := h.List(t.Context(), "long")
	if err != nil {
		t.Fatal(err)
	}
	if !set.Compatible(got) || len(entries) != len(want) {
		t.Fatalf("listed %+v with %d entries, wrote %d", got, len(entries), len(want))
	}
	for _, e := range entries {
		if !want[e] {
			t.Fatalf("listed %s, which was not written", e)
		}
	}
	if diff := cmp.Diff(saved(t, h), normalize(t, tool(t, "", "save"))); diff != "" {
		t.Errorf("ipset save of %d entries differs: %.500s", size, diff)
	}
}

// manyChanges adds n different IPv6 services.
func manyChanges(n int) []ipset.Change {
	changes := make([]ipset.Change, n)
	for i := range changes {
		a := netip.AddrFrom16([16]byte{0xfd, 13: byte(i >> 16), 14: byte(i >> 8), 15: byte(i)})
		changes[i] = ipset.AddEntry(ipset.IPPort(a, ipset.TCP, 80))
	}
	return changes
}

func TestHundredSets(t *testing.T) {
	h := openKernel(t)
	var want strings.Builder
	for i := range 100 {
		set := ipset.Set{Name: fmt.Sprintf("set-%03d", i), Type: ipset.HashIP, Family: ipset.IPv4}
		e := ipset.IP(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}))
		if err := errors.Join(h.Create(t.Context(), set), h.Add(t.Context(), set.Name, e)); err != nil {
			t.Fatal(err)
		}
		want.WriteString(set.SaveLine() + "\n" + e.SaveLine(set.Name) + "\n")
	}
	if diff := cmp.Diff(want.String(), saved(t, h)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The kernel counts maxelem by regions: a grown set is never full before the limit and takes a
// little more after it. Refused entries must be reported row by row, and accepted entries must be
// in the set.
func TestFullSetOfDefaultSize(t *testing.T) {
	h := openKernel(t)
	set := ipset.Set{Name: "full", Type: ipset.HashIPPort, Family: ipset.IPv6}
	if err := h.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	changes := manyChanges(75_000)
	errs := h.Write(t.Context(), set, changes)
	refused := map[ipset.Entry]bool{}
	for i, err := range errs {
		switch {
		case err == nil:
		case !errors.Is(err, ipset.ErrFull):
			t.Fatal(err)
		case i < ipset.DefaultMaxElem:
			t.Fatalf("row %d is refused below maxelem: %v", i, err)
		default:
			refused[changes[i].Entry] = true
		}
	}
	_, entries, err := h.List(t.Context(), "full")
	if err != nil {
		t.Fatal(err)
	}
	if len(refused) == 0 || len(entries)+len(refused) != len(changes) {
		t.Fatalf("%d written, %d refused, %d listed", len(changes), len(refused), len(entries))
	}
	for _, e := range entries {
		if refused[e] {
			t.Fatalf("%s is listed and was refused", e)
		}
	}
}
