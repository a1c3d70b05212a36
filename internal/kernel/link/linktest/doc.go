// Package linktest is a link package without a kernel. It has the same methods and the same
// answers, and lets a test act as another program on the node and make any call fail. The contract
// test of package link runs against it and against the kernel; where they disagree, this one is
// wrong.
package linktest
