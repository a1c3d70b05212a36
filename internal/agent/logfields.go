package agent

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"go.uber.org/zap/zapcore"
)

// rowCounts logs the rows of a cycle, one object for each table.
type rowCounts []TableRows

// MarshalLogArray implements zapcore.ArrayMarshaler.
func (r rowCounts) MarshalLogArray(enc zapcore.ArrayEncoder) error {
	for _, t := range r {
		if err := enc.AppendObject(t); err != nil {
			return err
		}
	}
	return nil
}

// MarshalLogObject implements zapcore.ObjectMarshaler; it leaves out counts of zero.
func (t TableRows) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	enc.AddString("table", t.Table)
	for _, c := range []struct {
		name string
		n    int
	}{{"adds", t.Adds}, {"updates", t.Updates}, {"deletes", t.Deletes}, {"failed", t.Failed}} {
		if c.n > 0 {
			enc.AddInt(c.name, c.n)
		}
	}
	return nil
}

func sameAddresses(a, b map[netip.Addr]string) bool {
	for addr := range a {
		if _, is := b[addr]; !is {
			return false
		}
	}
	return len(a) == len(b)
}

// missing lists a few of the addresses in one map that the other lacks.
func missing(in, from map[netip.Addr]string) []string {
	return few(func(yield func(netip.Addr) bool) {
		for a := range in {
			if _, ok := from[a]; !ok && !yield(a) {
				return
			}
		}
	})
}

// few prints the first addresses of a list and the number of those that follow.
func few(list iter.Seq[netip.Addr]) []string {
	const most = 8
	var out []string
	sorted := slices.SortedFunc(list, netip.Addr.Compare)
	for _, a := range sorted[:min(most, len(sorted))] {
		out = append(out, a.String())
	}
	if rest := len(sorted) - most; rest > 0 {
		out = append(out, fmt.Sprintf("and %d more", rest))
	}
	return out
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
