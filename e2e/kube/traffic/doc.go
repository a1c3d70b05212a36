// Package traffic holds the tests that go all the way: objects written to a real Kubernetes API, the kube-ipvs program that
// follows it, a real kernel, and packets.
//
//	kube-apiserver ── relay ── node-a, the agent ── be0 ── backends 10.244.0.1, .2 (of node-a), 10.244.1.1, .2 (of node-b)
//	                               │
//	                             pod0 ── pod 10.244.0.9
//
// Each test has a control plane of its own, which the host of a guest lends, a node namespace with an agent, one namespace that
// holds all backends, and one pod that asks. The agent reaches the API server through a relay on its loopback: what a
// network does to a connection, the relay does. The node's default route leads to a link that swallows packets, so an answer
// can only come from what the agent set up.
//
// TestTakeover adds clients outside, on a link of their own, and the real kube-proxy, which runs on the node by turns with kube-ipvs.
//
// The tests need root and a kernel with IPVS, and skip, with the reason, where KUBE_IPVS_WHERE is not set; e2e/test-kube.sh runs
// them where it is. KUBE_IPVS_BIN is the program under test, KUBE_IPVS_KUBE_PROXY the program whose place it takes, KUBE_IPVS_E2E_OUTAGE how
// long outages last, KUBE_IPVS_SRC the root of the source tree, where the manifests are, KUBE_IPVS_OUT where results go.
//
// Its law: every wait has a deadline, figures are logged and never asserted, and no failed request is ever explained away.
package traffic
