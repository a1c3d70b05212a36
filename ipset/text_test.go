package ipset_test

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// byValue lets cmp compare values of the package with ==.
var byValue = cmp.Options{
	cmp.Comparer(func(a, b ipset.Entry) bool { return a == b }),
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func TestEntryText(t *testing.T) {
	for _, tt := range []struct {
		typ   ipset.Type
		entry ipset.Entry
		text  string
	}{
		{ipset.HashIP, ipset.IP(addr("10.96.0.1")), "10.96.0.1"},
		{ipset.HashIP, ipset.IP(addr("::ffff:10.96.0.1")), "10.96.0.1"},
		{ipset.HashIP, ipset.IP(addr("2001:DB8:0:0::1")), "2001:db8::1"},
		{ipset.HashIPPort, ipset.IPPort(addr("10.96.0.1"), ipset.TCP, 80), "10.96.0.1,tcp:80"},
		{ipset.HashIPPort, ipset.IPPort(addr("fd00::1"), ipset.UDP, 0), "fd00::1,udp:0"},
		{ipset.HashIPPort, ipset.IPPort(addr("10.0.0.1"), ipset.SCTP, 65535), "10.0.0.1,sctp:65535"},
		{ipset.HashIPPort, ipset.IPPort(addr("10.0.0.1"), ipset.UDPLite, 1), "10.0.0.1,udplite:1"},
		{ipset.HashIPPort, ipset.IPPort(addr("10.0.0.1"), 47, 0), "10.0.0.1,47:0"},
		{ipset.HashIPPortIP, ipset.IPPortIP(addr("10.0.0.1"), ipset.TCP, 80, addr("10.0.0.2")), "10.0.0.1,tcp:80,10.0.0.2"},
		{ipset.HashIPPortNet, ipset.IPPortNet(addr("10.0.0.1"), ipset.TCP, 80, netip.MustParsePrefix("192.168.7.9/16")), "10.0.0.1,tcp:80,192.168.0.0/16"},
		{ipset.HashIPPortNet, ipset.IPPortNet(addr("10.0.0.1"), ipset.TCP, 80, netip.MustParsePrefix("192.168.7.9/32")), "10.0.0.1,tcp:80,192.168.7.9"},
		{ipset.HashIPPortNet, ipset.IPPortNet(addr("fd00::1"), ipset.TCP, 80, netip.MustParsePrefix("fd00::2/128")), "fd00::1,tcp:80,fd00::2"},
		{ipset.BitmapPort, ipset.Port(0), "0"},
		{ipset.BitmapPort, ipset.Port(65535), "65535"},
	} {
		t.Run(tt.text, func(t *testing.T) {
			if got := tt.entry.String(); got != tt.text {
				t.Errorf("String() = %q, want %q", got, tt.text)
			}
			got, err := ipset.ParseEntry(tt.typ, tt.text)
			if err != nil || got != tt.entry {
				t.Errorf("ParseEntry = %#v, %v, want %#v", got, err, tt.entry)
			}
		})
	}
}

func TestParseEntryRefusals(t *testing.T) {
	for _, tt := range []struct {
		typ  ipset.Type
		text string
		want string
	}{
		{ipset.HashIP, "", "unable to parse IP"},
		{ipset.HashIP, "10.0.0.1,tcp:80", "2 fields instead of 1"},
		{ipset.HashIP, "10.0.0.0/8", "unexpected character"},
		{ipset.HashIPPort, "10.0.0.1", "1 fields instead of 2"},
		{ipset.HashIPPort, "10.0.0.1,80", "no protocol"},
		{ipset.HashIPPort, "10.0.0.1,quic:80", "unknown protocol"},
		{ipset.HashIPPort, "10.0.0.1,0:80", "unknown protocol"},
		{ipset.HashIPPort, "10.0.0.1,tcp:65536", "out of range"},
		{ipset.HashIPPortIP, "10.0.0.1,tcp:80,x", "unable to parse IP"},
		{ipset.HashIPPortNet, "10.0.0.1,tcp:80,10.0.0.0/33", "out of range"},
		{ipset.HashIPPortNet, "10.0.0.1,tcp:80,x", "unable to parse IP"},
		{ipset.BitmapPort, "-1", "invalid syntax"},
		{"hash:net", "10.0.0.0/8", "not supported"},
	} {
		t.Run(string(tt.typ)+" "+tt.text, func(t *testing.T) {
			if e, err := ipset.ParseEntry(tt.typ, tt.text); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("ParseEntry = %v, %v, want %q", e, err, tt.want)
			}
		})
	}
}

func TestEntriesSort(t *testing.T) {
	var sorted []ipset.Entry
	for _, text := range []string{
		"9.0.0.1,udp:1,10.0.0.0/8", "10.0.0.1,tcp:1,10.0.0.0/8", "10.0.0.1,tcp:2,10.0.0.0/8", "10.0.0.1,tcp:2,10.0.0.0/9",
		"10.0.0.1,tcp:2,10.0.0.0/9 nomatch", "10.0.0.1,tcp:2,11.0.0.0/8", "10.0.0.1,udp:1,1.0.0.0/8", "fd00::1,tcp:1,fd00::/8",
	} {
		e, err := ipset.ParseEntry(ipset.HashIPPortNet, text)
		if err != nil {
			t.Fatal(err)
		}
		sorted = append(sorted, e)
	}
	got := slices.Clone(sorted)
	slices.Reverse(got)
	slices.SortFunc(got, ipset.Entry.Compare)
	if diff := cmp.Diff(sorted, got, byValue); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseSaveReadsToolText(t *testing.T) {
	text := `
create KUBE-CLUSTER-IP hash:ip,port family inet hashsize 2048 maxelem 65536 bucketsize 12 initval 0x9d4c27cf
add KUBE-CLUSTER-IP 10.96.0.10,udp:53
add KUBE-CLUSTER-IP 10.96.0.1,tcp:443
create A hash:ip family inet6 hashsize 1024 maxelem 9 timeout 300 counters comment bucketsize 12 initval 0x17bd917f
add A fd00::1 timeout 17 packets 0 bytes 0 comment "two words"
create P bitmap:port range 1-9
create N hash:net family inet hashsize 1024 maxelem 65536
`
	got, err := ipset.NormalizeSave(text)
	if err != nil {
		t.Fatal(err)
	}
	want := `create A hash:ip family inet6 hashsize 1024 maxelem 9 timeout 300 counters comment
add A fd00::1
create KUBE-CLUSTER-IP hash:ip,port family inet hashsize 2048 maxelem 65536
add KUBE-CLUSTER-IP 10.96.0.1,tcp:443
add KUBE-CLUSTER-IP 10.96.0.10,udp:53
create N hash:net
create P bitmap:port range 1-9
`
	want = strings.Replace(want, "create N hash:net\n", "create N hash:net family inet hashsize 1024 maxelem 65536\n", 1)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseSaveNamesTheLine(t *testing.T) {
	head := "create a hash:ip family inet hashsize 1024 maxelem 65536\n"
	for _, tt := range []struct{ name, text, want string }{
		{"unknown command", head + "swap a b\n", "line 2: invalid: \"swap a b\" is neither"},
		{"created twice", head + head, "line 2: invalid: set a is created twice"},
		{"not created", "add a 10.0.0.1", "line 1: invalid: set a is not created before"},
		{"bad entry", head + "\nadd a 10.0.0.300", "line 3: invalid: entry \"10.0.0.300\" of hash:ip"},
		{"bad family", "create a hash:ip family ipx", "unknown family \"ipx\""},
		{"bad number", "create a hash:ip maxelem many", "maxelem: "},
		{"bad range", "create a bitmap:port range 7", "range: \"7\" is no range"},
		{"range too high", "create a bitmap:port range 0-65536", "range: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ipset.ParseSave(strings.NewReader(tt.text))
			if !errors.Is(err, ipset.ErrInvalid) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("ParseSave = %v, want %q", err, tt.want)
			}
		})
	}
}

func TestParseSaveReportsReader(t *testing.T) {
	if _, err := ipset.ParseSave(brokenPipe{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("ParseSave = %v", err)
	}
}

func TestWriteSaveReportsWriter(t *testing.T) {
	set := ipset.Set{Name: "a", Type: ipset.BitmapPort}
	if err := ipset.WriteSave(brokenPipe{}, ipset.Contents{Set: set}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("WriteSave = %v", err)
	}
}

type brokenPipe struct{}

func (brokenPipe) Read([]byte) (int, error)  { return 0, io.ErrClosedPipe }
func (brokenPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestWriteSaveLeavesArgumentsAlone(t *testing.T) {
	entries := []ipset.Entry{ipset.Port(2), ipset.Port(1)}
	contents := []ipset.Contents{
		{Set: ipset.Set{Name: "b", Type: ipset.BitmapPort}, Entries: entries},
		{Set: ipset.Set{Name: "a", Type: ipset.BitmapPort}},
	}
	var b strings.Builder
	if err := ipset.WriteSave(&b, contents...); err != nil {
		t.Fatal(err)
	}
	want := "create a bitmap:port range 0-65535\ncreate b bitmap:port range 0-65535\nadd b 1\nadd b 2\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if contents[0].Set.Name != "b" || entries[0] != ipset.Port(2) {
		t.Error("the arguments were sorted in place")
	}
}

// FuzzEntryText: String prints every entry that ParseEntry accepts in a form that parses
// to the same value and no longer changes.
func FuzzEntryText(f *testing.F) {
	for i, text := range []string{"10.0.0.1", "10.0.0.1,tcp:80", "fd00::1,udp:53,fd00::2", "10.0.0.1,sctp:1,10.0.0.0/8 nomatch", "80", "::ffff:1.2.3.4%x"} {
		f.Add(i%5, text)
	}
	f.Fuzz(func(t *testing.T, typ int, text string) {
		types := ipset.Types()
		kind := types[uint(typ)%uint(len(types))]
		e, err := ipset.ParseEntry(kind, text)
		if err != nil {
			return
		}
		again, err := ipset.ParseEntry(kind, e.String())
		if err != nil || again != e {
			t.Errorf("%s %q: %#v became %#v, %v", kind, text, e, again, err)
		}
	})
}

// FuzzParseSave: normal text is a fixed point, and nothing panics.
func FuzzParseSave(f *testing.F) {
	f.Add(everySave)
	f.Add("create a hash:ip timeout\nadd a 10.0.0.1 comment \"x\"")
	f.Fuzz(func(t *testing.T, text string) {
		once, err := ipset.NormalizeSave(text)
		if err != nil {
			return
		}
		twice, err := ipset.NormalizeSave(once)
		if err != nil || once != twice {
			t.Errorf("%v (-once +twice):\n%s", err, cmp.Diff(once, twice))
		}
	})
}

const everySave = `create a hash:ip,port,net family inet6 hashsize 1024 maxelem 65536 bucketsize 12 initval 0x1
add a fd00::1,tcp:80,fd00::/8 nomatch
create p bitmap:port range 10-20
add p 15
`

func ExampleNormalizeSave() {
	text, err := ipset.NormalizeSave(`create b bitmap:port range 0-65535
create a hash:ip family inet hashsize 1024 maxelem 65536 bucketsize 12 initval 0x9d4c27cf
add a 10.0.0.2
add a 10.0.0.1
`)
	fmt.Print(text, err)
	// Output:
	// create a hash:ip family inet hashsize 1024 maxelem 65536
	// add a 10.0.0.1
	// add a 10.0.0.2
	// create b bitmap:port range 0-65535
	// <nil>
}
