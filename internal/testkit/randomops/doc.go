// Package randomops is the model test: long random sequences of operations on one node. At each quiet
// point it checks that the state of the agent depends only on its inputs, not on their history.
//
//	seed ──New──► Walk ──Run──► a Node: the agent, real packages, fakes or a kernel
//	               ▲  │            at each quiet point (scenario.Comparator):
//	            Shrink └─Script    the result of a fresh compile of all inputs
//	               │      │          = what the agent wants
//	               └──────┘          = what the kernel holds, but for foreign rows,
//	            a txtar file             which are as they were
//
// A Walk is a value: flags and a list of operations. It depends on its seed alone. Each operation
// can be done or has no effect, even if others are removed from the list. So a failing list can be
// shortened as long as it fails, and the rest can be written as a scenario and kept.
//
// Nothing here knows what a Service should become: that is for the scenarios. The walk
// knows that how a node came to its inputs does not matter.
package randomops
