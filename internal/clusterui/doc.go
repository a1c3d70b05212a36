// Package clusterui serves a page on loopback that shows a cluster as its agents report it: nodes
// and Services as a grid, and one Service with its frontends and backends. It reads what the verbs
// of a cluster read, and has no way to change anything. All its files are embedded.
package clusterui
