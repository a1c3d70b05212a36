package ipsettest

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// Client is what Handle and Fake have in common.
type Client interface {
	Probe(ctx context.Context) (ipset.Version, error)
	Revision(ctx context.Context, t ipset.Type, f ipset.Family) (uint8, error)
	ListSets(ctx context.Context) ([]ipset.Set, error)
	Stat(ctx context.Context) ([]ipset.Info, error)
	List(ctx context.Context, name string) (ipset.Set, []ipset.Entry, error)
	Create(ctx context.Context, s ipset.Set) error
	Destroy(ctx context.Context, name string) error
	Flush(ctx context.Context, name string) error
	Swap(ctx context.Context, a, b string) error
	Rename(ctx context.Context, from, to string) error
	Add(ctx context.Context, name string, entries ...ipset.Entry) error
	Delete(ctx context.Context, name string, entries ...ipset.Entry) error
	Test(ctx context.Context, name string, e ipset.Entry) (bool, error)
	Write(ctx context.Context, s ipset.Set, changes []ipset.Change) []error
	Replace(ctx context.Context, s ipset.Set, entries []ipset.Entry) error
	Close() error
}

// Subject is an empty ipset subsystem under the contract.
type Subject struct {
	Client
	// Refer makes a rule refer to the set, or skips the test with a reason.
	Refer func(name string)
}

// Contract checks that a Client behaves as package ipset promises. open is
// called once per subtest and returns a fresh, empty subject; it may skip.
func Contract(t *testing.T, open func(t *testing.T) Subject) {
	for _, s := range shapes() {
		t.Run("Members/"+s.set.Name, func(t *testing.T) { checkMembers(t, open(t), s) })
	}
	for name, check := range map[string]func(*testing.T, Subject){
		"Version":                        checkVersion,
		"CreateTwice":                    checkCreateTwice,
		"CreateInvalid":                  checkCreateInvalid,
		"DefaultsAreReadBack":            checkDefaults,
		"HashSizeIsRounded":              checkRounding,
		"NamesAreChecked":                checkNames,
		"MissingSet":                     checkMissingSet,
		"StrictAddAndDelete":             checkStrict,
		"StrictRefusesWrongShape":        checkWrongShape,
		"WriteConverges":                 checkConverges,
		"WriteReportsEachRow":            checkRows,
		"WriteOfNothing":                 checkWriteNothing,
		"WriteRefusesOtherType":          checkWriteOtherType,
		"WriteKeepsOrder":                checkWriteOrder,
		"WriteManyRuns":                  checkManyRuns,
		"FullSet":                        checkFull,
		"PortOutsideKernelRange":         checkPortRange,
		"NoMatchIsOneMember":             checkNoMatch,
		"FlushKeepsSet":                  checkFlush,
		"SwapContents":                   checkSwap,
		"SwapRefusals":                   checkSwapRefusals,
		"Rename":                         checkRename,
		"ReferencedSetStays":             checkReferenced,
		"StatCounts":                     checkStat,
		"ReplaceGrows":                   checkReplaceGrows,
		"ReplaceCreates":                 checkReplaceCreates,
		"ReplaceOtherType":               checkReplaceOtherType,
		"ReplaceRefusesReferencedType":   checkReplaceReferenced,
		"ReplaceLeavesAllOnBadEntry":     checkReplaceBadEntry,
		"ReplaceSweepsLeftOver":          checkReplaceLeftOver,
		"CancelledContextTouchesNothing": checkCancelled,
	} {
		t.Run(name, func(t *testing.T) { check(t, open(t)) })
	}
}

// shape is a set of one type and family with entries for it and one that does
// not belong.
type shape struct {
	set     ipset.Set
	entries []string
	strange ipset.Entry
}

// shapes covers every type in both families.
func shapes() []shape {
	v4, v6 := ipset.IPv4, ipset.IPv6
	alien4, alien6 := netip.MustParseAddr("2001:db8::99"), netip.MustParseAddr("192.0.2.99")
	return []shape{
		{hash("ip4", ipset.HashIP, v4), []string{"10.96.0.1", "255.255.255.255"}, ipset.IP(alien4)},
		{hash("ip6", ipset.HashIP, v6), []string{"2001:db8::1", "fd00::"}, ipset.IP(alien6)},
		{hash("port4", ipset.HashIPPort, v4),
			[]string{"10.96.0.1,tcp:80", "10.96.0.1,udp:53", "10.96.0.1,sctp:38412", "10.96.0.1,udplite:0", "10.96.0.1,tcp:65535"},
			ipset.IPPort(alien4, ipset.TCP, 80)},
		{hash("port6", ipset.HashIPPort, v6),
			[]string{"2001:db8::1,tcp:80", "::1,udp:53"}, ipset.IPPort(alien6, ipset.TCP, 80)},
		{hash("portip4", ipset.HashIPPortIP, v4),
			[]string{"10.244.0.5,tcp:8080,10.244.0.5", "10.244.0.5,tcp:8080,10.244.0.6"},
			ipset.IPPortIP(alien4, ipset.TCP, 80, alien4)},
		{hash("portip6", ipset.HashIPPortIP, v6),
			[]string{"fd00::5,tcp:8080,fd00::5"}, ipset.IPPortIP(alien6, ipset.TCP, 80, alien6)},
		{hash("portnet4", ipset.HashIPPortNet, v4),
			[]string{"203.0.113.7,tcp:443,198.51.100.0/24", "203.0.113.7,tcp:443,10.0.0.1", "203.0.113.7,udp:443,128.0.0.0/1"},
			ipset.IPPortNet(alien4, ipset.TCP, 80, netip.PrefixFrom(alien4, 64))},
		{hash("portnet6", ipset.HashIPPortNet, v6),
			[]string{"2001:db8::7,tcp:443,fd00::/8", "2001:db8::7,tcp:443,fd00::1", "2001:db8::7,tcp:443,8000::/1"},
			ipset.IPPortNet(alien6, ipset.TCP, 80, netip.PrefixFrom(alien6, 24))},
		{ipset.Set{Name: "ports", Type: ipset.BitmapPort}, []string{"0", "80", "30080", "65535"}, ipset.IP(alien4)},
	}
}

func hash(name string, t ipset.Type, f ipset.Family) ipset.Set {
	return ipset.Set{Name: name, Type: t, Family: f}
}

// parse reads entries of a set's type.
func parse(t *testing.T, s ipset.Set, texts ...string) []ipset.Entry {
	t.Helper()
	entries := make([]ipset.Entry, len(texts))
	for i, text := range texts {
		e, err := ipset.ParseEntry(s.Type, text)
		if err != nil {
			t.Fatal(err)
		}
		entries[i] = e
	}
	return entries
}

// save prints what the client lists, the way `ipset save` does.
func save(t *testing.T, c Client) string {
	t.Helper()
	sets, err := c.ListSets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var contents []ipset.Contents
	for _, s := range sets {
		header, entries, err := c.List(t.Context(), s.Name)
		if err != nil {
			t.Fatal(err)
		}
		if header != s {
			t.Errorf("List header %+v differs from ListSets %+v", header, s)
		}
		contents = append(contents, ipset.Contents{Set: header, Entries: entries})
	}
	var b strings.Builder
	if err := ipset.WriteSave(&b, contents...); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// must fails the test at once on an error.
func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}
