package ipsettest

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/ipset"
)

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

// checkCreateAll makes more sets than go out at once, among them some that cannot be made, which
// are nothing to the others.
func checkCreateAll(t *testing.T, s Subject) {
	must(t, errors.Join(s.CreateAll(t.Context())...), s.Create(t.Context(), hash("s07", ipset.HashIP, ipset.IPv4)))
	var sets []ipset.Set
	for i := range 70 {
		sets = append(sets, hash(fmt.Sprintf("s%02d", i), ipset.HashIPPort, ipset.IPv6))
	}
	sets[3].Type = "hash:net"
	sets[40].Name = sets[39].Name
	errs := s.CreateAll(t.Context(), sets...)
	if len(errs) != len(sets) {
		t.Fatalf("CreateAll = %v", errs)
	}
	for i, err := range errs {
		switch i {
		case 3:
			wantErr(t, err, ipset.ErrInvalid, "create s03")
		case 7, 40:
			wantErr(t, err, ipset.ErrExist, "create "+sets[i].Name)
		default:
			must(t, err)
		}
	}
	made, err := s.ListSets(t.Context())
	must(t, err)
	if len(made) != len(sets)-2 {
		t.Errorf("%d sets are there, want %d", len(made), len(sets)-2)
	}
	must(t, errors.Join(s.CreateAll(t.Context(), hash("t0", ipset.HashIP, ipset.IPv4), ipset.Set{Name: "t1", Type: ipset.BitmapPort})...))
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

// checkExpire adds entries that the kernel deletes by itself, to either kind of set.
func checkExpire(t *testing.T, s Subject) {
	for _, set := range []ipset.Set{hash("e4", ipset.HashIPPort, ipset.IPv4), {Name: "ep", Type: ipset.BitmapPort}} {
		lasting := set
		lasting.Name += "-lasting"
		set.Timeout = 1
		text := map[bool]string{true: "10.96.0.1,tcp:80", false: "80"}[set.Type.Hash()]
		must(t, s.Create(t.Context(), set), s.Create(t.Context(), lasting))
		e := parse(t, set, text)
		must(t, errors.Join(s.Write(t.Context(), set, []ipset.Change{ipset.AddEntry(e[0])})...), s.Add(t.Context(), lasting.Name, e...))
		header, entries, err := s.List(t.Context(), set.Name)
		must(t, err)
		if !set.Compatible(header) || lasting.Compatible(header) || len(entries) > 1 {
			t.Errorf("List = %+v, %v, want a time-out of 1 s", header, entries)
		}
		gone := func() bool {
			_, entries, err := s.List(t.Context(), set.Name)
			must(t, err)
			return len(entries) == 0
		}
		for began := time.Now(); !gone(); time.Sleep(50 * time.Millisecond) {
			if time.Since(began) > time.Minute {
				t.Fatalf("%s: the entry is still there", set.Name)
			}
		}
		if there, err := s.Test(t.Context(), lasting.Name, e[0]); err != nil || !there {
			t.Errorf("%s: Test = %t, %v", lasting.Name, there, err)
		}
		must(t, errors.Join(s.Write(t.Context(), set, []ipset.Change{ipset.DeleteEntry(e[0])})...)) // gone is a success
	}
}
