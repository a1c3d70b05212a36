package nftablestest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
)

// Client is what Handle and Fake have in common.
type Client interface {
	List(context.Context) (map[nftables.Key]struct{}, error)
	Delete(context.Context, []nftables.Key) []error
	Generation(context.Context) (uint32, error)
	Watch(ctx context.Context, changed func(by []nftables.Writer)) error
	Close()
}

// Subject is one kernel without tables under test and ways around the client.
type Subject struct {
	Client Client
	// Add makes tables with nothing in them, as another program would.
	Add func(*testing.T, ...nftables.Key)
	// Fill puts into a table of family ip or ip6 what kube-proxy has in its own:
	// chains with hooks, maps that lead to chains, sets. Nil where nothing can.
	Fill func(*testing.T, nftables.Key)
	// Own makes a table that belongs to a program that runs. Nil where the kernel
	// knows no owners.
	Own func(*testing.T, nftables.Key)
	// Readers print the tables as `nft list tables` does, by other code than ours.
	Readers map[string]func(*testing.T) string
}

// Contract runs the behaviours that callers of this package rely on, each
// against a subject of its own.
func Contract(t *testing.T, open func(t *testing.T) Subject) {
	cases := []struct {
		name string
		run  func(*testing.T, Subject)
	}{
		{"no tables", noTables},
		{"tables of all families are listed", allFamilies},
		{"only what was named is deleted", onlyNamed},
		{"tables go with what is in them", withContent},
		{"missing tables are deleted", missingAreDeleted},
		{"all or nothing", allOrNothing},
		{"keys that would mean something else", meansSomethingElse},
		{"many tables", manyTables},
		{"every change has a generation of its own", generations},
		{"every change is told", changesAreTold},
		{"many changes at once are told once or twice", burstsAreTold},
		{"a change names its program", writersAreNamed},
		{"an ended context", endedContext},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := open(t)
			t.Cleanup(s.Client.Close)
			c.run(t, s)
		})
	}
}

var (
	four  = nftables.Key{Family: "ip", Name: "kube-proxy"}
	six   = nftables.Key{Family: "ip6", Name: "kube-proxy"}
	other = nftables.Key{Family: "inet", Name: "kube-proxy"}
)

// wantTables compares the tables, read by every reader there is.
func wantTables(t *testing.T, s Subject, want ...nftables.Key) {
	t.Helper()
	set := make(map[nftables.Key]struct{}, len(want))
	for _, k := range want {
		set[k] = struct{}{}
	}
	got, err := s.Client.List(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(set, got); diff != "" {
		t.Errorf("tables (-want +got):\n%s", diff)
	}
	for name, read := range s.Readers {
		text := read(t)
		for _, k := range want {
			if !strings.Contains(text, "table "+k.String()+"\n") {
				t.Errorf("%s lacks %s:\n%s", name, k, text)
			}
		}
		if n := strings.Count(text, "table "); n != len(want) {
			t.Errorf("%s has %d tables, want %d:\n%s", name, n, len(want), text)
		}
	}
}

func wantDeleted(t *testing.T, s Subject, keys ...nftables.Key) {
	t.Helper()
	if errs := s.Client.Delete(context.Background(), keys); errs != nil {
		t.Fatal(errors.Join(errs...))
	}
}

func noTables(t *testing.T, s Subject) {
	wantTables(t, s)
	wantDeleted(t, s)
	wantDeleted(t, s, four, six)
}

func allFamilies(t *testing.T, s Subject) {
	var all []nftables.Key
	for _, family := range []string{"ip", "ip6", "inet", "arp", "bridge", "netdev"} {
		all = append(all, nftables.Key{Family: family, Name: "kube-proxy"}, nftables.Key{Family: family, Name: "x"})
	}
	s.Add(t, all...)
	wantTables(t, s, all...)
	wantDeleted(t, s, all...)
	wantTables(t, s)
}

func onlyNamed(t *testing.T, s Subject) {
	longer := nftables.Key{Family: "ip", Name: "kube-proxy2"}
	long := nftables.Key{Family: "ip", Name: strings.Repeat("n", 255)}
	s.Add(t, four, six, other, longer, long)
	wantDeleted(t, s, four, six)
	wantTables(t, s, other, longer, long)
	wantDeleted(t, s, long)
	wantTables(t, s, other, longer)
}

func withContent(t *testing.T, s Subject) {
	if s.Fill == nil {
		t.Skip("skipped: no tool here that fills tables")
	}
	s.Add(t, other)
	s.Fill(t, four)
	s.Fill(t, six)
	wantTables(t, s, four, six, other)
	wantDeleted(t, s, four, six)
	wantTables(t, s, other)
}

func missingAreDeleted(t *testing.T, s Subject) {
	s.Add(t, six, other)
	wantDeleted(t, s, four, six, four, six)
	wantTables(t, s, other)
	wantDeleted(t, s, four, six)
	wantTables(t, s, other)
}

func allOrNothing(t *testing.T, s Subject) {
	if s.Own == nil {
		t.Skip("skipped: tables of this kernel have no owners")
	}
	s.Add(t, four, other)
	s.Own(t, six)
	errs := s.Client.Delete(context.Background(), []nftables.Key{four, six})
	if len(errs) != 2 {
		t.Fatalf("errors %v, want one each", errs)
	}
	for i, want := range []string{"delete table ip kube-proxy: it goes together with ip6 kube-proxy: ", "delete table ip6 kube-proxy: "} {
		if !errors.Is(errs[i], fs.ErrPermission) || !strings.HasPrefix(errs[i].Error(), want) {
			t.Errorf("error %v\nwant %s...%v", errs[i], want, fs.ErrPermission)
		}
	}
	wantTables(t, s, four, six, other)
	wantDeleted(t, s, four)
	wantTables(t, s, six, other)
}

func meansSomethingElse(t *testing.T, s Subject) {
	s.Add(t, four, six)
	for _, bad := range []nftables.Key{
		{Family: "ip"}, {Family: "", Name: "kube-proxy"}, {}, {Family: "IP", Name: "kube-proxy"}, {Family: "ipv4", Name: "kube-proxy"},
		{Family: "ip", Name: "kube-proxy\x00"}, {Family: "ip", Name: "\x00"}, {Family: "ip", Name: strings.Repeat("n", 256)},
	} {
		errs := s.Client.Delete(context.Background(), []nftables.Key{six, bad})
		if len(errs) != 2 || !errors.Is(errs[0], nftables.ErrInvalid) || !errors.Is(errs[1], nftables.ErrInvalid) {
			t.Errorf("Delete(%q): %v, want %v", bad, errs, nftables.ErrInvalid)
		}
	}
	wantTables(t, s, four, six)
}

// manyTables takes several datagrams each way.
func manyTables(t *testing.T, s Subject) {
	var all []nftables.Key
	for i := range 700 {
		all = append(all, nftables.Key{Family: "ip6", Name: fmt.Sprintf("%03d-%s", i, strings.Repeat("n", 100))})
	}
	s.Add(t, all...)
	s.Add(t, four)
	wantTables(t, s, append(all, four)...)
	wantDeleted(t, s, all...)
	wantTables(t, s, four)
}

// generations: reading and deleting what is missing change nothing.
func generations(t *testing.T, s Subject) {
	generation := func() uint32 {
		t.Helper()
		n, err := s.Client.Generation(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	seen := map[uint32]bool{generation(): true}
	for _, change := range []struct {
		name string
		do   func()
		new  bool
	}{
		{"list", func() { wantTables(t, s) }, false},
		{"add a table", func() { s.Add(t, four) }, true},
		{"list it", func() { wantTables(t, s, four) }, false},
		{"delete another", func() { wantDeleted(t, s, six) }, false},
		{"add two", func() { s.Add(t, six, other) }, true},
		{"delete one", func() { wantDeleted(t, s, four) }, true},
		{"delete it again", func() { wantDeleted(t, s, four) }, false},
	} {
		change.do()
		if n := generation(); seen[n] == change.new {
			t.Errorf("%s: generation %d, after %v", change.name, n, seen)
		} else {
			seen[n] = true
		}
	}
}

// watch begins to watch. Each value that is received is a call of changed, which waits
// until it is.
func watch(t *testing.T, s Subject) <-chan []nftables.Writer {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	told, ended := make(chan []nftables.Writer), make(chan error, 1)
	go func() {
		ended <- s.Client.Watch(ctx, func(by []nftables.Writer) {
			select {
			case told <- by:
			case <-ctx.Done():
			}
		})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Watch: %v", err)
		}
	})
	if by := heard(t, "the beginning", told); len(by) > 0 {
		t.Errorf("at the beginning %v wrote", by)
	}
	return told
}

func heard(t *testing.T, what string, told <-chan []nftables.Writer) []nftables.Writer {
	t.Helper()
	select {
	case by := <-told:
		return by
	case <-time.After(10 * time.Second):
		t.Fatalf("not told of %s", what)
		return nil
	}
}

// quiet is how long nothing comes when all is told.
const quiet = 300 * time.Millisecond

func unheard(t *testing.T, what string, told <-chan []nftables.Writer) {
	t.Helper()
	select {
	case <-told:
		t.Errorf("told of %s", what)
	case <-time.After(quiet):
	}
}

func changesAreTold(t *testing.T, s Subject) {
	told := watch(t, s)
	s.Add(t, four)
	heard(t, "a table that came", told)
	wantTables(t, s, four)
	unheard(t, "a list", told)
	s.Add(t, six, other)
	heard(t, "two tables that came", told)
	wantDeleted(t, s, four)
	heard(t, "a table that was deleted", told)
	wantDeleted(t, s, four)
	unheard(t, "a table that was not there", told)
	if s.Fill != nil {
		s.Fill(t, six)
		heard(t, "what was put into a table", told)
	}
}

// writersAreNamed: a notification has the program, its socket and the generation. By its socket a
// program knows its own transactions.
func writersAreNamed(t *testing.T, s Subject) {
	told := watch(t, s)
	wrote := func(what string) nftables.Writer {
		t.Helper()
		by := heard(t, what, told)
		generation, err := s.Client.Generation(context.Background())
		if err != nil || len(by) != 1 || by[0].Generation != generation || by[0].Program == "" || by[0].PID == 0 || by[0].Port == 0 {
			t.Fatalf("%s: %+v, want one program and generation %d (%v)", what, by, generation, err)
		}
		return by[0]
	}
	s.Add(t, four, six)
	other := wrote("two tables that came")
	wantDeleted(t, s, four)
	own := wrote("a table that was deleted")
	wantDeleted(t, s, six)
	if again := wrote("another table that was deleted"); own.Port == other.Port || again.Port != own.Port {
		t.Errorf("ports %d of another socket, %d and %d of our own", other.Port, own.Port, again.Port)
	}
	if s.Fill == nil {
		return
	}
	s.Fill(t, four)
	if by := heard(t, "what was put into a table", told); len(by) != 1 || by[0].Port == own.Port {
		t.Errorf("%+v wrote, want another program", by)
	}
}

// burstsAreTold: all changes since the last notification are reported as one.
func burstsAreTold(t *testing.T, s Subject) {
	told := watch(t, s)
	for range 100 {
		s.Add(t, four)
		wantDeleted(t, s, four)
	}
	heard(t, "the first of 200 changes", told)
	select { // of those that came while that call waited
	case <-told:
	case <-time.After(quiet):
	}
	unheard(t, "more than that", told)
	s.Add(t, six)
	heard(t, "a change after them", told)
}

func endedContext(t *testing.T, s Subject) {
	s.Add(t, four)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Client.List(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("List: %v, want %v", err, context.Canceled)
	}
	if errs := s.Client.Delete(ended, []nftables.Key{four}); len(errs) != 1 || !errors.Is(errs[0], context.Canceled) {
		t.Errorf("Delete: %v, want %v", errs, context.Canceled)
	}
	if err := s.Client.Watch(ended, func([]nftables.Writer) { t.Error("told of something") }); err != nil {
		t.Errorf("Watch: %v", err)
	}
	if _, err := s.Client.Generation(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Generation: %v, want %v", err, context.Canceled)
	}
	wantTables(t, s, four)
}
