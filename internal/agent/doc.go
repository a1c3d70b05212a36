// Package agent is the single loop of kube-ipvs: wait, take, compile, apply, record.
//
//	catalog ── dirty Services ──► compile ──► mode.Set ──► mode.Apply ──► kernel
//	   ▲                                                       │
//	sources                                    Result ── backoff, log, metrics, status
//
// loop.go waits for the next change or for the next action of the schedule, batch.go takes what
// changed, compile.go and host.go hand plans to the mode, and apply.go writes them. bootstrap.go
// fills a kernel that carries nothing yet, and audit.go looks for drift. Each of the other parts is
// a type of its own, without a goroutine and without calls to the kernel: schedule, debounce,
// backoff, progress, hostState, capabilities, outcomes, afterPass, audits, stats.
//
// The loop goroutine alone touches these parts, the compiler, the mode and, through it, every kernel
// handle. Other goroutines have the loop run a function for them (Do) and so read the state between two
// steps: there is no lock, and no second copy of the state.
//
// The loop also composes the model.Host that plans are made for: our Node and the addresses of all Nodes
// from the catalog, the addresses on the links from the machine. A change of the host compiles again the
// Services that it affects, and no other.
//
// The laws that it keeps: rows in the kernel do not change before every source is in sync, but an
// empty kernel is filled as Services arrive. The host and the kernel are read before the first
// write. Orphans stay while some input cannot be read. Rows that failed are retried with backoff,
// and no other rows with them.
package agent
