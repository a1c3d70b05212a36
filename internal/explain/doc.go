// Package explain makes a report of what the agent tells about a Service or an address and of what
// the kernel has of it. The report opens with a verdict: what is wrong, the first cause first, or
// that nothing is. It is pure: the caller reads both sides, and either may be missing, which the
// report has.
package explain
