// Package conntracktest is a connection tracking table without a kernel: the same Sweep, the same
// answers, plus what a test needs to fill it and to make it fail. On Linux it also has Kernel, the
// table of a network namespace for tests to fill and read. Its codec is independent of that of
// package conntrack.
//
// The contract test of package conntrack runs against both; where they disagree,
// the one without a kernel is wrong.
package conntracktest
