// Package audit finds drift: rows of ipvs mode that another process changed. The kernel does not
// report when virtual servers, sets or rules change, so drift can only be found by reading.
//
//	audit.go    reads everything once, in pieces small enough that a change never waits long for one
//	sample.go   reads a few signs of a large loss, once a second
//	survey.go   which servers an audit reads: those that a cheap list shows to be different
//	servers.go  compares some servers and their destinations exactly
package audit
