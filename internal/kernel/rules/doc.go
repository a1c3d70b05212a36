// Package rules turns chains, rules and jumps into iptables state and lists what
// the kernel holds. It knows tables, chains, rules and the two backends
// (nft and legacy); it knows nothing of Services, sets or marks.
//
//	List       iptables-save   ->  chains we own, jumps from built-in chains into them
//	Write      changed chains,
//	           single rules    ->  one iptables-restore --noflush per family
//	WriteJumps jumps           ->  one listing per hook, one iptables-restore per family
//	JumpsThere jumps           ->  one listing per hook
//	FilterTables                ->  one iptables-save a family and backend, of table filter
//	Stamp      tables          ->  one system call each (legacy; nft has a generation)
//
// Laws of the package:
//
//   - A rule is text in the form iptables-save prints ([Canonical]), so drift
//     is a comparison of strings and needs no hash in a comment: names and
//     rules stay exactly kube-proxy's, and a roll-back finds its own chains.
//   - A [Handle] reads and writes only chains accepted by [Options.Owned], and in
//     a built-in chain only rules whose target is such a chain.
//   - Processes are what a change costs, so they do not grow with it: a hook or a
//     chain is listed once, everything of a family is written at once. A refusal
//     alone takes more, to find the guilty row.
//   - Every process has a deadline that includes the wait for the xtables lock. One
//     that was waited for in vain is not waited for again before it is free.
//   - A bad chain, rule or jump fails alone: its neighbours in the batch are
//     written, and a rule is not written twice on the way.
//   - Exit statuses and messages of the tools end here; callers get
//     [ErrExist], [ErrNotExist], [ErrBusy] and [ErrUnsupported].
//
// The writes of a [Handle] belong to one goroutine. Everything else may be called
// from others, also beside a write, in the network namespace of their thread.
package rules
