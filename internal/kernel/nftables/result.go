package nftables

import (
	"cmp"
	"fmt"
	"slices"
)

// CheckAll returns the errors of Delete for keys of which some cannot be sent, nil if all can.
func CheckAll(keys []Key) []error {
	faults := make(map[Key]error)
	for _, k := range keys {
		if err := k.Check(); err != nil {
			faults[k] = err
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return Together(keys, faults, nil)
}

// Together returns the errors of a failed transaction, aligned with its keys. Each is the error of
// the whole, or else the key's own, or else that of the first table that caused the failure.
func Together(keys []Key, faults map[Key]error, all error) []error {
	var first Key
	for k := range faults {
		if first == (Key{}) || k.Compare(first) < 0 {
			first = k
		}
	}
	errs := make([]error, len(keys))
	for i, k := range keys {
		if err := cmp.Or(all, faults[k]); err != nil {
			errs[i] = fmt.Errorf("delete table %s: %w", k, err)
		} else {
			errs[i] = fmt.Errorf("delete table %s: it goes together with %s: %w", k, first, faults[first])
		}
	}
	return errs
}

// unique gives each key once: the kernel would miss a table that the same
// transaction has deleted already.
func unique(keys []Key) []Key {
	return slices.Compact(slices.SortedFunc(slices.Values(keys), Key.Compare))
}
