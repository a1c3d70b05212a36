// Package rulestest has the stand-in for the iptables of a node and the
// contract that the stand-in and the kernel both keep.
//
// [Fake] holds tables, chains and rules of both families in memory, refuses
// what the kernel refuses, fails on demand ([Plan]) and prints itself as
// iptables-save would. [Contract] is the table of behaviours; a fake that
// passes a case the kernel fails is a bug in the fake.
package rulestest
