package ipsettest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// checkMembers takes one type through its life.
func checkMembers(t *testing.T, s Subject, sh shape) {
	ctx, name := t.Context(), sh.set.Name
	must(t, s.Create(ctx, sh.set))
	entries := parse(t, sh.set, sh.entries...)
	must(t, s.Add(ctx, name, entries...))
	lines := []string{sh.set.SaveLine()}
	for _, text := range sh.entries {
		lines = append(lines, "add "+name+" "+text)
	}
	normal, err := ipset.NormalizeSave(strings.Join(lines, "\n"))
	must(t, err)
	wantSave(t, s, strings.Split(strings.TrimSuffix(normal, "\n"), "\n")...)

	for _, e := range entries {
		if in, err := s.Test(ctx, name, e); err != nil || !in {
			t.Errorf("Test(%s) = %t, %v", e, in, err)
		}
	}
	errs := s.Write(ctx, sh.set, []ipset.Change{ipset.DeleteEntry(entries[0]), ipset.AddEntry(sh.strange)})
	if len(errs) != 2 || errs[0] != nil {
		t.Fatalf("Write = %v", errs)
	}
	wantErr(t, errs[1], ipset.ErrInvalid, "add "+sh.strange.String()+" to "+name)
	if in, err := s.Test(ctx, name, entries[0]); err != nil || in {
		t.Errorf("Test after delete = %t, %v", in, err)
	}
	must(t, s.Delete(ctx, name, entries[1:]...))
	wantSave(t, s, sh.set.SaveLine())
	must(t, s.Destroy(ctx, name))
	wantSave(t, s)
}

func checkStrict(t *testing.T, s Subject) {
	ctx, a, b := t.Context(), ipset.IP(netip.MustParseAddr("10.0.0.1")), ipset.IP(netip.MustParseAddr("10.0.0.2"))
	must(t, s.Create(ctx, hash("a", ipset.HashIP, ipset.IPv4)), s.Add(ctx, "a", a))
	wantErr(t, s.Add(ctx, "a", a, b), ipset.ErrExist, "add 10.0.0.1 to a")
	wantErr(t, s.Delete(ctx, "a", b, a), ipset.ErrNotExist, "delete 10.0.0.2 from a")
	wantSave(t, s, "create a hash:ip family inet hashsize 1024 maxelem 65536", "add a 10.0.0.1")
}

// checkWrongShape guards against fields that would be dropped on the way.
func checkWrongShape(t *testing.T, s Subject) {
	ctx, addr := t.Context(), netip.MustParseAddr("10.0.0.1")
	must(t, s.Create(ctx, hash("a", ipset.HashIP, ipset.IPv4)))
	for _, e := range []ipset.Entry{ipset.IPPort(addr, ipset.TCP, 80), ipset.IP(netip.IPv4Unspecified()), ipset.Port(80), {}} {
		wantErr(t, s.Add(ctx, "a", e), ipset.ErrInvalid, "add "+e.String()+" to a")
	}
	wantErr(t, s.Delete(ctx, "a", ipset.Port(80)), ipset.ErrInvalid, "delete 80 from a")
	wantSave(t, s, "create a hash:ip family inet hashsize 1024 maxelem 65536")
}

func checkConverges(t *testing.T, s Subject) {
	set := hash("a", ipset.HashIPPort, ipset.IPv4)
	entries := parse(t, set, "10.0.0.1,tcp:80", "10.0.0.2,tcp:80")
	must(t, s.Create(t.Context(), set))
	changes := []ipset.Change{ipset.AddEntry(entries[0]), ipset.DeleteEntry(entries[1])}
	for range 2 {
		if errs := s.Write(t.Context(), set, changes); errs != nil {
			t.Errorf("Write = %v, want nil", errs)
		}
	}
	wantSave(t, s, set.SaveLine(), "add a 10.0.0.1,tcp:80")
}

// checkRows mixes good and bad rows so that a refusal stands at the start, in
// the middle and at the end of a message.
func checkRows(t *testing.T, s Subject) {
	set := hash("a", ipset.HashIPPort, ipset.IPv4)
	must(t, s.Create(t.Context(), set))
	bad := ipset.IPPort(netip.MustParseAddr("::1"), ipset.TCP, 80)
	good := parse(t, set, "10.0.0.1,tcp:80", "10.0.0.2,tcp:80")
	changes := []ipset.Change{
		ipset.AddEntry(bad), ipset.AddEntry(good[0]), {Op: ipset.OpFlush, Entry: good[0]}, ipset.AddEntry(good[1]), ipset.AddEntry(bad),
	}
	errs := s.Write(t.Context(), set, changes)
	if len(errs) != len(changes) || errs[1] != nil || errs[3] != nil {
		t.Fatalf("Write = %v", errs)
	}
	for _, i := range []int{0, 2, 4} {
		wantErr(t, errs[i], ipset.ErrInvalid, " a: ", changes[i].Entry.String())
	}
	wantSave(t, s, set.SaveLine(), "add a 10.0.0.1,tcp:80", "add a 10.0.0.2,tcp:80")
}

func checkWriteNothing(t *testing.T, s Subject) {
	if errs := s.Write(t.Context(), hash("missing", ipset.HashIP, ipset.IPv4), nil); errs != nil {
		t.Errorf("Write of nothing = %v", errs)
	}
}

func checkWriteOtherType(t *testing.T, s Subject) {
	found := hash("a", ipset.HashIP, ipset.IPv4)
	must(t, s.Create(t.Context(), found))
	wanted := hash("a", ipset.HashIPPort, ipset.IPv4)
	errs := s.Write(t.Context(), wanted, []ipset.Change{ipset.AddEntry(parse(t, wanted, "10.0.0.1,tcp:80")[0])})
	if len(errs) != 1 {
		t.Fatalf("Write = %v", errs)
	}
	wantErr(t, errs[0], ipset.ErrInvalid, "hash:ip")
	wantSave(t, s, found.SaveLine())
}

func checkWriteOrder(t *testing.T, s Subject) {
	set := ipset.Set{Name: "p", Type: ipset.BitmapPort}
	must(t, s.Create(t.Context(), set))
	a, b := ipset.Port(1), ipset.Port(2)
	changes := []ipset.Change{ipset.AddEntry(a), ipset.DeleteEntry(a), ipset.DeleteEntry(b), ipset.AddEntry(b)}
	if errs := s.Write(t.Context(), set, changes); errs != nil {
		t.Fatal(errs)
	}
	wantSave(t, s, set.SaveLine(), "add p 2")
}

// checkManyRuns writes more than several messages hold.
func checkManyRuns(t *testing.T, s Subject) {
	set := hash("a", ipset.HashIPPortNet, ipset.IPv6)
	must(t, s.Create(t.Context(), set))
	const n = 3000
	changes := make([]ipset.Change, n)
	for i := range changes {
		changes[i] = ipset.AddEntry(parse(t, set, fmt.Sprintf("fd00::%x,tcp:80,fd01:%x::/32", i, i))[0])
	}
	if errs := s.Write(t.Context(), set, changes); errs != nil {
		t.Fatal(errs)
	}
	_, entries, err := s.List(t.Context(), "a")
	must(t, err)
	if len(entries) != n {
		t.Errorf("%d entries listed, %d written", len(entries), n)
	}
}

// checkWriteAll writes to sets of which some are not there, have another type or refuse rows, in
// several messages: none of that is anything to the others.
func checkWriteAll(t *testing.T, s Subject) {
	ports, small := ipset.Set{Name: "p", Type: ipset.BitmapPort, PortFrom: 0, PortTo: 2000}, ipset.Set{Name: "small", Type: ipset.BitmapPort, PortFrom: 10, PortTo: 20}
	found, wanted := hash("other", ipset.HashIP, ipset.IPv4), hash("other", ipset.HashIPPort, ipset.IPv4)
	found6, wanted4 := hash("six", ipset.HashIP, ipset.IPv6), hash("six", ipset.HashIP, ipset.IPv4)
	for _, set := range []ipset.Set{ports, small, found, found6} {
		must(t, s.Create(t.Context(), set))
	}
	var many []ipset.Change
	for port := range uint16(1200) {
		many = append(many, ipset.AddEntry(ipset.Port(port)))
	}
	for port := range uint16(1199) {
		many = append(many, ipset.DeleteEntry(ipset.Port(port)))
	}
	claimed := ipset.Set{Name: "small", Type: ipset.BitmapPort}
	add := func(ports ...uint16) (c []ipset.Change) {
		for _, port := range ports {
			c = append(c, ipset.AddEntry(ipset.Port(port)))
		}
		return c
	}
	errs := s.WriteAll(t.Context(),
		ipset.Batch{Set: ipset.Set{Name: "gone", Type: ipset.BitmapPort}, Changes: add(1)},
		ipset.Batch{Set: claimed, Changes: add(10, 9, 15, 21, 20)},
		ipset.Batch{Set: wanted, Changes: []ipset.Change{ipset.AddEntry(parse(t, wanted, "10.0.0.1,tcp:80")[0])}},
		ipset.Batch{Set: ports, Changes: many},
		ipset.Batch{Set: found},
		ipset.Batch{Set: wanted4, Changes: []ipset.Change{ipset.AddEntry(parse(t, wanted4, "10.0.0.1")[0])}},
	)
	if len(errs) != 6 || len(errs[5]) != 1 || len(errs[0]) != 1 || len(errs[1]) != 5 || len(errs[2]) != 1 || errs[3] != nil || errs[4] != nil {
		t.Fatalf("WriteAll = %v", errs)
	}
	wantErr(t, errs[0][0], ipset.ErrNotExist, "add 1 to gone")
	wantErr(t, errs[2][0], ipset.ErrInvalid, "hash:ip")
	wantErr(t, errs[5][0], ipset.ErrInvalid, "inet6")
	for i, err := range errs[1] {
		if i%2 == 0 {
			must(t, err)
		} else {
			wantErr(t, err, ipset.ErrInvalid, "to small")
		}
	}
	wantSave(t, s, found.SaveLine(), ports.SaveLine(), "add p 1199", found6.SaveLine(), small.SaveLine(), "add small 10", "add small 15", "add small 20")
	if errs := s.WriteAll(t.Context()); len(errs) != 0 {
		t.Errorf("WriteAll of nothing = %v", errs)
	}
}

// checkWriteAllMany writes to more sets than are asked for at once, each with more than goes out with
// others.
func checkWriteAllMany(t *testing.T, s Subject) {
	var batches []ipset.Batch
	for i := range 70 {
		set := hash(fmt.Sprintf("s%02d", i), ipset.HashIPPort, ipset.IPv4)
		must(t, s.Create(t.Context(), set))
		b := ipset.Batch{Set: set}
		for j := range 10 + 8*i {
			b.Changes = append(b.Changes, ipset.AddEntry(ipset.IPPort(netip.AddrFrom4([4]byte{10, byte(i), byte(j >> 8), byte(j)}), ipset.TCP, 80)))
		}
		batches = append(batches, b)
	}
	for i, errs := range s.WriteAll(t.Context(), batches...) {
		must(t, errors.Join(errs...))
		_, entries, err := s.List(t.Context(), batches[i].Set.Name)
		must(t, err)
		if len(entries) != len(batches[i].Changes) {
			t.Errorf("%s has %d entries, %d were written", batches[i].Set.Name, len(entries), len(batches[i].Changes))
		}
	}
}

// checkFull writes a batch over the brim, alone and with deletions behind it.
func checkFull(t *testing.T, s Subject) {
	set := ipset.Set{Name: "a", Type: ipset.HashIP, Family: ipset.IPv4, HashSize: 64, MaxElem: 100}
	must(t, s.Create(t.Context(), set))
	changes := make([]ipset.Change, 301)
	for i := range 300 {
		changes[i] = ipset.AddEntry(ipset.IP(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})))
	}
	changes[300] = ipset.DeleteEntry(changes[0].Entry)
	errs := s.Write(t.Context(), set, changes)
	if len(errs) != len(changes) {
		t.Fatalf("%d results for %d changes", len(errs), len(changes))
	}
	for i, err := range errs {
		if full := i >= 100 && i < 300; full != (err != nil) {
			t.Fatalf("row %d: %v", i, err)
		} else if full {
			wantErr(t, err, ipset.ErrFull, "add 10.0.", "to a: set is full")
		}
	}
	must(t, s.Add(t.Context(), "a", changes[200].Entry))
	// Which of the next ones fits is the kernel's business: it takes the slot of a
	// deleted entry again even when the set is full.
	again := s.Write(t.Context(), set, changes[201:300])
	if !slices.ContainsFunc(again, func(err error) bool { return errors.Is(err, ipset.ErrFull) }) {
		t.Errorf("99 more entries went into a full set")
	}
}

// checkPortRange writes with a header that claims more than the kernel's set
// has, so that the refusals come from the kernel, in the middle of a message.
func checkPortRange(t *testing.T, s Subject) {
	set := ipset.Set{Name: "p", Type: ipset.BitmapPort, PortFrom: 10, PortTo: 20}
	must(t, s.Create(t.Context(), set))
	claimed := ipset.Set{Name: "p", Type: ipset.BitmapPort}
	var changes []ipset.Change
	for _, port := range []uint16{10, 21, 15, 9, 20, 30} {
		changes = append(changes, ipset.AddEntry(ipset.Port(port)))
	}
	errs := s.Write(t.Context(), claimed, changes)
	if len(errs) != len(changes) {
		t.Fatalf("Write = %v", errs)
	}
	for i, err := range errs {
		if i%2 == 0 {
			must(t, err)
		} else {
			wantErr(t, err, ipset.ErrInvalid, "add "+changes[i].Entry.String()+" to p")
		}
	}
	wantSave(t, s, set.SaveLine(), "add p 10", "add p 15", "add p 20")
}

func checkNoMatch(t *testing.T, s Subject) {
	set := hash("n", ipset.HashIPPortNet, ipset.IPv4)
	must(t, s.Create(t.Context(), set))
	entries := parse(t, set, "10.0.0.1,tcp:80,192.168.0.0/16", "10.0.0.1,tcp:80,192.168.1.0/24 nomatch", "10.0.0.1,tcp:80,192.168.1.7", "10.0.0.1,tcp:80,192.168.2.7")
	wide, hole, inHole, beside := entries[0], entries[1], entries[2], entries[3]
	must(t, s.Add(t.Context(), "n", wide, hole))
	for e, want := range map[ipset.Entry]bool{inHole: false, beside: true} {
		if in, err := s.Test(t.Context(), "n", e); err != nil || in != want {
			t.Errorf("Test(%s) = %t, %v, want %t", e, in, err, want)
		}
	}
	plain := hole
	plain.NoMatch = false
	if errs := s.Write(t.Context(), set, []ipset.Change{ipset.AddEntry(plain)}); errs != nil {
		t.Fatal(errs)
	}
	wantSave(t, s, set.SaveLine(), "add n "+wide.String(), "add n "+plain.String())
}

func checkCancelled(t *testing.T, s Subject) {
	set := hash("a", ipset.HashIP, ipset.IPv4)
	must(t, s.Create(t.Context(), set))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e := ipset.IP(netip.MustParseAddr("10.0.0.1"))
	errs := s.Write(ctx, set, []ipset.Change{ipset.AddEntry(e), ipset.AddEntry(e)})
	if len(errs) != 2 {
		t.Fatalf("Write = %v", errs)
	}
	_, _, listErr := s.List(ctx, "a")
	for _, err := range append(errs, listErr, s.Add(ctx, "a", e), s.Destroy(ctx, "a")) {
		wantErr(t, err, context.Canceled, "a")
	}
	wantSave(t, s, set.SaveLine())
}
