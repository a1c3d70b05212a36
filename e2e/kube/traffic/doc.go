// Package traffic holds the tests that go all the way: objects written to a real Kubernetes API, the kube-ipvs program that
// follows it, a real kernel, and packets.
//
//	kube-apiserver ── relay ── node-a, the agent ── be0 ── backends 10.244.0.1, .2 (of node-a), 10.244.1.1, .2 (of node-b)
//	                               │
//	                             pod0 ── pod 10.244.0.9
//
// Each test has its own control plane, lent by the host of a guest, a node namespace with an agent,
// one namespace with all backends, and one client pod. The agent reaches the API server through a
// relay on its loopback: the relay does to connections what a network does. The node's default
// route leads to a link that swallows packets, so an answer can only come from what the agent set
// up.
//
// TestTakeover adds clients outside, on a link of their own, and the real kube-proxy, which runs on the node by turns with kube-ipvs.
//
// The tests need root and a kernel with IPVS, and skip, with the reason, where KUBE_IPVS_WHERE is
// not set; e2e/test-kube.sh runs them where it is. KUBE_IPVS_BIN is the program under test, and
// KUBE_IPVS_KUBE_PROXY the program that it replaces. KUBE_IPVS_E2E_OUTAGE is the length of outages,
// KUBE_IPVS_SRC the root of the source tree with the manifests, and KUBE_IPVS_OUT the directory for
// results.
//
// Its law: every wait has a deadline, figures are logged and never asserted, and no failed request is ever explained away.
package traffic
