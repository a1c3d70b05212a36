// Package kube holds the tests that need a real Kubernetes API: kube-apiserver and etcd of pinned versions, run as processes.
//
//	controlplane/  a module of its own that pins Kubernetes and etcd; it has no code
//	containerd/    the same for the container runtime of nodes
//	binaries/      builds the programs into the cache, and finds them
//	build/         go run ./e2e/kube/build
//	cluster/       starts, stops and breaks a control plane
//	serve/         lends a guest the host's control planes
//	traffic/       the agent that follows one, on a kernel with IPVS
//
// Its tests skip where the programs were not built, unless KUBE_IPVS_E2E_KUBE=1 asks for them.
package kube
