// Package netns makes network namespaces for tests and benchmarks, joins them by veth pairs, and runs
// programs in them.
package netns
