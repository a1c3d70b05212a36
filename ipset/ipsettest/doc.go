// Package ipsettest stands in for the kernel in tests of programs that use
// package ipset.
//
// Fake has the methods of ipset.Handle and keeps real state. It refuses the same requests as the
// kernel, with errors that match the same sentinels, and prints its content as `ipset save` would.
// A Fault makes chosen calls fail, hang until their context ends, or lists come back short.
//
// Contract is the law that binds the two: one table of behaviours, run against
// the fake everywhere and against a kernel where there is one. A fake that
// passes what the kernel fails is a bug in the fake.
//
// One difference is known and kept: the kernel counts maxelem by regions of 1,024 buckets. A set
// that has grown can therefore hold a few more than maxelem entries before it is full, never fewer.
// The fake refuses the first one over.
package ipsettest
