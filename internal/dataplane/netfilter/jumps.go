package netfilter

import (
	"cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// Jumps are those of a mode from the chains of the kernel to its own, in the order in which
// they are inserted at the head of their hook.
type Jumps []JumpSpec

// JumpSpec is one of Jumps.
type JumpSpec struct {
	Table, Hook, Target string
	// Match is nil for a jump that all packets take.
	Match   Match
	Comment string
	// Last puts the jump behind the other rules of its hook.
	Last bool
}

// In returns the key of the jump in a family.
func (j JumpSpec) In(f model.Family) JumpKey {
	return JumpKey{Family: f, Table: j.Table, Hook: j.Hook, Target: j.Target}
}

// TargetOf returns the key of the chain that a jump leads to.
func TargetOf(k JumpKey) ChainKey { return ChainKey{Family: k.Family, Table: k.Table, Name: k.Target} }

// Rows returns the jumps of a family to wanted chains; nil wants all.
func (js Jumps) Rows(f model.Family, wanted func(ChainKey) bool) map[JumpKey]Jump {
	out := map[JumpKey]Jump{}
	for _, j := range js {
		if wanted == nil || wanted(Key(f, j.Table, j.Target)) {
			out[j.In(f)] = NewJump(f, j.Match, Comment(j.Comment))
		}
	}
	return out
}

// Compare is the order in which jumps are inserted; unknown ones come last.
func (js Jumps) Compare(a, b JumpKey) int {
	return cmp.Or(cmp.Compare(a.Family, b.Family), cmp.Compare(js.rank(a), js.rank(b)), a.Compare(b))
}

// CompareInHook is the order in which packets meet jumps: the jump that is put at the head last comes
// first.
func (js Jumps) CompareInHook(a, b JumpKey) int {
	return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Hook, b.Hook), cmp.Compare(js.place(a), js.place(b)), a.Compare(b))
}

func (js Jumps) place(k JumpKey) int {
	if js.last(k) {
		return js.rank(k)
	}
	return -js.rank(k)
}

func (js Jumps) rank(k JumpKey) int {
	for i, j := range js {
		if j.Table == k.Table && j.Hook == k.Hook && j.Target == k.Target {
			return i
		}
	}
	return len(js)
}

func (js Jumps) last(k JumpKey) bool {
	rank := js.rank(k)
	return rank < len(js) && js[rank].Last
}

// above lists the targets of the jumps that come before one in its hook.
func (js Jumps) above(k JumpKey) []string {
	var out []string
	for i, j := range js {
		if i > js.rank(k) && j.Table == k.Table && j.Hook == k.Hook && !j.Last {
			out = append(out, j.Target)
		}
	}
	return out
}
