// Package binaries builds and finds the programs of a real control plane: etcd, kube-apiserver and kubectl; and
// kube-proxy, whose place kube-ipvs takes.
//
// A module of its own, e2e/kube/controlplane, which has no code, pins their versions, and the go
// command builds them from it. So neither downloads of binaries nor a container registry are
// needed, and the agent's module stays small.
//
//	controlplane/go.mod ──> Build ──> cache directory, named by versions and recipe ──> Find
//
// It does not know how the programs are started. Its law: a binary in the cache is complete. Each
// is built under another name and renamed, so a build may be stopped at any time; the go command's
// own cache keeps what was compiled.
package binaries
