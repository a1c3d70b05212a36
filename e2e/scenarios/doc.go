// Package scenarios holds the behaviours of the agent, one a file in testdata,
// and the tests that run them; package internal/testkit/scenario says how to read
// and write them.
//
//	TestOnFakes          every file on fakes of the kernel; -update rewrites what
//	                     the files expect
//	TestFailEachCall     again, with each kernel call failing once
//	TestCrashAtEachCall  again, with the agent dying at each kernel call
//	TestRandomChanges    no file: changes, restarts, faults and damage at random,
//	                     against a fresh compile; -seed repeats
//	TestOnKernel         every file with the program on a kernel that has IPVS
package scenarios
