package ipsettest

import (
	"context"
	"errors"
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
	CreateAll(ctx context.Context, sets ...ipset.Set) []error
	Destroy(ctx context.Context, name string) error
	Flush(ctx context.Context, name string) error
	Swap(ctx context.Context, a, b string) error
	Rename(ctx context.Context, from, to string) error
	Add(ctx context.Context, name string, entries ...ipset.Entry) error
	Delete(ctx context.Context, name string, entries ...ipset.Entry) error
	Test(ctx context.Context, name string, e ipset.Entry) (bool, error)
	Write(ctx context.Context, s ipset.Set, changes []ipset.Change) []error
	WriteAll(ctx context.Context, batches ...ipset.Batch) [][]error
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
		"CreateAll":                      checkCreateAll,
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
		"WriteAllSets":                   checkWriteAll,
		"WriteAllOfManySets":             checkWriteAllMany,
		"FullSet":                        checkFull,
		"EntriesExpire":                  checkExpire,
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

// wantErr checks the sentinel, and that the text names the object.
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
