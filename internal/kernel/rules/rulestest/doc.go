// Package rulestest has the stand-in for the iptables of a node and the
// contract that the stand-in and the kernel both keep.
//
// [Fake] holds tables, chains and rules of both families in memory. It refuses the same chains and
// single rules as the kernel, fails on demand ([Plan]) and prints itself as iptables-save would. It
// does not follow jumps: a loop under a hook, or a translation reached from a hook that does not
// translate, is refused by the kernel alone. [Contract] is the table of behaviours; a fake that
// passes a case the kernel fails is a bug in the fake.
package rulestest
