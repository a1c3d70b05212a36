// Package packet sends real packets through a real kernel that the agent has set up, and checks what arrives.
//
// Each test builds a small cluster of network namespaces, starts the kube-ipvs program in the one
// that is the node, and gives it manifests. Then it acts as a pod, a pod of another node, a machine
// outside, or the host. The agent is used as an operator uses it: flags, files, signals, its
// status, and the kernel as ipvsadm, ipset, iptables-save and ip show it.
//
//	outside 203.0.113.9              remote 10.244.1.1, .2, .9 (pods of node-b)
//	          │                                │
//	   ext0 203.0.113.1 ──── node ──── fab0 192.168.0.1 ─── 192.168.0.2
//	                     (node-a, the agent)
//	                           │ cni0 10.244.0.254
//	         pod-1 10.244.0.1, pod-2 .2, pod-3 .3
//
// Where it matters which node forwards there are two, each with an agent, see cluster, and where
// backends answer themselves the outside has a link to either, see direct. The file
// testdata/truth.txt lists which client reaches which address, and which source the backend sees;
// TestTruthTable checks it cell by cell.
//
// Everything has an IPv6 address too. The node's default route leads to a link that swallows
// packets. So an address without a virtual server never answers, and an answer or a refusal can
// only come from rows of the agent.
//
// The tests need root, a kernel with IPVS and the tools named above. Those of iptables mode, which
// are named TestIPTables…, need a kernel with iptables and run natively on most machines. They
// skip, with the reason, where KUBE_IPVS_WHERE is not set; vmrun sets it. KUBE_IPVS_BIN is the path
// of the program under test.
//
// Its law: every wait has a deadline, and no test asserts how long something took, because time under emulation means
// nothing; figures are logged.
package packet
