// Command nodes runs kube-ipvs as its users do: a cluster of real nodes, the image of the ordinary
// build, manifests/install.yaml, and kubectl.
//
//	machine, in a network namespace of its own:  etcd, kube-apiserver, controllers, scheduler ── bridge 172.30.0.1
//	guests of User-mode Linux, one a node:       containerd, crun, kubelet, CNI plug-ins ─────── 172.30.0.11, .12, .13
//	pods:                                        10.244.N.0/24 and fd00:10:244:N::/64 on node N, plain routes between nodes
//
// A node's root file system is the machine's, read-only, under a layer in memory (node.sh). Images
// are files that ctr imports; there is no registry. Every check talks to the cluster by kubectl.
// Checks run in order, because they share the cluster, and each prints a line with its result and
// time.
//
// Its laws: nothing is left behind, because the namespace and everything in it end with this
// program. No check asserts how long something takes. A machine that cannot run a cluster gets the
// reason and no failed check.
package main
