// Package tune prepares the node. It loads kernel modules, sets sysctls (those of connection
// tracking included) and restores them, and sets the out-of-memory score of the process. It also
// finds the memory limit, and reports what the kernel lacks.
//
// It knows names of modules and keys, nothing of Services. It never decides that the agent cannot
// run: each failure is a result with a policy, and the caller decides. The packages that use IPVS,
// sets or rules probe them; their probes are passed in as Checks.
//
// Flow in: names, keys and checks. Flow out: one result each, and a journal of old
// values in the run directory.
//
// The law it keeps: read first, write only what is wrong, and before the first write of a key its
// old value is in the journal. A key that the kernel refused is not restored. Two settings are not
// in the journal: the size of the connection tracking table, which only grows, and the score, which
// ends with the process.
package tune
