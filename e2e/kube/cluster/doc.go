// Package cluster runs a real control plane for tests: one etcd and one kube-apiserver, as
// processes, and nothing else. Without controllers and a scheduler, the API has only the objects of
// the test. Endpoint slices stay as they are, nodes have no heartbeat, and a ServiceAccount exists
// once it is created.
//
//	Options ──> Start ──> keys and certificates ──> etcd ──> kube-apiserver ──> /readyz
//	                 Cluster ──> Kubeconfig, Token     who a client is
//	                        ──> Kubectl                what a client asks
//	                        ──> Stop, Kill, Pause      what goes wrong; Compact, too
//
// Control hides where the control plane runs: Open starts it here or, in a guest, requests one from
// the Host of the outer machine.
//
// It does not know the agent and how that serves Services. Its laws: the ports stay the same from
// Start to Close, so that a client finds a restarted server again. Data survive every stop. The
// processes end with the one that started them, even after a crash.
package cluster
