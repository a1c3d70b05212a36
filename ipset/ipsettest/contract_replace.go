package ipsettest

import (
	"net/netip"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/ipset"
)

func checkReplaceGrows(t *testing.T, s Subject) {
	ctx := t.Context()
	set := ipset.Set{Name: "a", Type: ipset.HashIPPort, Family: ipset.IPv4, MaxElem: 1}
	entries := parse(t, set, "10.0.0.1,tcp:80", "10.0.0.2,tcp:80")
	must(t, s.Create(ctx, set), s.Add(ctx, "a", entries[0]))
	s.Refer("a")
	set.MaxElem = 1000
	must(t, s.Replace(ctx, set, entries))
	got, list, err := s.List(ctx, "a")
	must(t, err)
	if got.MaxElem != 1000 || len(list) != 2 {
		t.Errorf("List = %+v %v", got, list)
	}
	_, _, err = s.List(ctx, ipset.TempName("a"))
	wantErr(t, err, ipset.ErrNotExist)
	wantErr(t, s.Destroy(ctx, "a"), ipset.ErrBusy)
}

func checkReplaceCreates(t *testing.T, s Subject) {
	set := hash("a", ipset.HashIP, ipset.IPv6)
	must(t, s.Replace(t.Context(), set, parse(t, set, "fd00::1")))
	wantSave(t, s, set.SaveLine(), "add a fd00::1")
}

func checkReplaceOtherType(t *testing.T, s Subject) {
	must(t, s.Create(t.Context(), hash("a", ipset.HashIP, ipset.IPv6)))
	set := hash("a", ipset.HashIPPort, ipset.IPv4)
	must(t, s.Replace(t.Context(), set, parse(t, set, "10.0.0.1,tcp:80")))
	wantSave(t, s, set.SaveLine(), "add a 10.0.0.1,tcp:80")
}

func checkReplaceReferenced(t *testing.T, s Subject) {
	old := hash("a", ipset.HashIP, ipset.IPv4)
	must(t, s.Create(t.Context(), old))
	s.Refer("a")
	err := s.Replace(t.Context(), ipset.Set{Name: "a", Type: ipset.BitmapPort}, nil)
	wantErr(t, err, ipset.ErrUnsupported, "replace a")
	wantErr(t, err, ipset.ErrBusy)
	got, _, err := s.List(t.Context(), "a")
	must(t, err)
	if !old.Compatible(got) {
		t.Errorf("set is %+v after a refused replace", got)
	}
	_, _, err = s.List(t.Context(), ipset.TempName("a"))
	wantErr(t, err, ipset.ErrNotExist)
}

func checkReplaceBadEntry(t *testing.T, s Subject) {
	set := hash("a", ipset.HashIP, ipset.IPv4)
	good, bad := ipset.IP(netip.MustParseAddr("10.0.0.1")), ipset.IP(netip.MustParseAddr("fd00::1"))
	must(t, s.Create(t.Context(), set), s.Add(t.Context(), "a", good))
	err := s.Replace(t.Context(), set, []ipset.Entry{bad, good, bad})
	wantErr(t, err, ipset.ErrInvalid, "replace a", "fd00::1", "1 more")
	wantSave(t, s, set.SaveLine(), "add a 10.0.0.1")
}

func checkReplaceLeftOver(t *testing.T, s Subject) {
	must(t, s.Create(t.Context(), hash(ipset.TempName("a"), ipset.HashIP, ipset.IPv6)))
	set := ipset.Set{Name: "a", Type: ipset.BitmapPort}
	must(t, s.Replace(t.Context(), set, []ipset.Entry{ipset.Port(1)}))
	wantSave(t, s, set.SaveLine(), "add a 1")
}
