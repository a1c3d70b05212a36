// Package binaries builds and finds the programs of a real control plane: etcd, kube-apiserver and kubectl; and
// kube-proxy, whose place kube-ipvs takes.
//
// Their versions are pinned by a module of their own, e2e/kube/controlplane, which holds no code; the go command builds them from
// there, so neither a download of binaries nor a container registry is needed, and the agent's module stays small.
//
//	controlplane/go.mod ──> Build ──> cache directory, named by versions and recipe ──> Find
//
// What this room may not know: how the programs are started. Its law: a binary in the cache is complete. Each is built under
// another name and renamed, so a build may be stopped at any time; the go command's own cache keeps what was compiled.
package binaries
