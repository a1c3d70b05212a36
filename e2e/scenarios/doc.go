// Package scenarios holds the behaviours of the agent, one a file in testdata,
// and the tests that run them; package internal/testkit/scenario explains how to read
// and write them.
//
//	TestOnFakes          every file on fakes of the kernel; -update rewrites what
//	                     the files expect
//	TestFaults           again, with kernel calls that fail, hang, are late, lose their
//	                     reply or are refused, once or for a while, whole or a row of
//	                     them; prints a table. -faults N tries more of a file (make
//	                     faults), -every each kind of fault at each call of each file
//	TestCrashAtEachCall  again, with the agent dying at kernel calls
//	TestKernelFails..., TestRefusedRow..., TestKernelThat..., TestLoopAnswers...
//	                     no file: the reports of faults in status, health and metrics, and
//	TestModel            no file: random walks of changes, restarts, other flags, faults
//	                     and damage, in both modes, against a fresh compile; -ops is how
//	                     many operations, -seed repeats; see internal/testkit/randomops
//	TestPlanIsStable     no file: the same cluster from other files gives the same plan
//	TestOnKernel         every file of ipvs mode with the program on a kernel that has
//	                     IPVS
//	TestModelOnKernel    random walks with the program on a kernel that has IPVS, for a time
//	TestIPTablesOnKernel every file of iptables mode, iptables-*.txtar, with the program
//	                     on any kernel, with iptables-nft and iptables-legacy
package scenarios
