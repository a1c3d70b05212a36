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

// wantErr checks the sentinel, and that the text says what it is about.
func wantErr(t *testing.T, err, sentinel error, words ...string) {
	t.Helper()
	if !errors.Is(err, sentinel) {
		t.Errorf("error %v does not match %v", err, sentinel)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}

// wantSave compares the client's content with lines of `ipset save`.
func wantSave(t *testing.T, c Client, lines ...string) {
	t.Helper()
	want := strings.Join(lines, "\n")
	if got := strings.TrimSuffix(save(t, c), "\n"); got != want {
		t.Errorf("content\n-want\n%s\n+got\n%s", want, got)
	}
}

func checkVersion(t *testing.T, s Subject) {
	v, err := s.Probe(t.Context())
	must(t, err)
	if v.Protocol < 6 || v.Min > 6 {
		t.Errorf("version %+v does not include 6", v)
	}
	_, err = s.Revision(t.Context(), "hash:nothing", ipset.IPv4)
	wantErr(t, err, ipset.ErrUnsupported, "hash:nothing")
	for _, sh := range shapes() {
		_, err := s.Revision(t.Context(), sh.set.Type, sh.set.Family)
		must(t, err)
	}
}

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

func checkCreateTwice(t *testing.T, s Subject) {
	set := hash("a", ipset.HashIP, ipset.IPv4)
	must(t, s.Create(t.Context(), set))
	wantErr(t, s.Create(t.Context(), set), ipset.ErrExist, "create a")
	set.Family = ipset.IPv6
	wantErr(t, s.Create(t.Context(), set), ipset.ErrExist, "create a")
}

func checkCreateInvalid(t *testing.T, s Subject) {
	for _, set := range []ipset.Set{
		{Name: "x"},
		{Name: "x", Type: "hash:net", Family: ipset.IPv4},
		{Name: "x", Type: ipset.HashIP},
		{Name: "x", Type: ipset.BitmapPort, Family: ipset.IPv4},
		{Name: "x", Type: ipset.HashIP, Family: ipset.IPv4, Options: "counters"},
	} {
		wantErr(t, s.Create(t.Context(), set), ipset.ErrInvalid, "create x")
	}
	wantSave(t, s)
}

func checkDefaults(t *testing.T, s Subject) {
	must(t,
		s.Create(t.Context(), hash("h", ipset.HashIPPort, ipset.IPv6)),
		s.Create(t.Context(), ipset.Set{Name: "p", Type: ipset.BitmapPort}),
		s.Create(t.Context(), ipset.Set{Name: "q", Type: ipset.BitmapPort, PortFrom: 30000, PortTo: 32767}),
		s.Create(t.Context(), ipset.Set{Name: "r", Type: ipset.HashIP, Family: ipset.IPv4, HashSize: 4096, MaxElem: 200000}))
	wantSave(t, s,
		"create h hash:ip,port family inet6 hashsize 1024 maxelem 65536",
		"create p bitmap:port range 0-65535",
		"create q bitmap:port range 30000-32767",
		"create r hash:ip family inet hashsize 4096 maxelem 200000")
}

func checkRounding(t *testing.T, s Subject) {
	for name, size := range map[string]uint32{"a": 1, "b": 1000, "c": 1025} {
		must(t, s.Create(t.Context(), ipset.Set{Name: name, Type: ipset.HashIP, Family: ipset.IPv4, HashSize: size}))
	}
	wantSave(t, s,
		"create a hash:ip family inet hashsize 64 maxelem 65536",
		"create b hash:ip family inet hashsize 1024 maxelem 65536",
		"create c hash:ip family inet hashsize 2048 maxelem 65536")
}

// checkNames matters for flush: the kernel takes no name for all sets.
func checkNames(t *testing.T, s Subject) {
	ctx := t.Context()
	longest := strings.Repeat("n", ipset.MaxNameLen)
	must(t, s.Create(ctx, hash(longest, ipset.HashIP, ipset.IPv4)), s.Add(ctx, longest, ipset.IP(netip.MustParseAddr("10.0.0.1"))))
	for _, name := range []string{"", longest + "n", "a b", "a\nb"} {
		_, _, err := s.List(ctx, name)
		for _, err := range []error{
			err, s.Create(ctx, hash(name, ipset.HashIP, ipset.IPv4)), s.Flush(ctx, name), s.Destroy(ctx, name),
			s.Add(ctx, name, ipset.IP(netip.MustParseAddr("10.0.0.1"))),
		} {
			wantErr(t, err, ipset.ErrInvalid)
		}
	}
	wantSave(t, s, "create "+longest+" hash:ip family inet hashsize 1024 maxelem 65536", "add "+longest+" 10.0.0.1")
}

func checkMissingSet(t *testing.T, s Subject) {
	ctx, e := t.Context(), ipset.IP(netip.MustParseAddr("10.0.0.1"))
	_, _, listErr := s.List(ctx, "gone")
	_, testErr := s.Test(ctx, "gone", e)
	writeErrs := s.Write(ctx, hash("gone", ipset.HashIP, ipset.IPv4), []ipset.Change{ipset.AddEntry(e), ipset.DeleteEntry(e)})
	if len(writeErrs) != 2 {
		t.Fatalf("Write = %v", writeErrs)
	}
	for op, err := range map[string]error{
		"list": listErr, "test": testErr, "destroy": s.Destroy(ctx, "gone"), "flush": s.Flush(ctx, "gone"),
		"swap": s.Swap(ctx, "gone", "gone2"), "rename": s.Rename(ctx, "gone", "gone2"),
		"add": s.Add(ctx, "gone", e), "delete": s.Delete(ctx, "gone", e),
		"add ": writeErrs[0], "delete ": writeErrs[1],
	} {
		if err == nil {
			t.Errorf("%s of a missing set succeeded", op)
			continue
		}
		wantErr(t, err, ipset.ErrNotExist, op, "gone")
	}
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
	yes := parse(t, set, "10.0.0.1,tcp:80,192.168.0.0/16", "10.0.0.1,tcp:80,192.168.1.0/24 nomatch", "10.0.0.1,tcp:80,192.168.1.7", "10.0.0.1,tcp:80,192.168.2.7")
	must(t, s.Add(t.Context(), "n", yes[:2]...))
	for i, want := range []bool{2: false, 3: true} {
		if i < 2 {
			continue
		}
		if in, err := s.Test(t.Context(), "n", yes[i]); err != nil || in != want {
			t.Errorf("Test(%s) = %t, %v, want %t", yes[i], in, err, want)
		}
	}
	plain := yes[1]
	plain.NoMatch = false
	if errs := s.Write(t.Context(), set, []ipset.Change{ipset.AddEntry(plain)}); errs != nil {
		t.Fatal(errs)
	}
	wantSave(t, s, set.SaveLine(), "add n "+yes[0].String(), "add n "+plain.String())
}

func checkFlush(t *testing.T, s Subject) {
	must(t,
		s.Create(t.Context(), ipset.Set{Name: "a", Type: ipset.BitmapPort}),
		s.Create(t.Context(), ipset.Set{Name: "b", Type: ipset.BitmapPort}),
		s.Add(t.Context(), "a", ipset.Port(1)), s.Add(t.Context(), "b", ipset.Port(2)),
		s.Flush(t.Context(), "a"))
	wantSave(t, s, "create a bitmap:port range 0-65535", "create b bitmap:port range 0-65535", "add b 2")
}

func checkSwap(t *testing.T, s Subject) {
	a, b := hash("a", ipset.HashIP, ipset.IPv4), hash("b", ipset.HashIP, ipset.IPv4)
	b.MaxElem = 10
	must(t, s.Create(t.Context(), a), s.Create(t.Context(), b),
		s.Add(t.Context(), "a", ipset.IP(netip.MustParseAddr("10.0.0.1"))), s.Swap(t.Context(), "a", "b"))
	wantSave(t, s,
		"create a hash:ip family inet hashsize 1024 maxelem 10",
		"create b hash:ip family inet hashsize 1024 maxelem 65536", "add b 10.0.0.1")
}

func checkSwapRefusals(t *testing.T, s Subject) {
	ctx := t.Context()
	must(t, s.Create(ctx, hash("v4", ipset.HashIP, ipset.IPv4)), s.Create(ctx, hash("v6", ipset.HashIP, ipset.IPv6)),
		s.Create(ctx, hash("port", ipset.HashIPPort, ipset.IPv4)))
	wantErr(t, s.Swap(ctx, "v4", "v6"), ipset.ErrUnsupported, "swap v4 and v6")
	wantErr(t, s.Swap(ctx, "v4", "port"), ipset.ErrUnsupported, "swap v4 and port")
	wantErr(t, s.Swap(ctx, "v4", "gone"), ipset.ErrNotExist, "swap v4 and gone")
	wantErr(t, s.Swap(ctx, "gone", "v4"), ipset.ErrNotExist, "swap gone and v4")
}

func checkRename(t *testing.T, s Subject) {
	ctx := t.Context()
	must(t, s.Create(ctx, hash("a", ipset.HashIP, ipset.IPv4)), s.Create(ctx, hash("b", ipset.HashIP, ipset.IPv4)))
	wantErr(t, s.Rename(ctx, "a", "b"), ipset.ErrExist, "rename a and b")
	must(t, s.Rename(ctx, "a", "c"))
	wantSave(t, s,
		"create b hash:ip family inet hashsize 1024 maxelem 65536", "create c hash:ip family inet hashsize 1024 maxelem 65536")
}

func checkReferenced(t *testing.T, s Subject) {
	ctx := t.Context()
	must(t, s.Create(ctx, hash("a", ipset.HashIP, ipset.IPv4)))
	s.Refer("a")
	wantErr(t, s.Destroy(ctx, "a"), ipset.ErrBusy, "destroy a")
	wantErr(t, s.Rename(ctx, "a", "b"), ipset.ErrBusy, "rename a and b")
	must(t, s.Flush(ctx, "a"))
}

func checkStat(t *testing.T, s Subject) {
	ctx := t.Context()
	must(t, s.Create(ctx, ipset.Set{Name: "a", Type: ipset.HashIP, Family: ipset.IPv4, MaxElem: 4}),
		s.Add(ctx, "a", ipset.IP(netip.MustParseAddr("10.0.0.1"))))
	s.Refer("a")
	infos, err := s.Stat(ctx)
	must(t, err)
	for _, i := range infos {
		if i.Set.Name != "a" {
			continue // the referring set may itself be one
		}
		if i.Elements != 1 || i.References != 1 || i.Fill() != 0.25 {
			t.Errorf("Stat = %+v, fill %v", i, i.Fill())
		}
		return
	}
	t.Errorf("set a is not in %+v", infos)
}

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
