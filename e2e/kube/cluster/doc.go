// Package cluster runs a real control plane for tests: one etcd and one kube-apiserver, as processes, and nothing else. There is
// no controller and no scheduler, so every object is what a test wrote: endpoint slices stay as they are, nodes have no
// heartbeat, a ServiceAccount exists when it was created.
//
//	Options ──> Start ──> keys and certificates ──> etcd ──> kube-apiserver ──> /readyz
//	                 Cluster ──> Kubeconfig, Token     who a client is
//	                        ──> Kubectl                what a client asks
//	                        ──> Stop, Kill, Pause      what goes wrong; Compact, too
//
// Control is the same for a test that need not know where the control plane runs: Open starts it here or, in a guest, asks the
// Host of the machine below for one.
//
// What this room may not know: the agent and what it does with Services. Its laws: the ports stay the same from Start to Close,
// so a client that lost its server finds it again; data survive every stop; the processes end with the one that started them,
// however it ends.
package cluster
