// Package binaries builds and finds the programs of a real cluster. Its control plane is etcd,
// kube-apiserver, kubectl and the controllers; kube-proxy is what kube-ipvs replaces. Its nodes have
// a kubelet and a container runtime. Neighbours are programs of other projects that run on nodes
// beside kube-ipvs.
//
// Modules of their own below e2e/kube, which have no code, pin their versions, and the go command
// builds them from these. So neither downloads of binaries nor a container registry are needed, and
// the agent's module stays small.
//
//	controlplane/go.mod ──> Build ──> cache directory, named by versions and recipe ──> Find
//	           and containerd/go.mod ──> BuildNodes ──> another one ──> FindNodes
//	flannel, kuberouter, metallb      ──> BuildNeighbours ──> a third ──> FindNeighbours
//
// It does not know how the programs are started. Its law: a binary in the cache is complete. Each
// is built under another name and renamed, so a build may be stopped at any time; the go command's
// own cache keeps what was compiled.
package binaries
