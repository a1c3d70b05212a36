// Package top shows live what virtual servers and their destinations carry.
//
//	kernel: counters, loads ─► Sample ─┐
//	agent: names, drains ─────► Names ─┼─► Table ─► text, JSON     (once)
//	sample before ─────────────────────┘     │
//	                            keys ─► Screen ─► View ─► terminal (again and again)
//
// It reads the kernel itself, so it works beside an agent that is stuck, and without one: then
// addresses are shown instead of names. All but Run is pure: a Screen is a value, and what it shows
// follows from the samples and keys that it was given.
//
// A sample costs one dump of all servers (vserver.Handle.ListTraffic), one read of the kernel's
// list, and one dump for each server of the Service whose backends are shown.
package top
