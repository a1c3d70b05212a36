// Package packed checks the small forms of keys (delta.KeyCodec).
package packed

import (
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/delta"
)

// Check packs keys and fails the test where a key comes back as another, or two keys have one small
// form. It returns how many keys have a small form.
func Check[K comparable](t *testing.T, p delta.KeyCodec[K], keys []K) (packed int) {
	t.Helper()
	seen := map[delta.PackedKey]K{}
	for _, k := range keys {
		small, ok := p.Pack(k)
		if !ok {
			continue
		}
		packed++
		if got := p.Unpack(small); got != k {
			t.Errorf("%+v came back as %+v", k, got)
		}
		if twin, had := seen[small]; had && twin != k {
			t.Errorf("%+v and %+v are packed alike", k, twin)
		}
		seen[small] = k
	}
	return packed
}
