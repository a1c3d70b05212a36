// Package walk is the model test: long random sequences of operations on one node, and
// at each quiet point the question whether the agent has any memory that it should not have.
//
//	seed ──New──► Walk ──Run──► a Node: the agent, real rooms, fakes or a kernel
//	               ▲  │            at each quiet point (scenario.Judge):
//	            Shrink └─Script    what a fresh compile of all inputs says
//	               │      │          = what the agent wants
//	               └──────┘          = what the kernel holds, but for foreign rows,
//	            a txtar file             which are as they were
//
// A Walk is a value: flags and a list of operations. It follows from its seed alone, and
// each operation can be done, or does nothing, whichever others are taken out of the list:
// so a list that fails can be made shorter as long as it fails, and what is left be written
// as a scenario, to be read and kept.
//
// Nothing here knows what a Service should become: that is for the scenarios. The walk
// knows that how a node came to its inputs does not matter.
package walk
