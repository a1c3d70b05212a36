// Package rules turns chains and jumps into iptables state and lists what
// the kernel holds. It knows tables, chains, rules and the two backends
// (nft and legacy); it knows nothing of Services, sets or marks.
//
//	List        iptables-save  ->  chains we own, jumps from built-in chains into them
//	WriteChains changed chains ->  one iptables-restore --noflush per family
//	WriteJumps  jumps          ->  go-iptables, one process per step (bootstrap only)
//
// Laws of the room:
//
//   - A rule is text in the form iptables-save prints ([Canonical]), so drift
//     is a comparison of strings and needs no hash in a comment: names and
//     rules stay exactly kube-proxy's, and a roll-back finds its own chains.
//   - Only chains accepted by [Options.Owned] are ever read or written, and in
//     a built-in chain only rules whose target is such a chain.
//   - Every process has a deadline that includes the wait for the xtables lock.
//   - A bad chain fails alone: its neighbours in the batch are written.
//   - Exit statuses and messages of the tools end here; callers get
//     [ErrExist], [ErrNotExist], [ErrBusy] and [ErrUnsupported].
//
// A [Handle] belongs to one goroutine; only [Handle.Counters] and
// [Handle.RestoreFailures] may be called from others.
package rules
