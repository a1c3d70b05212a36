// Package linktest is a link room without a kernel: the same methods, the same
// answers, plus what a test needs to be somebody else on the node and to make any
// call fail. The contract test of package link runs against it and against the
// kernel; where they disagree, this one is wrong.
package linktest
