// Package migrate changes which program carries the Services of a node.
//
//	takeover.go  rules of another proxy mode carry Services until all rows of ours are in place
//	handback.go  a clean-up leaves to a kube-proxy the rows that it takes over
package migrate
