// Package explain makes a report of what the agent tells about a Service or an address and of what
// the kernel has of it. The report opens with a verdict: the problems, the first cause first, or
// that there is none. It is pure: the caller reads both sides, and either may be missing, and the
// report tells which.
package explain
