package ipset_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// everyShape is one set of every type and family with awkward members, as
// `ipset save` prints it, in the order of WriteSave.
const everyShape = `create ip4 hash:ip family inet hashsize 1024 maxelem 65536
add ip4 10.96.0.1
add ip4 255.255.255.255
create ip6 hash:ip family inet6 hashsize 1024 maxelem 65536
add ip6 2001:db8::1
add ip6 2001:db8:0:1::
add ip6 2001:db8:1:1:1:1:0:1
create net4 hash:ip,port,net family inet hashsize 64 maxelem 10
add net4 203.0.113.7,tcp:443,10.0.0.1
add net4 203.0.113.7,tcp:443,128.0.0.0/1
add net4 203.0.113.7,tcp:443,192.168.0.0/16 nomatch
create net6 hash:ip,port,net family inet6 hashsize 1024 maxelem 65536
add net6 2001:db8::7,tcp:443,fd00::/8
add net6 2001:db8::7,tcp:443,fd00::1
create nodeports bitmap:port range 30000-32767
add nodeports 30000
add nodeports 32767
create port4 hash:ip,port family inet hashsize 1024 maxelem 65536
add port4 10.96.0.1,tcp:0
add port4 10.96.0.1,tcp:65535
add port4 10.96.0.1,udp:53
add port4 10.96.0.1,sctp:38412
add port4 10.96.0.1,udplite:9
create port6 hash:ip,port family inet6 hashsize 1024 maxelem 65536
add port6 2001:db8::1,tcp:80
create portip4 hash:ip,port,ip family inet hashsize 1024 maxelem 65536
add portip4 10.244.0.5,tcp:8080,10.244.0.5
create portip6 hash:ip,port,ip family inet6 hashsize 1024 maxelem 65536
add portip6 fd00::5,tcp:8080,fd00::5
`

// load creates sets from save text through the handle.
func load(t testing.TB, h *ipset.Handle, text string) {
	t.Helper()
	contents, err := ipset.ParseSave(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range contents {
		if err := h.Create(t.Context(), c.Set); err != nil {
			t.Fatal(err)
		}
		var changes []ipset.Change
		for _, e := range c.Entries {
			changes = append(changes, ipset.AddEntry(e))
		}
		if errs := h.Write(t.Context(), c.Set, changes); errs != nil {
			t.Fatal(errors.Join(errs...))
		}
	}
}

// saved prints what the handle lists.
func saved(t testing.TB, h *ipset.Handle) string {
	t.Helper()
	sets, err := h.ListSets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var contents []ipset.Contents
	for _, s := range sets {
		set, entries, err := h.List(t.Context(), s.Name)
		if err != nil {
			t.Fatal(err)
		}
		contents = append(contents, ipset.Contents{Set: set, Entries: entries})
	}
	var b strings.Builder
	if err := ipset.WriteSave(&b, contents...); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func normalize(t testing.TB, text string) string {
	t.Helper()
	out, err := ipset.NormalizeSave(text)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestToolSavesWhatWeWrote(t *testing.T) {
	h := openKernel(t)
	load(t, h, everyShape)
	if diff := cmp.Diff(everyShape, normalize(t, tool(t, "", "save"))); diff != "" {
		t.Errorf("ipset save (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(everyShape, saved(t, h)); diff != "" {
		t.Errorf("own list (-want +got):\n%s", diff)
	}
}

// The revisions we choose have no hash parameters to print, so the header lines
// of our own sets need no normalising.
func TestToolPrintsOurHeadersVerbatim(t *testing.T) {
	h := openKernel(t)
	load(t, h, everyShape)
	text := tool(t, "", "save")
	for _, line := range strings.Split(everyShape, "\n") {
		if strings.HasPrefix(line, "create") && !strings.Contains(text, line+"\n") {
			t.Errorf("ipset save lacks %q", line)
		}
	}
}

func TestToolRestoresOurText(t *testing.T) {
	h := openKernel(t)
	tool(t, everyShape, "restore")
	if diff := cmp.Diff(everyShape, saved(t, h)); diff != "" {
		t.Errorf("list after ipset restore (-want +got):\n%s", diff)
	}
}

// A program that drives the tool must be able to take our sets over, as we take
// over its sets.
func TestToolAdoptsOurSets(t *testing.T) {
	h := openKernel(t)
	load(t, h, everyShape)
	for _, line := range strings.Split(everyShape, "\n") {
		if strings.HasPrefix(line, "create") {
			tool(t, "", append(strings.Fields(line), "-exist")...)
		}
	}
	tool(t, "", "add", "port4", "10.96.0.2,tcp:80", "-exist")
	tool(t, "", "del", "port4", "10.96.0.2,tcp:80", "-exist")
	if diff := cmp.Diff(everyShape, saved(t, h)); diff != "" {
		t.Errorf("after adoption (-want +got):\n%s", diff)
	}
}

func TestForeignOptionsAreSeen(t *testing.T) {
	h := openKernel(t)
	tool(t, "", "create", "a", "hash:ip", "timeout", "300", "counters", "comment", "skbinfo", "forceadd")
	tool(t, "", "add", "a", "10.0.0.1", "comment", "x")
	sets, err := h.ListSets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := sets[0].Options, "counters comment forceadd skbinfo"; got != want || sets[0].Timeout != 300 {
		t.Errorf("options %q, want %q", got, want)
	}
	plain := ipset.Set{Name: "a", Type: ipset.HashIP, Family: ipset.IPv4}
	if plain.Compatible(sets[0]) {
		t.Errorf("%+v passes for a plain set", sets[0])
	}
	_, entries, err := h.List(t.Context(), "a")
	want := []ipset.Entry{ipset.IP(netip.MustParseAddr("10.0.0.1"))}
	if diff := cmp.Diff(want, entries, byValue); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestUnsupportedTypeIsRefusedNotHalfRead(t *testing.T) {
	h := openKernel(t)
	tool(t, "", "create", "nets", "hash:net")
	tool(t, "", "add", "nets", "10.0.0.0/8")
	set, entries, err := h.List(t.Context(), "nets")
	if !errors.Is(err, ipset.ErrUnsupported) || entries != nil || set.Type != "hash:net" {
		t.Errorf("List = %+v %v %v", set, entries, err)
	}
	e := ipset.IP(netip.MustParseAddr("10.0.0.1"))
	if err := h.Add(t.Context(), "nets", e); !errors.Is(err, ipset.ErrUnsupported) {
		t.Errorf("Add = %v", err)
	}
}

// Members that another program put into our set are listed and can be deleted, although this
// package would not write them.
func TestForeignMembersCanBeDeleted(t *testing.T) {
	h := openKernel(t)
	set := ipset.Set{Name: "a", Type: ipset.HashIPPort, Family: ipset.IPv4}
	if err := h.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	tool(t, "", "add", "a", "10.0.0.1,icmp:8/0")
	tool(t, "", "add", "a", "10.0.0.1,47:0")
	_, entries, err := h.List(t.Context(), "a")
	if err != nil || len(entries) != 2 {
		t.Fatalf("List = %v, %v", entries, err)
	}
	changes := []ipset.Change{ipset.DeleteEntry(entries[0]), ipset.DeleteEntry(entries[1])}
	if errs := h.Write(t.Context(), set, changes); errs != nil {
		t.Fatal(errors.Join(errs...))
	}
	if got, want := saved(t, h), set.SaveLine()+"\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
