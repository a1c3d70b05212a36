// Package drive measures candidates: each number of Services in turn, and each candidate in turn with that, on a node that has never seen
// another.
//
//	for N:  the crowd grows to N
//	  for each candidate:  a world ──> start ──> idle ──> endpoint ──> service ──> packets ──> netlink ──> roll ──> churn ──> killed
//	                       after each part the cell is written                      the crowd becomes what it was
//
// It knows candidates as command lines. What it learns of one, it learns from answers of Services, and from what the kernel counts.
package drive
