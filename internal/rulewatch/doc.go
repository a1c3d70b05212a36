// Package rulewatch notices when another program changes rules that Services depend on, and
// starts the repair.
//
//	Watcher          our jumps are gone: another program flushed a table or a hook
//	TableWatcher     another program wrote to nftables, where our rules and sets are
//	StrayRules       rules of ours are in the backend of iptables that this agent does not use
//	FirewallWatcher  a filter of another program drops packets of Services
//
// Each waits for notifications of nftables where the kernel sends them, and polls otherwise.
// The package never writes rules of the mode itself: a function of the caller does, in the
// loop of the agent. A Watcher tells the agent's own writes from those of others, because all
// writes of the mode pass through its TrackedRules.
package rulewatch
