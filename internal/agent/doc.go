// Package agent is the single loop of kube-ipvs: wait, take, compile, apply, record.
//
//	catalog ── dirty Services ──► compile ──► mode.Set ──► mode.Apply ──► kernel
//	   ▲                                                       │
//	sources                                    Result ── backoff, log, metrics, status
//
// loop.go waits for the next change or for the next action of the schedule, take.go takes what changed,
// compile.go and host.go hand plans to the mode, and apply.go writes them. bootstrap.go fills a kernel that
// carries nothing yet, and audit.go looks for drift. Each of the other parts is a type of its own, without
// a goroutine and without a call to the kernel: schedule, debounce, backoff, progress, hostState,
// capabilities, outcomes, healthAnswers, audits, stats.
//
// The loop goroutine alone touches these parts, the compiler, the mode and, through it, every kernel
// handle. Other goroutines have the loop run a function for them (Do) and so read the state between two
// steps: there is no lock, and no second copy of the state.
//
// The loop also composes the model.Host that plans are made for: our Node and the addresses of all Nodes
// from the catalog, the addresses on the links from the machine. A change of the host compiles again the
// Services that it affects, and no other.
//
// The laws that it keeps: nothing that the kernel carries changes before every source has delivered all it
// can (in sync), while an empty kernel is filled as Services arrive; the host and the kernel are read
// before the first write; orphans stay while some input could not be read; rows that failed are retried
// with backoff, and no others with them.
package agent
