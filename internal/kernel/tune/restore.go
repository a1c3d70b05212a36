package tune

import (
	"context"
	"slices"

	"go.uber.org/zap"
)

// Restore gives every key in the journal its old value back and forgets it. A key
// that no longer has our value belongs to whoever changed it, and is left. Refused
// keys stay in the journal for another try; once it is empty the file is removed.
func (t *Tuner) Restore(ctx context.Context) []SysctlResult {
	return t.restore(ctx, func(string) bool { return true })
}

// RestoreKeys is Restore for some keys, such as those of an option that has been
// switched off while the agent runs. A key that was never changed has no result:
// it is right as it is. Results come in the order of the journal, not of keys.
func (t *Tuner) RestoreKeys(ctx context.Context, keys ...string) []SysctlResult {
	return t.restore(ctx, func(key string) bool { return slices.Contains(keys, key) })
}

func (t *Tuner) restore(ctx context.Context, asked func(key string) bool) []SysctlResult {
	book, note := t.openJournal()
	var results []SysctlResult
	for _, key := range book.keys() {
		if !asked(key) {
			continue
		}
		r := t.restoreOne(ctx, key, book.entries[key])
		t.report(r)
		r.Note, note = note, ""
		results = append(results, r)
		if r.Outcome != Refused {
			book.forget(key)
		}
	}
	if err := book.close(); err != nil && book.unread == nil { // of that it was warned
		t.log.Warn("journal of sysctls stays", zap.Error(err))
	}
	return results
}

func (t *Tuner) restoreOne(ctx context.Context, key string, e entry) SysctlResult {
	r := SysctlResult{Sysctl: Sysctl{Key: key, Value: e.Old, Why: "the value before kube-ipvs"}}
	switch {
	case !t.readKey(ctx, &r):
	case r.Have == e.Old:
		r.Outcome = Right
	case r.Have != e.Ours:
		r.Outcome = Left
	default:
		t.writeKey(ctx, &r, e.Old, Restored)
	}
	return r
}
