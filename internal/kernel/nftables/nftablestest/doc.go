// Package nftablestest is an nftables package without a kernel. It has the same methods and the
// same answers, and lets a test create tables, protect one from deletion and make any call fail.
// The contract test of package nftables runs against it and against the kernel; where they
// disagree, this one is wrong.
package nftablestest
