// Package run measures candidates: for each number of Services, each candidate in turn on a node that no other program has used.
//
//	for N:  apiload grows to N Services
//	  for each candidate:  topology ──> start ──> idle ──> endpoint ──> service ──> roll ──> churn ──> killed
//	                       the result is written after each part                   apiload is restored
//
// The package knows a candidate as a command line. It learns about the candidate only from answers of Services and from the kernel.
package run
