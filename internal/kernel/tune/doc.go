// Package tune prepares the node: it loads kernel modules, sets sysctls, those of
// connection tracking included, and puts them back, sets the process's own score
// for the kernel's killer, finds what bounds its memory, and says in words what the kernel
// lacks.
//
// It knows names of modules and keys, nothing of Services, and it never decides
// that the agent cannot run: everything that fails comes back as a result with a
// policy, and the caller chooses. Whether IPVS, sets or rules work is found out by
// the rooms that use them; their probes are handed in as Checks.
//
// Flow in: names, keys and checks. Flow out: one result each, and a journal of old
// values in the run directory.
//
// The law it keeps: read first, write only what is wrong, and before the first
// write of a key its old value is in the journal. What was refused is not ours to
// put back. Two settings are not in the journal: the size of the connection
// tracking table, which only grows, and the score, which ends with the process.
package tune
