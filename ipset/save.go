package ipset

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Contents is a set with its entries.
type Contents struct {
	Set     Set
	Entries []Entry
}

// SaveLine prints the header as `ipset save` does, without the hash parameters `bucketsize` and
// `initval` that newer tools add for newer set revisions. The first always has its default, the
// second is random.
func (s Set) SaveLine() string {
	s = s.WithDefaults()
	line := "create " + s.Name + " " + string(s.Type)
	switch {
	case s.Type == BitmapPort:
		line += fmt.Sprintf(" range %d-%d", s.PortFrom, s.PortTo)
	case s.Family != Unspec:
		line += fmt.Sprintf(" family %s hashsize %d maxelem %d", s.Family, s.HashSize, s.MaxElem)
	}
	if s.Timeout != 0 {
		line += fmt.Sprintf(" timeout %d", s.Timeout)
	}
	if s.Options != "" {
		line += " " + s.Options
	}
	return line
}

// SaveLine prints the entry as a line of `ipset save` for the named set.
func (e Entry) SaveLine(set string) string { return "add " + set + " " + e.String() }

// WriteSave prints sets by name and entries by Entry.Compare, in the form of
// `ipset save`, so that equal contents give equal text. `ipset restore` reads
// it. The arguments are not changed.
func WriteSave(w io.Writer, contents ...Contents) error {
	contents = slices.Clone(contents)
	slices.SortFunc(contents, func(a, b Contents) int { return cmp.Compare(a.Set.Name, b.Set.Name) })
	out := bufio.NewWriter(w)
	for _, c := range contents {
		_, _ = out.WriteString(c.Set.SaveLine() + "\n") // Flush returns the first error
		for _, e := range slices.SortedFunc(slices.Values(c.Entries), Entry.Compare) {
			_, _ = out.WriteString(e.SaveLine(c.Set.Name) + "\n")
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write save text: %w", err)
	}
	return nil
}

// NormalizeSave brings the text of `ipset save` into the form of WriteSave: no
// volatile hash parameters, sets by name, entries in order. Lines it cannot
// read are an error.
func NormalizeSave(text string) (string, error) {
	contents, err := ParseSave(strings.NewReader(text))
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = WriteSave(&b, contents...)
	return b.String(), err
}
