// Package sysctl sets sysctls, those of connection tracking included, and restores their old values.
//
// It knows keys, nothing of Services, and it never decides that the agent cannot run: each failure comes
// back as a result with a policy, and the caller chooses.
//
// It reads first and writes only values that are wrong. Before the first write of a key its old value is
// in a journal in the run directory. A key whose write was refused is not restored. The size of the
// connection tracking table is not in the journal, because it only grows.
package sysctl
