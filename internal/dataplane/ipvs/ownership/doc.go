// Package ownership decides whose a virtual server is. IPVS stores no owner. A server is ours if
// its address is on kube-ipvs0 or has an entry in KUBE-IPVS-IPS, or if an entry of another set of
// ours names the server. All other servers are foreign: they are never pending, never changed and
// never deleted.
//
// The mode asks with what it knows (Facts), verbs with a Snapshot of the kernel. So a process
// without memory, check, explain, show, diff and cleanup decide alike.
package ownership
