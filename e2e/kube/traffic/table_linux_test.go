package traffic

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// table is the contents of /proc/net/ip_vs: each virtual server, and each destination under its server's name, with its weight. A server's
// weight is 1.
type table map[string]int

// parseTable reads the text of /proc/net/ip_vs.
func parseTable(text []byte) (table, error) {
	rows := table{}
	err := scanTable(text, func(row []byte, weight int) { rows[string(row)] = weight })
	return rows, err
}

// scanTable calls a function for each row of the text of /proc/net/ip_vs, whose first three lines are its heading. It makes no garbage, for
// emulated that would take longer than the read.
func scanTable(text []byte, each func(row []byte, weight int)) error {
	var key []byte
	server, n := 0, 0
	for line := range bytes.Lines(text) {
		if n++; n <= 3 {
			continue
		}
		first, rest := field(line)
		name, rest := field(rest)
		switch {
		case len(name) == 0:
			return fmt.Errorf("line %d of the table of IPVS: %q", n, line)
		case string(first) != "->":
			key = append(append(append(key[:0], first...), ' '), name...)
			server = len(key)
			each(key, 1)
		default:
			_, rest = field(rest) // how packets are forwarded
			text, _ := field(rest)
			weight, ok := number(text)
			if !ok || server == 0 {
				return fmt.Errorf("line %d of the table of IPVS: %q", n, line)
			}
			key = append(append(key[:server], " -> "...), name...)
			each(key, weight)
		}
	}
	return nil
}

// field cuts the first word off.
func field(line []byte) (word, rest []byte) {
	line = bytes.TrimLeft(line, " ")
	if end := bytes.IndexAny(line, " \n"); end >= 0 {
		return line[:end], line[end:]
	}
	return line, nil
}

func number(text []byte) (n int, ok bool) {
	for _, digit := range text {
		if digit < '0' || digit > '9' {
			return 0, false
		}
		n = n*10 + int(digit-'0')
	}
	return n, len(text) > 0
}

// servers counts those that are no destinations.
func (rows table) servers() int {
	n := 0
	for row := range rows {
		if !strings.Contains(row, "->") {
			n++
		}
	}
	return n
}

// tableFile is /proc/net/ip_vs of a namespace, from wherever it is read.
type tableFile struct {
	*os.File
	buffer bytes.Buffer
}

func (s *space) openTable(t *testing.T) *tableFile {
	t.Helper()
	f := &tableFile{}
	must(t, s.do(func() (err error) {
		f.File, err = os.Open("/proc/thread-self/net/ip_vs")
		return err
	}))
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// again reads it from its beginning. The text is good until the next time.
func (f *tableFile) again() ([]byte, error) {
	f.buffer.Reset()
	if _, err := f.Seek(0, 0); err != nil {
		return nil, err
	}
	_, err := f.buffer.ReadFrom(f.File)
	return f.buffer.Bytes(), err
}

// vigil compares tables with the first one. A server that is missing with its destinations tells nothing: while other namespaces have virtual
// servers the kernel leaves some out of this file.
type vigil struct {
	wanted table
	index  map[string]int // index of each wanted row in seen
	seen   []int          // the last look that saw it as it should be
	looks  int
}

func newVigil(wanted table) *vigil {
	v := &vigil{wanted: wanted, index: map[string]int{}, seen: make([]int, len(wanted))}
	for row := range wanted {
		v.index[row] = len(v.index)
	}
	return v
}

// look returns the destinations that are missing from a text although their server is there, or have lost their weight.
func (v *vigil) look(text []byte) (lost []string, err error) {
	v.looks++
	err = scanTable(text, func(row []byte, weight int) {
		if at, ok := v.index[string(row)]; ok && (weight > 0 || v.wanted[string(row)] == 0) {
			v.seen[at] = v.looks
		}
	})
	if err != nil {
		return nil, err
	}
	for row, at := range v.index {
		server, _, destination := strings.Cut(row, " -> ")
		if destination && v.seen[at] != v.looks && v.seen[v.index[server]] == v.looks {
			lost = append(lost, row)
		}
	}
	slices.Sort(lost)
	return lost, nil
}

func TestVigil(t *testing.T) {
	const text = `IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
TCP  0A600001:01BB rr
  -> 0A000202:526D      Masq    1      2          0
UDP  0A60000A:0035 rr persistent 10800 FFFFFFFF
TCP  [fd00:0010:0096:0000:0000:0000:0000:0001]:0050 wlc
  -> [fd00:0010:0244:0000:0000:0000:0000:0001]:1F90      Masq    0      0          7
`
	all, err := parseTable([]byte(text))
	must(t, err)
	want := table{
		"TCP 0A600001:01BB": 1, "TCP 0A600001:01BB -> 0A000202:526D": 1, "UDP 0A60000A:0035": 1,
		"TCP [fd00:0010:0096:0000:0000:0000:0000:0001]:0050":                                                   1,
		"TCP [fd00:0010:0096:0000:0000:0000:0000:0001]:0050 -> [fd00:0010:0244:0000:0000:0000:0000:0001]:1F90": 0,
	}
	if diff := cmp.Diff(want, all); diff != "" || all.servers() != 3 {
		t.Errorf("%d servers in the table, want 3 (-want +got):\n%s", all.servers(), diff)
	}
	heading := strings.Join(strings.SplitAfter(text, "\n")[:3], "")
	v := newVigil(all)
	for _, tt := range []struct {
		name, text string
		lost       []string
	}{
		{"as it was", text, nil},
		{"empty", heading, nil},
		{"its destination is gone", strings.Replace(text, "  -> 0A000202:526D      Masq    1      2          0\n", "", 1), []string{"TCP 0A600001:01BB -> 0A000202:526D"}},
		{"drained", strings.Replace(text, "Masq    1", "Masq    0", 1), []string{"TCP 0A600001:01BB -> 0A000202:526D"}},
		{"a server less", strings.Replace(text, "UDP  0A60000A:0035 rr persistent 10800 FFFFFFFF\n", "", 1), nil},
		{"under another server", strings.Replace(text, "0A600001:01BB", "0A600001:0050", 1), nil},
		{"more than there was", text + "TCP  0A600002:01BB rr\n  -> 0A000202:526D      Masq    0      2          0\n", nil},
	} {
		lost, err := v.look([]byte(tt.text))
		must(t, err)
		same(t, tt.name, tt.lost, lost)
	}
	for _, broken := range []string{heading + "  -> 0A000202:526D Masq 1 0 0\n", text + "  -> 0A000202:526D Masq x 0 0\n", text + "TCP\n"} {
		if _, err := parseTable([]byte(broken)); err == nil {
			t.Errorf("no error for\n%s", broken)
		}
	}
}
