// Package cluster joins the answers of the agents of many nodes: values that all nodes agree on once, and
// what differs by node. It is pure but for the goroutines that ask: how a node is reached is a
// function (Asker). A Question has a conversation with each node, of verbs of kube-ipvs with
// JSON output, and makes one Report of all answers.
package cluster
