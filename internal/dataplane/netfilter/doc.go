// Package netfilter has what both modes share of rules: a rule as a value, its conditions and
// targets, chains and jumps, and what many rules have in common (Masquerade, LocalPods).
//
//	a mode              this package                            kernel/rules
//	builds rules ─────► Rule ── render.go ─► Line, Chain, Jump ─► text of iptables-restore
//	asks about rules ◄─ Rule ◄─ parse.go ─── Line, Chain, Jump ◄─ text of iptables-save
//
// Modes know rules as values. Two files know the text of the tools: render.go writes it and
// parse.go reads it, for both families. Tables keep encoded lines, which are small and compare
// as strings.
package netfilter
