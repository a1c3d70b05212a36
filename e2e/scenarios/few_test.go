//go:build !race

package scenarios_test

// few is false: calls of each kernel package fail; see picks.
const few = false
