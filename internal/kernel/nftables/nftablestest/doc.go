// Package nftablestest is an nftables room without a kernel: the same methods,
// the same answers, plus what a test needs to make tables, to keep one from being
// deleted and to make any call fail. The contract test of package nftables runs
// against it and against the kernel; where they disagree, this one is wrong.
package nftablestest
