package vserver_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver/vservertest"
)

// shown is the text of a list, one digest after the other.
type shown struct {
	Key    vserver.ServerKey
	Digest vserver.Digest
}

var byDigest = cmp.Comparer(func(a, b shown) bool { return a == b })

// digested is a server with destinations.
func digested(k vserver.ServerKey, s vserver.Server, rows map[string]vserver.Destination) shown {
	digest := vserver.DigestOf(k, s)
	for addrPort, d := range rows {
		digest.Add(destinationKey(k, addrPort), d)
	}
	return shown{k, digest}
}

// readDigests looks up servers that all have the same timeout, or none.
func readDigests(text string, size int, timeout uint32) (got []shown, asked int, err error) {
	ask := func(vserver.ServerKey) (vserver.Server, bool, error) {
		asked++
		return vserver.Server{Timeout: timeout}, timeout != 0, nil
	}
	visit := func(k vserver.ServerKey, s vserver.Digest) { got = append(got, shown{k, s}) }
	err = vserver.ReadDigests(strings.NewReader(text), size, ask, visit)
	return got, asked, err
}

func TestReadDigests(t *testing.T) {
	four, six := serverKey("10.96.0.1:443", vserver.ProtocolTCP), serverKey("[fd00::a]:443", vserver.ProtocolTCP)
	persistent := vserver.Server{Scheduler: "wlc", Flags: vserver.FlagPersistent, Timeout: 43}
	want := []shown{
		digested(four, persistent, map[string]vserver.Destination{"10.0.0.1:8080": {Weight: 1}, "10.0.0.2:8080": {Forward: vserver.ForwardLocal}}),
		digested(six, vserver.Server{Scheduler: "rr"}, map[string]vserver.Destination{"[fd01::b0c]:8080": {Weight: 1, Forward: vserver.ForwardRoute}}),
		digested(serverKey("10.96.0.10:53", vserver.ProtocolUDP), vserver.Server{Scheduler: "rr", Flags: vserver.FlagOnePacket},
			map[string]vserver.Destination{"10.0.0.1:53": {Weight: 65535}}),
	}
	text := strings.Replace(listHead+listRows, "persistent 10800", "persistent 10750", 1)
	for _, size := range []int{128, 256, 1 << 16} {
		got, asked, err := readDigests(text, size, 43) // 250 ticks a second
		if diff := cmp.Diff(want, got, byDigest); diff != "" || err != nil {
			t.Errorf("buffer of %d bytes: %v; digests (-want +got):\n%s", size, err, diff)
		}
		if asked != 1 {
			t.Errorf("%d servers were asked for, want 1", asked)
		}
	}
}

// TestDigestsTellRowsApart: of servers that differ in one thing that is shown.
func TestDigestsTellRowsApart(t *testing.T) {
	k := serverKey("10.96.0.1:80", vserver.ProtocolTCP)
	server, row := vserver.Server{Scheduler: "rr"}, vserver.Destination{Weight: 1}
	rows := func(addrPort string, d vserver.Destination) map[string]vserver.Destination {
		return map[string]vserver.Destination{addrPort: d}
	}
	different := map[string]shown{
		"nothing":     digested(k, server, nil),
		"one":         digested(k, server, rows("10.0.0.1:80", row)),
		"an address":  digested(k, server, rows("10.0.0.2:80", row)),
		"a port":      digested(k, server, rows("10.0.0.1:81", row)),
		"a weight":    digested(k, server, rows("10.0.0.1:80", vserver.Destination{Weight: 256})),
		"a way":       digested(k, server, rows("10.0.0.1:80", vserver.Destination{Weight: 1, Forward: vserver.ForwardTunnel})),
		"two":         digested(k, server, map[string]vserver.Destination{"10.0.0.1:80": row, "10.0.0.2:80": row}),
		"two swapped": digested(k, server, map[string]vserver.Destination{"10.0.0.1:80": {Weight: 2}, "10.0.0.2:80": row}),
		"two back":    digested(k, server, map[string]vserver.Destination{"10.0.0.1:80": row, "10.0.0.2:80": {Weight: 2}}),
		"scheduler":   digested(k, vserver.Server{Scheduler: "wrr"}, rows("10.0.0.1:80", row)),
		"ops":         digested(k, vserver.Server{Scheduler: "rr", Flags: vserver.FlagOnePacket}, rows("10.0.0.1:80", row)),
		"persistence": digested(k, vserver.Server{Scheduler: "rr", Flags: vserver.FlagPersistent, Timeout: 1}, rows("10.0.0.1:80", row)),
	}
	for a, x := range different {
		for b, y := range different {
			if a != b && x == y {
				t.Errorf("%s and %s are the same", a, b)
			}
		}
	}
	same := digested(k, vserver.Server{Scheduler: "rr", Flags: vserver.FlagSched1 | vserver.FlagSched3, Timeout: 7, HostBits: 8, Engine: "sip"},
		rows("10.0.0.1:80", vserver.Destination{Weight: 1, Upper: 5, Lower: 3}))
	if same != different["one"] {
		t.Error("what the list does not show makes a difference")
	}
}

// TestDigestedTimeouts: times that the list prints in ticks are compared in seconds.
func TestDigestedTimeouts(t *testing.T) {
	k := serverKey("[fd00::1]:80", vserver.ProtocolTCP)
	tests := map[string]struct {
		ticks, exact uint32 // exact 0: the server is not there
		want         uint32
	}{
		"100 a second":            {1_080_000, 10800, 10800},
		"1000 a second":           {10_800_000, 10800, 10800},
		"gone meanwhile":          {10_800_000, 0, 0},
		"changed meanwhile":       {10_800_000, 7, 0},
		"one second":              {300, 1, 1},
		"a number below zero":     {0, 1, 0},
		"more than a day":         {86_400_000, 86400, 86400},
		"more than it would hold": {2_147_483_647, 1, 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ticks := fmt.Sprint(tt.ticks)
			if tt.ticks == 0 {
				ticks = "-5"
			}
			text := listHead + "TCP  [fd00:0000:0000:0000:0000:0000:0000:0001]:0050 rr persistent " + ticks + " " + prefix64 + "\n"
			got, _, err := readDigests(text, 1<<12, tt.exact)
			want := digested(k, vserver.Server{Scheduler: "rr", Flags: vserver.FlagPersistent, Timeout: tt.want, HostBits: 64}, nil)
			if err != nil || len(got) != 1 || got[0] != want {
				t.Errorf("%+v, %v; want %+v", got, err, want)
			}
		})
	}
}

func TestDigestsOfListsThatMakeNoSense(t *testing.T) {
	server := "TCP  0A600001:0050 rr "
	destination := "  -> 0A000001:0050      Masq    1      2          9         \n"
	tests := map[string]string{
		"nothing":                  "",
		"half a head":              listHead[:50],
		"a server without port":    listHead + "TCP  0A600001 rr \n",
		"an unknown flag":          listHead + server + "upside-down\n",
		"persistence without more": listHead + server + "persistent\n",
		"persistence without mask": listHead + server + "persistent 100\n",
		"a mask that is none":      listHead + server + "persistent 100 FFFFFFFG\n",
		"a short mask":             listHead + server + "persistent 100 FFFF\n",
		"a time that is none":      listHead + server + "persistent x FFFFFFFF\n",
		"more than persistence":    listHead + server + "persistent 100 FFFFFFFF upside-down\n",
		"an unknown way":           listHead + server + "\n" + strings.Replace(destination, "Masq", "Mask", 1),
		"a destination of nothing": listHead + destination,
		"no end":                   listHead + server + "\n" + destination + "TCP",
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			if got, _, err := readDigests(text, 1<<16, 1); err == nil {
				t.Errorf("read as %v, want an error", got)
			}
		})
	}
	fails := errors.New("fails")
	text := listHead + server + "persistent 100 FFFFFFFF\n"
	err := vserver.ReadDigests(strings.NewReader(text), 1<<12, func(vserver.ServerKey) (vserver.Server, bool, error) {
		return vserver.Server{}, false, fails
	}, func(vserver.ServerKey, vserver.Digest) { t.Error("a server was shown") })
	if !errors.Is(err, fails) {
		t.Errorf("a server that cannot be asked for: %v, want %v", err, fails)
	}
}

// FuzzReadDigests: with any contents of the list, reading it ends and does not depend on how
// the text is cut.
func FuzzReadDigests(f *testing.F) {
	f.Add([]byte(listHead + listRows))
	f.Add([]byte(listHead + "TCP  0A600001:0050 rr ops persistent 250 FFFFFF00\n"))
	f.Add([]byte(listHead[:60]))
	f.Fuzz(func(t *testing.T, b []byte) {
		whole, _, err := readDigests(string(b), len(b)+1, 1)
		if len(whole) > len(b)/len("TCP 0A600001:0050 r\n") {
			t.Errorf("%d servers in %d bytes", len(whole), len(b))
		}
		var pieces []shown
		cutErr := vserver.ReadDigests(iotest.OneByteReader(strings.NewReader(string(b))), len(b)/2+64,
			func(vserver.ServerKey) (vserver.Server, bool, error) { return vserver.Server{Timeout: 1}, true, nil },
			func(k vserver.ServerKey, s vserver.Digest) { pieces = append(pieces, shown{k, s}) })
		if err == nil && cutErr == nil && !cmp.Equal(whole, pieces, byDigest) || err != nil && cutErr == nil {
			t.Errorf("whole: %v, %v; in pieces: %v, %v", whole, err, pieces, cutErr)
		}
	})
}

// TestSurveysThatDoNotCome: the list is opened and read under the deadline; a survey that
// failed is over, and the next one is whole.
func TestSurveysThatDoNotCome(t *testing.T) {
	fails := errors.New("fails")
	tests := map[string]struct {
		list func(io.Reader) io.ReadCloser
		want error
	}{
		"stuck at once":  {func(io.Reader) io.ReadCloser { return newStuck(strings.NewReader("")) }, context.DeadlineExceeded},
		"stuck half-way": {func(r io.Reader) io.ReadCloser { return newStuck(io.LimitReader(r, 200)) }, context.DeadlineExceeded},
		"broken": {func(r io.Reader) io.ReadCloser {
			return io.NopCloser(io.MultiReader(io.LimitReader(r, 200), iotest.ErrReader(fails)))
		}, fails},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPeer()
				p.list = tt.list
				h := open(t, p, vserver.Options{})
				defer h.Close()
				start := time.Now()
				if err := h.BeginSurvey(ctx); err != nil {
					t.Fatal(err)
				}
				done, err := h.Survey(ctx, func(vserver.ServerKey, vserver.Digest) {})
				if done || !errors.Is(err, tt.want) || time.Since(start) > 5*time.Second {
					t.Errorf("done %t, %v after %s", done, err, time.Since(start))
				}
				if _, err := h.Survey(ctx, nil); err == nil {
					t.Error("a survey went on that had failed")
				}
				p.list = io.NopCloser
				if err := h.BeginSurvey(ctx); err != nil {
					t.Fatal(err)
				}
				if done, err := h.Survey(ctx, nil); !done || err != nil {
					t.Errorf("the next one: done %t, %v", done, err)
				}
			})
		})
	}
}

func TestSurveyWithoutIPVS(t *testing.T) {
	p := newPeer()
	h := open(t, p, vserver.Options{})
	defer h.Close()
	p.family = 0 // unloaded
	if err := h.BeginSurvey(ctx); !errors.Is(err, vserver.ErrUnsupported) {
		t.Errorf("error %v, want %v", err, vserver.ErrUnsupported)
	}
}

// seekable is a file that a survey goes back in.
type seekable struct {
	*strings.Reader
	seeks *int
}

func (s seekable) Close() error { return nil }

func (s seekable) Seek(offset int64, whence int) (int64, error) {
	*s.seeks++
	return s.Reader.Seek(offset, whence)
}

// TestSurveyKeepsItsFile: one is opened for many surveys.
func TestSurveyKeepsItsFile(t *testing.T) {
	p := newPeer()
	opened, seeks := 0, 0
	p.list = func(io.Reader) io.ReadCloser {
		opened++
		return seekable{strings.NewReader(listHead + "TCP  0A600001:0050 rr \n"), &seeks}
	}
	h := open(t, p, vserver.Options{})
	defer h.Close()
	for range 3 {
		if err := h.BeginSurvey(ctx); err != nil {
			t.Fatal(err)
		}
		servers := 0
		if done, err := h.Survey(ctx, func(vserver.ServerKey, vserver.Digest) { servers++ }); !done || err != nil || servers != 1 {
			t.Errorf("done %t, %v, %d servers; want one", done, err, servers)
		}
	}
	if opened != 1 || seeks != 2 {
		t.Errorf("opened %d times, went back %d times; want 1 and 2", opened, seeks)
	}
}

// BenchmarkReadDigests: 10,000 servers of ten destinations.
func BenchmarkReadDigests(b *testing.B) {
	text := bigList(100_000)
	b.ReportAllocs()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		servers := 0
		if err := vserver.ReadDigests(strings.NewReader(text), 1<<16, nil, func(vserver.ServerKey, vserver.Digest) { servers++ }); err != nil || servers != 10_000 {
			b.Fatalf("%d servers, %v", servers, err)
		}
	}
}

// TestDigestsCostNoMemory: memory does not grow with the table.
func TestDigestsCostNoMemory(t *testing.T) {
	measure := func(rows int) float64 {
		text := bigList(rows)
		return testing.AllocsPerRun(5, func() {
			if err := vserver.ReadDigests(strings.NewReader(text), 1<<16, nil, func(vserver.ServerKey, vserver.Digest) {}); err != nil {
				t.Fatal(err)
			}
		})
	}
	if few, many := measure(10), measure(20_000); few != many {
		t.Errorf("%v allocations for 10 rows, %v for 20,000", few, many)
	}
}

// prefix64 is how this machine's kernel would print the length of an IPv6 prefix.
var prefix64 = func() string {
	k := serverKey("[fd00::1]:80", vserver.ProtocolTCP)
	table := vservertest.NewTable()
	_ = table.AddServer(k, vserver.Server{Scheduler: "rr", Flags: vserver.FlagPersistent, Timeout: 1, HostBits: 64})
	text := strings.TrimSpace(table.Proc())
	return text[strings.LastIndexByte(text, ' ')+1:]
}()
