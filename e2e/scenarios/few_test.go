//go:build !race

package scenarios_test

// few is false: calls of each room fail; see picks.
const few = false
