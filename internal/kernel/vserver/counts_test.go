package vserver_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver/vservertest"
)

// connect is one connection as the contract makes it, on the peer.
func (p *peer) connect(_ *testing.T, to vserver.DestinationKey) (end func()) {
	set := func(c vserver.Connections) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.table.Connections[to] = c
	}
	set(vserver.Connections{Active: 1})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.table.Carry(to, vserver.Traffic{Connections: 1, PacketsIn: 3, PacketsOut: 2, BytesIn: 160, BytesOut: 112})
	return func() { set(vserver.Connections{Inactive: 1}) }
}

// listHead and listRows are from Linux 6.1, blanks at the ends included.
const (
	listHead = "IP Virtual Server version 1.2.1 (size=4096)\nProt LocalAddress:Port Scheduler Flags\n  -> RemoteAddress:Port Forward Weight ActiveConn InActConn\n"
	listRows = "TCP  0A600001:01BB wlc persistent 10800 FFFFFFFF\n" +
		"  -> 0A000001:1F90      Masq    1      7          12        \n" +
		"  -> 0A000002:1F90      Local   0      0          4294967   \n" +
		"TCP  [fd00:0000:0000:0000:0000:0000:0000:000a]:01BB rr \n" +
		"  -> [fd01:0000:0000:0000:0000:0000:0000:0b0c]:1F90      Route   1      1          0         \n" +
		"UDP  0A60000A:0035 rr ops \n" +
		"  -> 0A000001:0035      Masq    65535  0          3         \n" +
		"IP_47  0A600001:01BB rr \n" +
		"  -> 0A000001:1F90      Masq    1      99         99        \n" +
		"FWM  00004000 rr ops persistent 300 FFFFFFFF\n" +
		"  -> 0A000001:1F90      Masq    1      99         99        \n"
)

func TestReadCounts(t *testing.T) {
	four, six := serverKey("10.96.0.1:443", vserver.ProtocolTCP), serverKey("[fd00::a]:443", vserver.ProtocolTCP)
	dns := serverKey("10.96.0.10:53", vserver.ProtocolUDP)
	all := map[vserver.DestinationKey]vserver.Connections{
		destinationKey(four, "10.0.0.1:8080"):         {Active: 7, Inactive: 12},
		destinationKey(four, "10.0.0.2:8080"):         {Inactive: 4294967},
		destinationKey(six, "[fd01::b0c]:8080"):       {Active: 1},
		destinationKey(dns, "10.0.0.1:53"):            {Inactive: 3},
		destinationKey(four, "10.0.0.3:8080"):         {}, // and three that are not listed
		destinationKey(dns, "10.0.0.1:8080"):          {},
		destinationKey(six, "[fd01::b0c:0]:8080"):     {},
		destinationKey(dns, "[fd01::b0c]:8080"):       {},
		destinationKey(four, "[fd01::b0c]:8080"):      {},
		destinationKey(vserver.ServerKey{}, "[::]:0"): {},
	}
	wanted, want := map[vserver.DestinationKey]struct{}{}, map[vserver.DestinationKey]vserver.Connections{}
	for k, c := range all {
		wanted[k] = struct{}{}
		if !c.Idle() {
			want[k] = c
		}
	}
	for _, size := range []int{128, 256, 1 << 16} {
		got, err := vserver.ReadCounts(strings.NewReader(listHead+listRows), size, wanted)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("buffer of %d bytes: %v; counts (-want +got):\n%s", size, err, diff)
		}
	}
}

func TestCountsSeenTwice(t *testing.T) {
	rows := "TCP  0A600001:0050 rr \n  -> 0A000001:0050      Masq    1      2          9         \n"
	text := listHead + rows + strings.Replace(rows, "2          9  ", "5          -1 ", 1)
	key := destinationKey(serverKey("10.96.0.1:80", vserver.ProtocolTCP), "10.0.0.1:80")
	got, err := vserver.ReadCounts(strings.NewReader(text), 1<<16, map[vserver.DestinationKey]struct{}{key: {}})
	if want := (vserver.Connections{Active: 5, Inactive: 9}); err != nil || got[key] != want {
		t.Errorf("%+v, %v; want %+v", got[key], err, want)
	}
}

func TestListsThatMakeNoSense(t *testing.T) {
	server := "TCP  0A600001:0050 rr \n"
	destination := "  -> 0A000001:0050      Masq    1      2          9         \n"
	tests := map[string]string{
		"nothing":                     "",
		"another file":                "sl  local_address rem_address\n",
		"half a head":                 listHead[:50],
		"a head without its last end": strings.TrimSuffix(listHead, "\n"),
		"an empty line":               listHead + "\n",
		"an unknown word":             listHead + "TCPX  0A600001:0050 rr \n",
		"a server without a port":     listHead + "TCP  0A600001 rr \n",
		"a server without scheduler":  listHead + "TCP  0A600001:0050 \n",
		"a short address":             listHead + "TCP  0A6001:0050 rr \n",
		"a long address":              listHead + "TCP  000A600001:0050 rr \n",
		"digits that are none":        listHead + "TCP  0A60000G:0050 rr \n",
		"a port that is none":         listHead + "TCP  0A600001:00:0 rr \n",
		"an unclosed address":         listHead + "TCP  [fd00:0000:0000:0000:0000:0000:0000:000a:01BB rr \n",
		"a shortened address":         listHead + "TCP  [fd00::a]:01BB rr \n",
		"other marks in an address":   listHead + "TCP  [fd00.0000:0000:0000:0000:0000:0000:000a]:01BB rr \n",
		"a destination of nothing":    listHead + destination,
		"a destination cut short":     listHead + server + destination[:40] + "\n",
		"a weight that is none":       listHead + server + strings.Replace(destination, "1 ", "x ", 1),
		"counts that are none":        listHead + server + strings.Replace(destination, "2 ", "- ", 1),
		"counts too large":            listHead + server + strings.Replace(destination, "9 ", "2147483648 ", 1),
		"no end":                      listHead + server + destination + "TCP",
		"a line as long as a book":    listHead + server + destination + strings.Repeat("x", 1<<17),
		"a bad row of a foreign one":  listHead + "FWM  00004000 rr \n  -> nowhere\n",
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := vserver.ReadCounts(strings.NewReader(text), 1<<16, nil)
			if err == nil {
				t.Fatalf("read as %v, want an error", got)
			}
			if len(err.Error()) > 300 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}

// TestForeignRowsCostNoMemory: memory does not grow with the table.
func TestForeignRowsCostNoMemory(t *testing.T) {
	measure := func(rows int) float64 {
		text := bigList(rows)
		return testing.AllocsPerRun(5, func() {
			if _, err := vserver.ReadCounts(strings.NewReader(text), 1<<16, nil); err != nil {
				t.Fatal(err)
			}
		})
	}
	if few, many := measure(10), measure(20_000); few != many {
		t.Errorf("%v allocations for 10 rows, %v for 20,000", few, many)
	}
}

// nowhere are destinations that no kernel can have, of so many servers that the list is
// read for them.
func nowhere() map[vserver.DestinationKey]struct{} {
	wanted := map[vserver.DestinationKey]struct{}{}
	for port := range uint16(8) {
		wanted[vserver.DestinationKey{Server: vserver.ServerKey{Port: port}}] = struct{}{}
	}
	return wanted
}

// TestCountsOfFewServers: counting some servers does not cost as much as the whole list.
func TestCountsOfFewServers(t *testing.T) {
	p := newPeer()
	h := open(t, p, vserver.Options{})
	defer h.Close()
	for _, c := range servers(vserver.Add, 600) {
		_ = p.table.AddServer(c.Key, vserver.Server{Scheduler: "rr"})
		_ = p.table.AddDestination(destinationKey(c.Key, "10.0.0.1:80"), vserver.Destination{Weight: 1})
	}
	lists := 0
	p.list = func(r io.Reader) io.ReadCloser { lists++; return io.NopCloser(r) }
	for _, step := range []struct{ servers, lists, dumps int }{
		{4, 0, 4}, {12, 1, 1}, {60, 0, 60}, {61, 1, 1}, // that the list has 600 was not known at first
	} {
		wanted := map[vserver.DestinationKey]struct{}{}
		for _, c := range servers(vserver.Add, step.servers) {
			wanted[destinationKey(c.Key, "10.0.0.1:80")] = struct{}{}
		}
		before := h.Counters().Dumps
		lists = 0
		got, err := vservertest.CountAll(ctx, h.Count(wanted))
		if err != nil || len(got) != step.servers {
			t.Errorf("%d servers: %d counts, %v", step.servers, len(got), err)
		}
		if dumps := int(h.Counters().Dumps - before); lists != step.lists || dumps != step.dumps {
			t.Errorf("%d servers: %d lists and %d reads, want %d and %d", step.servers, lists, dumps, step.lists, step.dumps)
		}
	}
}

// TestCountsKnowWhatWasWritten: the list need not be read once to know how long it is.
func TestCountsKnowWhatWasWritten(t *testing.T) {
	p := newPeer()
	h := open(t, p, vserver.Options{})
	defer h.Close()
	lists := 0
	p.list = func(r io.Reader) io.ReadCloser { lists++; return io.NopCloser(r) }
	count := func(want int) {
		t.Helper()
		lists = 0
		wanted := map[vserver.DestinationKey]struct{}{}
		for _, c := range servers(vserver.Add, 12) {
			wanted[destinationKey(c.Key, "10.0.0.1:80")] = struct{}{}
		}
		if _, err := vservertest.CountAll(ctx, h.Count(wanted)); err != nil || lists != want {
			t.Errorf("%d lists, %v, want %d", lists, err, want)
		}
	}
	must(t, h.WriteServers(ctx, servers(vserver.Add, 600)))
	must(t, h.WriteServers(ctx, servers(vserver.Add, 600))) // there already
	count(0)
	must(t, h.WriteServers(ctx, servers(vserver.Delete, 500)))
	count(1)
	if _, err := h.ListServers(ctx); err != nil {
		t.Fatal(err)
	}
	count(1)
}

func must(t *testing.T, errs []error) {
	t.Helper()
	if errs != nil {
		t.Fatal(errors.Join(errs...))
	}
}

// TestCountsThatDoNotCome: the file is opened and read under the deadline, and a
// failed read gives no counts.
func TestCountsThatDoNotCome(t *testing.T) {
	fails := errors.New("fails")
	tests := map[string]struct {
		list func(io.Reader) io.ReadCloser
		want error
	}{
		"stuck at once":  {func(io.Reader) io.ReadCloser { return newStuck(strings.NewReader("")) }, context.DeadlineExceeded},
		"stuck half-way": {func(r io.Reader) io.ReadCloser { return newStuck(io.LimitReader(r, 200)) }, context.DeadlineExceeded},
		"broken half-way": {func(r io.Reader) io.ReadCloser {
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
				got, err := vservertest.CountAll(ctx, h.Count(nowhere()))
				if got != nil || !errors.Is(err, tt.want) || time.Since(start) > 5*time.Second {
					t.Errorf("%v, %v after %s; want %v within 5s", got, err, time.Since(start), tt.want)
				}
				p.list = io.NopCloser
				if _, err := vservertest.CountAll(ctx, h.Count(nowhere())); err != nil {
					t.Errorf("the next time: %v", err)
				}
			})
		})
	}
}

// stuck never comes back from the read after its content, but for its closing.
type stuck struct {
	io.Reader
	closed chan struct{}
}

func newStuck(r io.Reader) *stuck { return &stuck{r, make(chan struct{})} }

func (s *stuck) Close() error { close(s.closed); return nil }
func (s *stuck) Read(b []byte) (int, error) {
	if n, err := s.Reader.Read(b); err == nil {
		return n, nil
	}
	<-s.closed
	return 0, io.ErrClosedPipe
}

func TestCountsWithoutIPVS(t *testing.T) {
	p := newPeer()
	h := open(t, p, vserver.Options{})
	defer h.Close()
	p.family = 0 // unloaded
	_, err := vservertest.CountAll(ctx, h.Count(nowhere()))
	if !errors.Is(err, vserver.ErrUnsupported) || errors.Is(err, vserver.ErrNotExist) {
		t.Errorf("error %v, want %v", err, vserver.ErrUnsupported)
	}
}

// bigList has ten destinations to a server.
func bigList(rows int) string {
	table := vservertest.NewTable()
	for i := range rows / 10 {
		k := serverKey(fmt.Sprintf("10.%d.%d.%d:80", 96+i/62500, i/250%250, i%250), vserver.ProtocolTCP)
		_ = table.AddServer(k, vserver.Server{Scheduler: "rr"})
		for j := range 10 {
			d := destinationKey(k, fmt.Sprintf("10.%d.%d.%d:8080", j, i/250%250, i%250))
			_ = table.AddDestination(d, vserver.Destination{Weight: 1})
			table.Connections[d] = vserver.Connections{Active: uint32(i), Inactive: uint32(j)}
		}
	}
	return table.Proc()
}

// BenchmarkReadCounts: 100,000 rows of destinations, 100 of them wanted.
func BenchmarkReadCounts(b *testing.B) {
	text := bigList(100_000)
	wanted := map[vserver.DestinationKey]struct{}{}
	for i := range 10 {
		for j := range 10 {
			k := serverKey(fmt.Sprintf("10.96.%d.%d:80", i, i), vserver.ProtocolTCP)
			wanted[destinationKey(k, fmt.Sprintf("10.%d.%d.%d:8080", j, i, i))] = struct{}{}
		}
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		got, err := vserver.ReadCounts(strings.NewReader(text), 1<<16, wanted)
		if err != nil || len(got) != len(wanted) {
			b.Fatalf("%d counts, %v", len(got), err)
		}
	}
}

// FuzzReadCounts: with any contents of the list, reading it ends, gives only what was
// wanted, and does not depend on how the text is cut.
func FuzzReadCounts(f *testing.F) {
	f.Add([]byte(listHead + listRows))
	f.Add([]byte(listHead + "FWM  00004000 rr \n"))
	f.Add([]byte(listHead[:60]))
	key := destinationKey(serverKey("10.96.0.1:443", vserver.ProtocolTCP), "10.0.0.1:8080")
	wanted := map[vserver.DestinationKey]struct{}{key: {}}
	f.Fuzz(func(t *testing.T, b []byte) {
		whole, err := vserver.ReadCounts(strings.NewReader(string(b)), len(b)+1, wanted)
		for k := range whole {
			if k != key {
				t.Errorf("%s was not wanted", k)
			}
		}
		// Half the text holds every line unless one is longer than that.
		pieces, cutErr := vserver.ReadCounts(iotest.OneByteReader(strings.NewReader(string(b))), len(b)/2+64, wanted)
		if err == nil && cutErr == nil && !cmp.Equal(whole, pieces) || err != nil && cutErr == nil {
			t.Errorf("whole: %v, %v; in pieces: %v, %v", whole, err, pieces, cutErr)
		}
	})
}

// TestCountsThatTheListLacks: rows that the list passes over, whole servers or single
// rows, is asked for once, and nothing else is.
func TestCountsThatTheListLacks(t *testing.T) {
	one, two, three := servers(vserver.Add, 3)[0].Key, servers(vserver.Add, 3)[1].Key, servers(vserver.Add, 3)[2].Key
	want := map[vserver.DestinationKey]vserver.Connections{
		destinationKey(one, "10.0.0.1:80"):   {Active: 1},
		destinationKey(one, "10.0.0.2:80"):   {Active: 2, Inactive: 1},
		destinationKey(two, "10.0.0.3:80"):   {Active: 3},
		destinationKey(two, "10.0.0.4:80"):   {},
		destinationKey(three, "10.0.0.5:80"): {Inactive: 5},
	}
	wanted := nowhere()
	wanted[destinationKey(three, "10.0.0.6:80")] = struct{}{} // not there
	for k := range want {
		wanted[k] = struct{}{}
	}
	tests := map[string]struct {
		hide  []string // lines of the list that are left out, by what they contain
		dumps uint64
	}{
		"nothing":       {nil, 2}, // the list, and the server of the one that is not there
		"a server":      {[]string{"0A600001", "0A000003", "0A000004"}, 3},
		"a destination": {[]string{"0A000002"}, 3},
		"everything":    {[]string{"TCP", "Masq"}, 4},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPeer()
			h := open(t, p, vserver.Options{})
			defer h.Close()
			for _, k := range []vserver.ServerKey{one, two, three} {
				_ = p.table.AddServer(k, vserver.Server{Scheduler: "rr"})
			}
			for k, c := range want {
				_ = p.table.AddDestination(k, vserver.Destination{Weight: 1})
				p.table.Connections[k] = c
			}
			p.list = func(r io.Reader) io.ReadCloser { return io.NopCloser(without(t, r, tt.hide)) }
			got, err := vservertest.CountAll(ctx, h.Count(wanted))
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%v; counts (-want +got):\n%s", err, diff)
			}
			if dumps := h.Counters().Dumps; dumps != tt.dumps {
				t.Errorf("%d reads, want %d", dumps, tt.dumps)
			}
		})
	}
}

// without leaves out the lines that contain one of the texts.
func without(t *testing.T, r io.Reader, texts []string) io.Reader {
	all, err := io.ReadAll(r)
	if err != nil {
		t.Error(err)
	}
	var b strings.Builder
	for line := range strings.Lines(string(all)) {
		if !slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(line, text) }) {
			b.WriteString(line)
		}
	}
	return strings.NewReader(b.String())
}

func TestDecodeConnections(t *testing.T) {
	server := serverKey("10.96.0.1:80", vserver.ProtocolTCP)
	key := destinationKey(server, "10.0.0.1:80")
	whole := destinationRow(key, vserver.Destination{Weight: 1}, vserver.Connections{Active: 7, Inactive: 1<<32 - 1}, vserver.Traffic{})
	k, c, err := vserver.DecodeConnections(server, whole)
	if want := (vserver.Connections{Active: 7}); err != nil || k != key || c != want {
		t.Errorf("%s %+v, %v; want %s %+v: a count below zero counts nothing", k, c, err, key, want)
	}
	row := nestAttr(2, addrAttr(1, key.Addr), portAttr(2, 80), u16Attr(11, 2), u32Attr(7, 1))
	if _, c, err := vserver.DecodeConnections(server, row); err == nil {
		t.Errorf("without one of the counts: %+v, want an error", c)
	}
}
