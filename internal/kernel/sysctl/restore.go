package sysctl

import (
	"context"
	"slices"

	"go.uber.org/zap"
)

// Restore gives every key in the journal its old value back and deletes its entry. A key
// that no longer has our value belongs to the process that changed it, and is left; so is one
// that other programs may need by now (see needed). Refused
// keys stay in the journal for another try; once it is empty the file is removed.
func (h *Handle) Restore(ctx context.Context) []Result {
	return h.restore(ctx, func(string) bool { return true }, needed)
}

// RestoreKeys is Restore for some keys, such as those of an option that has been
// switched off while the agent runs. A key that was never changed has no result:
// it is right as it is. Results come in the order of the journal, not of keys.
func (h *Handle) RestoreKeys(ctx context.Context, keys ...string) []Result {
	return h.restore(ctx, func(key string) bool { return slices.Contains(keys, key) }, nil)
}

func (h *Handle) restore(ctx context.Context, asked func(key string) bool, needed map[string]string) []Result {
	book, note := h.openJournal()
	var results []Result
	for _, key := range book.keys() {
		if !asked(key) {
			continue
		}
		r := h.restoreOne(ctx, key, book.entries[key], needed[key])
		h.report(r)
		if note != "" {
			r.Note, note = note, ""
		}
		results = append(results, r)
		if r.Outcome != Refused {
			book.forget(key)
		}
	}
	if err := book.close(); err != nil && book.unread == nil { // of that it was warned
		h.log.Warn("journal of sysctls is kept", zap.Error(err))
	}
	return results
}

// needed has the keys that stay as they are when kube-ipvs leaves the node, and why. The rest is read by IPVS alone, is
// less strict than before (ARP, loopback), or only sets how long idle connections are kept.
var needed = map[string]string{
	"net.ipv4.ip_forward": "pods and other programs may need forwarding",
	keyConntrackMax:       "connections may need the larger table",
}

// restoreOne leaves a key that has our value where needed has a reason.
func (h *Handle) restoreOne(ctx context.Context, key string, e entry, needed string) Result {
	r := Result{Sysctl: Sysctl{Key: key, Value: e.Old, Why: "the value before kube-ipvs"}}
	switch {
	case !h.readKey(ctx, &r):
	case r.Have == e.Old:
		r.Outcome = Right
	case r.Have != e.Ours:
		r.Outcome = Left
	case needed != "":
		r.Outcome, r.Note = Left, needed
	default:
		h.writeKey(ctx, &r, e.Old, Restored)
	}
	return r
}
