// Package tune prepares the node: it loads kernel modules, sets sysctls and puts
// them back, and says in words what the kernel lacks.
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
// write of a key its old value is in the journal.
package tune
